"""Who leads what: the tree that the brokers share, and the controller that decides on it.

    tree          the interface: ZooKeeper's data model (versions, ephemeral and sequential nodes, watches, multi)
    embedded      that tree inside this process, durable in the data directory
    model, uuids  brokers, topics, leaderships; ids as text
    paths         where Apache Kafka 3.9 keeps what in the tree, and its JSON

    assignment    which brokers get which replicas                                     (pure)
    topics        may this topic be made, and how                                      (pure)
    elections     who leads a partition, from its ISR                                  (pure)
    requests      what each broker is told: LeaderAndIsr, UpdateMetadata, StopReplica  (pure)

    cluster       what the controller knows, read from the tree
    controller    the shell that reads the tree, asks the pure parts, writes, and has it told
    events        its queue: one thing at a time
    propagation   its voice: requests to brokers, and their answers
    registry      this broker's registration, the cluster's id
    configs       a topic's settings, from the tree to those who use them
    producer_ids  blocks of producer ids

One topic, from wish to leader: `controller._create_topic`, `topics.plan_topic`, `elections.elect_new`, one multi,
`propagation.tell`, then at each broker `control_plane.handle`, `replica_manager.apply_leader_and_isr`, and a partition
that takes appends.
"""
