"""The round-robin assignor: all partitions of all topics in order, dealt to the members that subscribe to the topic.

Source: Kafka's `RoundRobinAssignor`. Racks change nothing.
"""

from collections.abc import Mapping, Sequence

from headrace.client.consumer.assignors.member import NO_RACKS, Assignment, Member, Racks, in_order, subscribed_topics
from headrace.types import TopicPartition


def assign_round_robin(
    members: Sequence[Member], partition_counts: Mapping[str, int], partition_racks: Racks = NO_RACKS
) -> Assignment:
    """Assigns the partitions one by one to the members in turn."""
    assignment: Assignment = {member.member_id: [] for member in members}
    circle = sorted(members, key=in_order)
    turn = 0
    for topic in subscribed_topics(members, partition_counts):
        for partition in range(partition_counts[topic]):
            while topic not in circle[turn].topics:
                turn = (turn + 1) % len(circle)
            assignment[circle[turn].member_id].append(TopicPartition(topic, partition))
            turn = (turn + 1) % len(circle)
    return assignment
