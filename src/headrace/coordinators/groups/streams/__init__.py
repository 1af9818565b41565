"""Streams groups (KIP-1071): the topology of a Kafka Streams application, its tasks, and the members that run them.

Pure, as the rest of the group coordinator. May know the protocol's messages, assignors and what all groups have in
common. Begin with `heartbeats`.
"""
