"""Shared parts of the clients: connections, negotiation, metadata, settings, errors.

May know the protocol's conversation and the transport; no producer, no consumer. Begin with `cluster`, then
`connection`.
"""
