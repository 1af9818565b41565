"""Shared parts of the clients: connections, negotiation, metadata, settings, errors.

Begin with `cluster`, then `connection`.
"""
