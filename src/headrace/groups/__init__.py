"""Consumer groups: who reads which partition, and how far each group has come. PURE: no clock, no IO, no randomness.

    coordinator     the face: requests in, actions out; which partitions of __consumer_offsets are served
    group           one group's state            members     one member, one JoinGroup
    joining         JoinGroup                    syncing     SyncGroup, Heartbeat
    leaving         LeaveGroup, lost members     rebalance   from one generation to the next
    commits         OffsetCommit, OffsetFetch    offsets     one group's committed offsets
    records         __consumer_offsets' keys and values, both ways         loading     groups from those records
    actions         what comes out               turn, deadlines           what a step may use

Read `coordinator` first; each of its methods leads to one of the others.
"""
