"""Fetch: reads records for consumers and followers, at once or when `min_bytes` have arrived.

May know partitions, the request context and the purgatory. Begin with `fetch`. `follower_fetch` and `old_fetch` are
its variants; `fetch_sessions` implements fetch sessions (KIP-227).
"""
