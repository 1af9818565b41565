"""The assignors of a group's leader: range and round robin, with the results of Java's assignors. Pure.

    range        per topic: members in order get floor(n / m) partitions each, the first n mod m one more
    roundrobin   all partitions of all topics in order, dealt to the members that subscribe to the topic

Static members come first, ordered by static id; the others follow, ordered by member id. Every client computes the same
assignment, so groups may mix clients. Source: Kafka's `RangeAssignor`, `RoundRobinAssignor`,
`AbstractPartitionAssignor.MemberInfo`. Left out: rack awareness (it changes nothing if no member has a rack), sticky
and cooperative assignment.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import NamedTuple

from headrace.types import TopicPartition


class Member(NamedTuple):
    """A member of the group, with its subscription."""

    member_id: str
    topics: frozenset[str]
    group_instance_id: str | None = None

    @property
    def order(self) -> tuple[bool, str]:
        """Static members first, by their ids; then the others by theirs."""
        if self.group_instance_id is not None:
            return (False, self.group_instance_id)
        return (True, self.member_id)


Assignment = dict[str, list[TopicPartition]]
"""Member id to its partitions, topics ascending, partitions ascending within a topic."""

Assignor = Callable[[Sequence[Member], Mapping[str, int]], Assignment]
"""(members, partition count of each known topic) -> who gets what; every member is in it."""


def assign_range(members: Sequence[Member], partition_counts: Mapping[str, int]) -> Assignment:
    """Assigns consecutive partitions of each topic to each member."""
    assignment: Assignment = {member.member_id: [] for member in members}
    for topic in _topics(members, partition_counts):
        subscribed = sorted((member for member in members if topic in member.topics), key=_order)
        share, extra = divmod(partition_counts[topic], len(subscribed))
        start = 0
        for index, member in enumerate(subscribed):
            stop = start + share + (index < extra)
            assignment[member.member_id] += [TopicPartition(topic, partition) for partition in range(start, stop)]
            start = stop
    return assignment


def assign_round_robin(members: Sequence[Member], partition_counts: Mapping[str, int]) -> Assignment:
    """Assigns the partitions one by one to the members in turn."""
    assignment: Assignment = {member.member_id: [] for member in members}
    circle = cycle(sorted(members, key=_order))
    for topic in _topics(members, partition_counts):
        for partition in range(partition_counts[topic]):
            member = next(candidate for candidate in circle if topic in candidate.topics)
            assignment[member.member_id].append(TopicPartition(topic, partition))
    return assignment


ASSIGNORS: Mapping[str, Assignor] = {"range": assign_range, "roundrobin": assign_round_robin}


def _topics(members: Sequence[Member], partition_counts: Mapping[str, int]) -> list[str]:
    subscribed = frozenset[str]().union(*(member.topics for member in members))
    return sorted(topic for topic in subscribed if partition_counts.get(topic, 0) > 0)


def _order(member: Member) -> tuple[bool, str]:
    return member.order
