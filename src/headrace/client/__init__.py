"""The client: produce, consume, administer, and read ranges as columns; from any Kafka broker since 0.11.

Stands on `headrace.records` and `headrace.protocol` only. What decides is apart from what waits: the modules of the
second group touch no socket and no clock, so that another face (asyncio) needs new shells only.

    shells     connection, negotiation, cluster, sender, producer, fetcher, group_session, consumer, reader, admin,
               group_admin
    decisions  inbound, versions, metadata, accumulator, delivery, partitioner, scatter, fetching, chunks, isolation,
               membership, assignors
    values     settings, failures, timing, column_input, arrow (the only one that imports pyarrow)
"""
