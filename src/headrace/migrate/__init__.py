"""Migration of a broker's data from Apache Kafka to headrace and back, always by copying.

    nodes            the cluster's metadata as a tree: path -> value; the part that is migrated (pure)
    tree_file        that tree as a file
    metadata_log     the records of `__cluster_metadata-0`, from its snapshot and its segments
    metadata_image   the state after these records, as a tree                                   (pure)
    embedded         that tree from and to a data directory of ours
    zookeeper        that tree from and to a live ZooKeeper

    directories      data directories: their identity, locks and partitions
    batches          headers and records of a partition that no broker has open
    transactions     open transactions in it
    checks           the reasons to refuse a migration                                          (pure)
    copying          files, checkpoints, and the one opening that leaves the copy clean
    move             the steps that both directions share
    kraft            metadata_log and metadata_image combined
    from_kafka       into a data directory of ours
    to_kafka         out of one, for Kafka 3.9 with ZooKeeper
    outcome          the result of a migration or its dry run

Everything is checked before anything is written. The copy's metadata is written last, so that no broker starts on an
interrupted copy. May know `log`, `metadata` and `metastore`. Begin with `move`.
"""
