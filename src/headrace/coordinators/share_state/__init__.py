"""The share coordinator, which stores the delivery state of share partitions in `__share_group_state` (KIP-932). Pure.

Begin with `coordinator`; `persister` is what share partitions and share groups see of it.
"""
