"""Share groups (KIP-932) in a broker: the share partitions that it leads, and the share state that it keeps.

Imported at the first use. May know the coordinators and the network to other brokers. Begin with `share_manager` and
`share_fetch_request` for a leader, with `share_state` for the share coordinator.
"""
