"""Share groups (KIP-932): members that share partitions, and which share partitions have state. Pure.

Begin with `requests`. The state of share partitions itself is `coordinators.share_state`.
"""
