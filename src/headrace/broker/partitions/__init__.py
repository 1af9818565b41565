"""The partitions on this broker: opens, leads, follows, moves between directories, and deletes them.

May know the log, metadata, the purgatory and the pure replication state. Begin with `replica_manager`, then
`partition`; `durable_append` waits until appended records are committed and flushed.
"""
