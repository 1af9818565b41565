"""The high-level consumer of Kafka 0.7 and 0.8, whose groups live in ZooKeeper. Needs the extra `zookeeper` (kazoo).

    ConsumerConnector ── its thread: watches ─▶ rebalance ─▶ claims, offsets ─▶ Stream, Stream …
                                                                                └ a thread of the user, a fetcher

It shares groups with the consumers of Kafka 0.8 to 1.1 that are written in Scala. Only
`zookeeper_session` imports kazoo. Begin with `connector`.

    pure: subscription, rebalance, settings
    IO:   connector, stream, group_registry, group_offsets, zookeeper_session
"""
