"""Writing DataFrames to topics. A repeated task writes no row twice.

May know the client and PySpark, and of `source` the options and the access to a cluster. Begin with `sink`.
`sink_marks` explains the idempotent mode, `sink_transactions` the transactional one.
"""
