"""The simple assignor of share groups: partitions are shared, so that every member has some.

    members <= partitions    each partition has one member; members have as many partitions, give or take one
    members > partitions     each partition has ceil(members / partitions) members, as far as members have room

Members keep what they have, as far as balance allows. Where members subscribe to different topics, each topic is
balanced by itself among its subscribers. Source: KIP-932, Kafka's `SimpleAssignor` and its two builders. Here a topic
that no member subscribes to any more is dropped at once; Kafka's builder for different subscriptions leaves it.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from headrace.coordinators.assignors.assignor import (
    AssignorMember,
    Partitions,
    TargetAssignment,
    TopicId,
    is_homogeneous,
    partition_count,
)


def assign_simple(
    members: Mapping[str, AssignorMember],
    partition_counts: Mapping[TopicId, int],
    assignable: Mapping[TopicId, frozenset[int]] | None = None,
) -> TargetAssignment:
    """Assigns each partition of each subscribed topic to one member or more.

    `assignable`: the partitions that may be assigned, which are those whose share state is initialized; all if None.
    Raises PartitionAssignorError for a subscribed topic without a partition count. Time: linear in members, partitions,
    the sum of the subscriptions and the result.
    """
    if not members:
        return {}
    sharing = _Sharing(list(members.values()), partition_counts, assignable)
    if is_homogeneous(members):
        sharing.share(sharing.topics, range(len(members)))
    else:
        for topic in sharing.topics:
            sharing.share([topic], sharing.subscribers[topic])
    return dict(zip(members, sharing.result(), strict=True))


class _Sharing:
    """The partitions of each member so far. Members are numbered in their order, partitions through all topics."""

    def __init__(
        self,
        members: Sequence[AssignorMember],
        counts: Mapping[TopicId, int],
        assignable: Mapping[TopicId, frozenset[int]] | None,
    ) -> None:
        self._members = members
        self.subscribers: dict[TopicId, list[int]] = {}
        for number, member in enumerate(members):
            for topic in member.topics:
                self.subscribers.setdefault(topic, []).append(number)
        self.topics = sorted(self.subscribers)
        self._base: dict[TopicId, int] = {}
        self._slots: dict[TopicId, list[int]] = {}
        self._places: list[tuple[TopicId, int]] = []
        for topic in self.topics:
            base = self._base[topic] = len(self._places)
            count = partition_count(topic, counts)
            self._places += [(topic, partition) for partition in range(count)]
            chosen = range(count) if assignable is None else sorted(assignable.get(topic, ()))
            self._slots[topic] = [base + partition for partition in chosen if partition < count]
        self._present: dict[TopicId, dict[int, frozenset[int]]] = {topic: {} for topic in self.topics}
        for number, member in enumerate(members):
            for topic, partitions in member.assignment.items():
                if topic in self._present:
                    self._present[topic][number] = partitions
        self._owned: list[list[int]] = [[] for _ in members]

    def share(self, topics: Sequence[TopicId], subscribers: Sequence[int]) -> None:
        """Shares the partitions of the topics among the subscribers."""
        users: dict[int, set[int]] = {slot: set() for topic in topics for slot in self._slots[topic]}
        if not users:
            return
        sharing = -(-len(subscribers) // len(users))
        present = self._present_slots(topics)
        lacking: deque[tuple[int, int]] = deque()
        for number, room in zip(subscribers, _rooms(sharing * len(users), len(subscribers)), strict=True):
            left = room
            for slot in present.get(number, ()):
                if left and slot in users and len(users[slot]) < sharing:
                    users[slot].add(number)
                    self._owned[number].append(slot)
                    left -= 1
            if left:
                lacking.append((number, left))
        for slot, members in users.items():
            if len(members) < sharing and lacking:
                self._fill(slot, members, sharing, lacking)

    def _present_slots(self, topics: Iterable[TopicId]) -> dict[int, list[int]]:
        """What each member has of these topics."""
        present: dict[int, list[int]] = {}
        for topic in topics:
            base = self._base[topic]
            for number, partitions in self._present[topic].items():
                present.setdefault(number, []).extend([base + partition for partition in partitions])
        return present

    def _fill(self, slot: int, users: set[int], sharing: int, lacking: deque[tuple[int, int]]) -> None:
        """Gives the partition to members that lack some, in turn. Members that have it already are passed over: if only
        such are left, it stays with fewer members, as in Kafka. A turn passes `sharing` members at most."""
        passed = 0
        while len(users) < sharing and passed < len(lacking):
            number, room = lacking.popleft()
            if number in users:
                lacking.append((number, room))
                passed += 1
                continue
            users.add(number)
            self._owned[number].append(slot)
            if room > 1:
                lacking.append((number, room - 1))
            passed = 0

    def result(self) -> list[Partitions]:
        """The partitions of each member; the same object as before if nothing changed."""
        return [self._by_topic(slots, member) for slots, member in zip(self._owned, self._members, strict=True)]

    def _by_topic(self, slots: Sequence[int], member: AssignorMember) -> Partitions:
        by_topic: dict[TopicId, list[int]] = {}
        for topic, partition in map(self._places.__getitem__, slots):
            by_topic.setdefault(topic, []).append(partition)
        partitions = {topic: frozenset(each) for topic, each in by_topic.items()}
        return member.assignment if partitions == member.assignment else partitions


def _rooms(total: int, members: int) -> Iterable[int]:
    """How many partitions each member is to have: they add up to `total` and differ by one at most."""
    return (-(-total * (number + 1) // members) + (-total * number // members) for number in range(members))
