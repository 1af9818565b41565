"""Replication: fetches records from leaders, and asks the controller for changes of the ISRs of led partitions.

May know partitions, peers and the link to the controller. The rules are in `headrace.replication`, which does no IO.
Begin with `replication_service`, then `replica_fetcher` (follower) and `isr_requests` (leader).
"""
