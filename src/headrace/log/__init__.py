"""One partition's log: segments, indexes, recovery, retention, producers; and the data directories that hold many.

Read `partition_log` first: it is the log as the broker sees it. `segment` is one of its files with the two
indexes beside it; `recovery` is what happens when a log is opened; `manager` owns every log of a broker. Compaction is
read from `cleaner` (which log, and when) over `compaction` (what becomes of it) to `compaction_filter` (of one batch).
"""
