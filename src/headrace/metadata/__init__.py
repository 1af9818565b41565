"""Cluster metadata: brokers, topics, configs and ids, their nodes in the metadata store, and the broker's image.

May know the metadata store and `protocol`; elects and decides nothing. Begin with `model`, then `znodes`; `image` is
what a broker returns to clients, `deltas` what an update changed in it.
"""
