"""Moving a broker's data to headrace from Apache Kafka and back, always by copying.

    nodes            the cluster's metadata as a tree: path -> value; what of it goes along     (pure)
    tree_file        that tree as a file
    metadata_log     the records of `__cluster_metadata-0`, from its snapshot and its segments
    metadata_image   what these records add up to, as a tree                                    (pure)
    embedded         that tree from and to a data directory of ours
    zookeeper        that tree from and to a live ZooKeeper

    directories      data directories: whose they are, held while they are read, what lies in them
    batches          headers and records of a partition that nobody has opened
    transactions     what is in flight in it
    checks           why a migration must not be done                                           (pure)
    copying          files, checkpoints, and the one opening that leaves the copy clean
    move             the steps that are the same both ways
    kraft            metadata_log and metadata_image, put together
    from_kafka       into a data directory of ours
    to_kafka         out of one, for Kafka 3.9 with ZooKeeper
    outcome          what was done, or would be

Everything is checked before anything is written; the copy's metadata is written last, so that a copy that was
interrupted is one that nothing starts on.
"""
