"""One partition's log: segments, indexes, recovery, retention, producers; and the data directories that hold many.

May know files, records and settings; no network, no replication, no metadata. Begin with `partition_log`, the log as
the broker sees it. `segment` is one of its files with the two indexes beside it; `recovery` opens a log; `manager` owns
all logs of a broker. Compaction begins in `cleaning.cleaner` (which log, and when) and leads over `compaction` to
`compaction_filter` (one batch).
"""
