"""The range assignor: each member owns consecutive partitions of each topic that it subscribes to.

    topic with n partitions, m subscribers:   n div m partitions each, the first n mod m of them one more

Topics with the same number of partitions and the same subscribers are co-partitioned: a member owns the same partition
numbers of each, so that it can join their records. Static members come first, ordered by their instance ids, so that a
restart changes nothing; the others follow, ordered by member id. Source: Kafka's `RangeAssignor` of the coordinator.
The client's assignor of this name is another: it knows topics by name.
"""

from collections.abc import Mapping

from headrace.coordinators.assignors.assignor import AssignorMember, TargetAssignment, TopicId, partition_count


def assign_range(members: Mapping[str, AssignorMember], partition_counts: Mapping[TopicId, int]) -> TargetAssignment:
    """Assigns each partition of each subscribed topic to one of its subscribers. Time: linear in the sum of the
    subscriptions and the partitions, and members times their logarithm."""
    order = sorted(members.items(), key=_static_first)
    subscribers: dict[TopicId, int] = {}
    for _, member in order:
        for topic in member.topics:
            subscribers[topic] = subscribers.get(topic, 0) + 1
    rests = {
        topic: _Rest(partition_count(topic, partition_counts), number) for topic, number in sorted(subscribers.items())
    }
    target: TargetAssignment = {}
    sorted_topics: dict[frozenset[TopicId], list[TopicId]] = {}
    for member_id, member in order:
        if (topics := sorted_topics.get(member.topics)) is None:
            topics = sorted_topics[member.topics] = sorted(member.topics)
        ranges = {topic: rests[topic].take() for topic in topics}
        partitions = {topic: frozenset(each) for topic, each in ranges.items() if each}
        target[member_id] = member.assignment if partitions == member.assignment else partitions
    return target


def _static_first(entry: tuple[str, AssignorMember]) -> tuple[bool, str]:
    member_id, member = entry
    return (True, member_id) if member.instance_id is None else (False, member.instance_id)


class _Rest:
    """The partitions of a topic that no subscriber has taken so far."""

    __slots__ = ("_extras", "_share", "_start")

    def __init__(self, partitions: int, subscribers: int) -> None:
        self._start = 0
        self._share, self._extras = divmod(partitions, subscribers)

    def take(self) -> range:
        """The partitions of the next subscriber."""
        stop = self._start + self._share
        if self._extras:
            self._extras -= 1
            stop += 1
        taken = range(self._start, stop)
        self._start = stop
        return taken
