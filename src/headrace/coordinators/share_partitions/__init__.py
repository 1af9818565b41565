"""Share partitions (KIP-932): which records of a partition a share group has in flight, who holds them, how often.

Pure: no socket, no log, no clock. Begin with `share_partition`; `broker.share` reads the log for it, keeps its state
through the persister, and fires its locks.
"""
