"""Balances partitions among members that subscribe to different topics, for the sticky assignors.

Each move is from a member to one that has at least two partitions fewer, so the sum of the squares falls and the moves
come to an end. What a member did not own before moves first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heapreplace

from headrace.client.consumer.assignors.member import Member
from headrace.types import TopicPartition


class Balance:
    """The owners of partitions so far."""

    def __init__(
        self,
        members: Sequence[Member],
        partition_counts: Mapping[str, int],
        kept: Mapping[str, Sequence[TopicPartition]],
    ) -> None:
        self._kept = {partition: member_id for member_id, owned in kept.items() for partition in owned}
        self._owner = dict(self._kept)
        self._sizes = {member.member_id: len(kept[member.member_id]) for member in members}
        self._counts = partition_counts
        subscribers: dict[str, list[str]] = {topic: [] for topic in partition_counts}
        for member in sorted(members):
            for topic in member.topics & subscribers.keys():
                subscribers[topic].append(member.member_id)
        self._subscribers = dict(sorted(subscribers.items(), key=lambda entry: (len(entry[1]), entry[0])))

    def owned(self) -> dict[str, list[TopicPartition]]:
        """The partitions of each member."""
        found: dict[str, list[TopicPartition]] = {member_id: [] for member_id in self._sizes}
        for partition, member_id in self._owner.items():
            found[member_id].append(partition)
        return found

    def give_unowned(self) -> None:
        """Topics with the fewest subscribers first: to the subscriber with the fewest partitions."""
        for topic, subscribers in self._subscribers.items():
            fewest = self._heap(subscribers)
            for partition in self._partitions(topic):
                if partition not in self._owner:
                    self._give(partition, fewest)

    def move_until_balanced(self) -> None:
        """Moves partitions, topic by topic, until none can move to a member that has two fewer than its owner."""
        shared = [topic for topic, subscribers in self._subscribers.items() if len(subscribers) > 1]
        while sum(map(self._level, shared)):
            pass

    def _level(self, topic: str) -> bool:
        """Levels the topic's subscribers with its partitions; whether any moved."""
        owned: dict[str, list[TopicPartition]] = {}
        for partition in self._partitions(topic):
            owned.setdefault(self._owner[partition], []).append(partition)
        for member_id, partitions in owned.items():
            partitions.sort(key=lambda each: self._kept.get(each) != member_id)  # used at once
        most = [(-self._sizes[member_id], member_id) for member_id in owned]
        heapify(most)
        fewest = self._heap(self._subscribers[topic])
        has_moved = False
        # An entry in the other heap grows old when a member gives or gets. It does no harm: givers end one above the
        # smallest at least, and those that get end one below the largest at most.
        while most and -most[0][0] - fewest[0][0] > 1:
            size, giver = most[0]
            if not owned[giver]:
                heappop(most)
                continue
            heapreplace(most, (size + 1, giver))
            self._sizes[giver] -= 1
            self._give(owned[giver].pop(), fewest)
            has_moved = True
        return has_moved

    def _give(self, partition: TopicPartition, fewest: list[tuple[int, str]]) -> None:
        size, member_id = fewest[0]
        heapreplace(fewest, (size + 1, member_id))
        self._owner[partition] = member_id
        self._sizes[member_id] += 1

    def _partitions(self, topic: str) -> list[TopicPartition]:
        return [TopicPartition(topic, partition) for partition in range(self._counts[topic])]

    def _heap(self, member_ids: Sequence[str]) -> list[tuple[int, str]]:
        heap = [(self._sizes[member_id], member_id) for member_id in member_ids]
        heapify(heap)
        return heap
