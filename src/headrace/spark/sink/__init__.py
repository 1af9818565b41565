"""Writing DataFrames to topics. A repeated task writes no row twice.

Begin with `sink`. `sink_marks` explains the idempotent mode, `sink_transactions` the transactional one.
"""
