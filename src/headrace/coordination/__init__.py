"""Who leads what: the tree that the brokers share, and the controller that decides on it.

    tree          the interface: ZooKeeper's data model (versions, ephemeral and sequential nodes, watches, multi)
    embedded      that tree inside this process, durable in the data directory
    zookeeper     the connection to an ensemble, through kazoo; `zookeeper_tree`: that tree over it, with
                  `zookeeper_requests` (what is under way), `_recovery` (after each connection) and `_link` (the seam);
                  `ensemble`: where it is; `session_watch`: whether it can be reached
    model, uuids  brokers, topics, leaderships; ids as text
    paths         where Apache Kafka 3.9 keeps what in the tree, and its JSON
    admin_nodes   what its tools write for the controller                              (all below are pure)

    cluster       what the controller knows
    assignment    which brokers get which replicas
    topics        may this topic be made, and how; `growth`: may it get more partitions
    elections     who leads a partition, from its ISR
    isr_changes   may a leader change its ISR; `alter_partition`: the wire form of that
    fencing       when a registered broker counts as gone; `fence_manager`: read, decided, written
    shutdown      what a broker that stops leaves to others
    preferred     elections that are asked for, and the balance of leaders
    reassignment  how a partition moves to other brokers
    requests      what each broker is told: LeaderAndIsr, UpdateMetadata, StopReplica; `disk_answers`: what it answers

    controller    the shell: standing for election, one event at a time, waiting for those on whom an answer depends
    office        what it does in a term: brokers, their answers, settings, time
    term          one controller's knowledge, its writes and its voice, until it is over
    leader_manager, topic_manager, reassignment_manager: decide, write, tell
    tree_requests what tools write, watched
    channels      the way to each broker, in order, until it answers
    events        the queue; `loading`: from the tree to what is known
    registry      this broker's registration, the cluster's id; `registration` keeps the former alive
    configs       a topic's settings, from the tree to those who use them
    producer_ids  blocks of producer ids

One topic, from wish to leader: `controller.create_topics`, `topics.plan_topic`, `elections.elect_new`, one multi,
`term.tell`, then at each broker `control_plane.handle`, `replica_manager.apply_leader_and_isr`, and a partition that
takes appends.
"""
