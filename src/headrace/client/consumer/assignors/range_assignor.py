"""The range assignor: each member owns consecutive partitions of each topic that it subscribes to.

    topic with n partitions, m subscribers:   n div m partitions each, the first n mod m of them one more

Where members have racks (`client.rack`), and not every partition has replicas in every rack, a first pass gives members
partitions with a replica in their rack, within the same limits. Topics with the same subscribers and the same number of
partitions stay co-partitioned: the pass gives a partition number of all of them to one member, or leaves it. The second
pass gives away the rest. Source: Kafka's `RangeAssignor`, KIP-881.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from headrace.client.consumer.assignors.member import NO_RACKS, Assignment, Member, Racks, in_order, subscribed_topics
from headrace.types import TopicPartition


def assign_range(
    members: Sequence[Member], partition_counts: Mapping[str, int], partition_racks: Racks = NO_RACKS
) -> Assignment:
    """Assigns consecutive partitions of each topic to each member, in their racks as far as the limits permit."""
    ordered = sorted(members, key=in_order)
    topics = [
        _Topic(
            topic,
            partition_counts[topic],
            {member.member_id: member.rack or None for member in ordered if topic in member.topics},
            partition_racks.get(topic, ()),
        )
        for topic in subscribed_topics(members, partition_counts)
    ]
    if any(topic.needs_racks for topic in topics):
        _match_racks(topics)
    assignment: Assignment = {member.member_id: [] for member in members}
    for topic in topics:
        topic.give_rest()
        for member_id, partitions in topic.given.items():
            assignment[member_id] += [TopicPartition(topic.name, partition) for partition in sorted(partitions)]
    return assignment


class _Topic:
    """The assignment of a topic's partitions so far."""

    def __init__(
        self, name: str, count: int, member_racks: Mapping[str, str | None], racks: Sequence[frozenset[str]]
    ) -> None:
        self.name = name
        self.count = count
        self.member_racks = member_racks
        self.given: dict[str, list[int]] = {member_id: [] for member_id in member_racks}
        self._racks = racks
        self._rest = dict.fromkeys(range(count))
        self._share, self._extras = divmod(count, len(member_racks))

    @property
    def needs_racks(self) -> bool:
        """Whether it matters for the racks who gets which partition."""
        everywhere = frozenset[str]().union(*self._racks)
        wanted = {rack for rack in self.member_racks.values() if rack is not None}
        return not wanted.isdisjoint(everywhere) and any(racks != everywhere for racks in self._racks)

    def fits(self, member_id: str, partition: int) -> bool:
        """Whether the member is in a rack of the partition, or in none."""
        rack = self.member_racks[member_id]
        return rack is None or (partition < len(self._racks) and rack in self._racks[partition])

    def room(self, member_id: str) -> int:
        """How many more partitions the member may get."""
        return max(0, self._share + (self._extras > 0) - len(self.given[member_id]))

    def give(self, member_id: str, partitions: Iterable[int]) -> None:
        """Gives the member these partitions."""
        mine = self.given[member_id]
        for partition in partitions:
            mine.append(partition)
            del self._rest[partition]
        if len(mine) > self._share:
            self._extras -= 1

    def give_in_racks(self) -> None:
        """Gives each member partitions of its rack."""
        for member_id in self.given:
            fitting = [partition for partition in self._rest if self.fits(member_id, partition)]
            if fitting[: self.room(member_id)]:
                self.give(member_id, fitting[: self.room(member_id)])

    def give_rest(self) -> None:
        """Gives away what is left."""
        for member_id in self.given:
            if partitions := list(self._rest)[: self.room(member_id)]:
                self.give(member_id, partitions)


def _match_racks(topics: Sequence[_Topic]) -> None:
    alike: dict[tuple[frozenset[tuple[str, str | None]], int], list[_Topic]] = {}
    for topic in topics:
        alike.setdefault((frozenset(topic.member_racks.items()), topic.count), []).append(topic)
    for group in alike.values():
        if len(group) > 1:
            _match_together(group)
        elif group[0].needs_racks:
            group[0].give_in_racks()


def _match_together(topics: Sequence[_Topic]) -> None:
    """Gives a partition number of all the topics to a member that is in a rack of each of them."""
    if not any(topics[0].member_racks.values()):
        return
    left = dict.fromkeys(topics[0].member_racks)
    for partition in range(topics[0].count):
        for member_id in left:
            if all(topic.room(member_id) and topic.fits(member_id, partition) for topic in topics):
                for topic in topics:
                    topic.give(member_id, (partition,))
                if not any(topic.room(member_id) for topic in topics):
                    del left[member_id]
                break
