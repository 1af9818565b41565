"""The consumer: records of assigned or subscribed partitions, as objects or as columns.

May know `client.core` and record batches; no producer. Begin with `consumer`, then `fetcher` and `group_session`;
`reader` reads a range without a group.
"""
