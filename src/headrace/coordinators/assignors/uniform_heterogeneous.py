"""The uniform assignor of groups whose members subscribe to different topics.

    1  members keep their partitions of topics that they still subscribe to
    2  topics in order of partitions per subscriber, the scarcest subscribers first: each unowned partition goes to the
       subscriber with the fewest partitions
    3  topic by topic, again and again: a partition moves from the subscriber with the most partitions to the one with
       the fewest, until they differ by one at most, or until sixteen rounds were made

Members whose topics overlap without being the same end almost balanced: no move between two subscribers of one topic
helps, though a chain of moves could. Source: Kafka's `UniformHeterogeneousAssignmentBuilder`.
"""

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heapreplace

from headrace.coordinators.assignors.assignor import (
    AssignorMember,
    Partitions,
    TargetAssignment,
    TopicId,
    partition_count,
)

_ROUNDS_MAX = 16
"""Each round about halves an imbalance. Kafka's number."""

_NOBODY = -1


def assign_heterogeneous(members: Mapping[str, AssignorMember], counts: Mapping[TopicId, int]) -> TargetAssignment:
    """Assigns each partition of each subscribed topic to one of its subscribers."""
    balance = _Balance(list(members.values()), counts)
    balance.keep_present()
    balance.assign_unowned()
    balance.move_until_balanced()
    return dict(zip(members, balance.result(), strict=True))


class _Balance:
    """The owners of partitions so far. Members are numbered in their order."""

    def __init__(self, members: Sequence[AssignorMember], counts: Mapping[TopicId, int]) -> None:
        self._members = members
        self._subscribers: dict[TopicId, list[int]] = {}
        for number, member in enumerate(members):
            for topic in member.topics:
                self._subscribers.setdefault(topic, []).append(number)
        self._owners = {topic: [_NOBODY] * partition_count(topic, counts) for topic in sorted(self._subscribers)}
        self._sizes = [0] * len(members)
        self._changed: set[int] = set()
        self._topics = sorted(self._subscribers, key=self._scarcest_first)

    def _scarcest_first(self, topic: TopicId) -> tuple[float, int, TopicId]:
        subscribers = len(self._subscribers[topic])
        return (-len(self._owners[topic]) / subscribers, subscribers, topic)

    def keep_present(self) -> None:
        """Members keep what they own of topics that they subscribe to."""
        for number, member in enumerate(self._members):
            for topic, partitions in member.assignment.items():
                if topic not in member.topics:
                    self._changed.add(number)
                    continue
                owners = self._owners[topic]
                for partition in partitions:
                    if partition < len(owners) and owners[partition] == _NOBODY:
                        owners[partition] = number
                        self._sizes[number] += 1
                    else:
                        self._changed.add(number)

    def assign_unowned(self) -> None:
        """Partitions without an owner go to the subscribers with the fewest partitions."""
        for topic in self._topics:
            owners = self._owners[topic]
            unowned = [partition for partition, owner in enumerate(owners) if owner == _NOBODY]
            if not unowned:
                continue
            fewest = self._by_size(topic)
            for partition in unowned:
                size, number = fewest[0]
                heapreplace(fewest, (size + 1, number))
                self._give(owners, partition, number)

    def move_until_balanced(self) -> None:
        """Moves partitions from members with many to members with few."""
        shared = [topic for topic in self._topics if len(self._subscribers[topic]) > 1]
        unchanged = 0
        for _ in range(_ROUNDS_MAX):
            for topic in shared:
                unchanged = 0 if self._balance_topic(topic) else unchanged + 1
                if unchanged >= len(shared):
                    return

    def _balance_topic(self, topic: TopicId) -> bool:
        """Balances the topic's subscribers by moves of its partitions; whether there were any."""
        sizes = [self._sizes[number] for number in self._subscribers[topic]]
        if max(sizes) - min(sizes) <= 1:
            return False
        owners = self._owners[topic]
        owned: dict[int, list[int]] = {}
        for partition, owner in enumerate(owners):
            owned.setdefault(owner, []).append(partition)
        # An entry of a member that gave or received is too old in the other heap. It does no harm: givers only sink to
        # the level below the largest, receivers only rise to the level above the smallest, and there the loop ends.
        fewest = self._by_size(topic)
        most = [(-self._sizes[number], number) for number in owned]
        heapify(most)
        has_moved = False
        while most and -most[0][0] - fewest[0][0] > 1:
            size, giver = most[0]
            if not owned[giver]:
                heappop(most)
                continue
            heapreplace(most, (size + 1, giver))
            few, receiver = fewest[0]
            heapreplace(fewest, (few + 1, receiver))
            self._sizes[giver] -= 1
            self._changed.add(giver)
            self._give(owners, owned[giver].pop(), receiver)
            has_moved = True
        return has_moved

    def _by_size(self, topic: TopicId) -> list[tuple[int, int]]:
        """A heap of (partitions, member) of the topic's subscribers."""
        heap = [(self._sizes[number], number) for number in self._subscribers[topic]]
        heapify(heap)
        return heap

    def _give(self, owners: list[int], partition: int, number: int) -> None:
        owners[partition] = number
        self._sizes[number] += 1
        self._changed.add(number)

    def result(self) -> list[Partitions]:
        """The partitions of each member."""
        changed: dict[int, dict[TopicId, list[int]]] = {number: {} for number in self._changed}
        for topic, owners in self._owners.items():
            for partition, owner in enumerate(owners):
                if owner in changed:
                    changed[owner].setdefault(topic, []).append(partition)
        return [
            {topic: frozenset(partitions) for topic, partitions in changed[number].items()}
            if number in changed
            else member.assignment
            for number, member in enumerate(self._members)
        ]
