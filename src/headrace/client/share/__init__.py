"""Consumers of share groups (KIP-932): several read one partition, record by record, and each record is acknowledged.

pure: acknowledgements, acquired_records, share_session, share_membership      IO: share_fetcher, share_consumer

May know `client.core` and record batches. Begin with `share_consumer`, then `share_session`.
"""
