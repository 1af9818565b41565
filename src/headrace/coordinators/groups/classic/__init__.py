"""Classic groups: members agree by JoinGroup and SyncGroup, and one of them assigns the partitions.

Pure. Begin with `requests`, whose methods lead to `joining`, `syncing` and `leaving`.
"""
