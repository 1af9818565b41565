"""Requests to other brokers: one connection per broker and lane, opened at first use.

May know sockets, the protocol and the cluster's metadata, for addresses. Begin with `peers`, the interface that the
controller and the fetchers use; `peer_links` implements it over TCP.
"""
