"""The metadata store: ZooKeeper's data model (versions, ephemeral and sequential nodes, watches, multi).

Knows no paths, brokers or topics of Kafka. Begin with `store`, the interface; `embedded` implements it in one SQLite
file, `zookeeper` on an ensemble.
"""
