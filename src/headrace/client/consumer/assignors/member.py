"""What an assignor gets and gives: members with what they own, racks, and the partitions of each member."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from headrace.types import TopicPartition

NO_GENERATION = -1


class Member(NamedTuple):
    """A member of the group: its subscription, and what it says that it owns since `generation`."""

    member_id: str
    topics: frozenset[str]
    group_instance_id: str | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    rack: str | None = None

    @property
    def order(self) -> tuple[bool, str]:
        """Static members first, by their ids; then the others by theirs. Source: Kafka's `MemberInfo`."""
        if self.group_instance_id is not None:
            return (False, self.group_instance_id)
        return (True, self.member_id)


Assignment = dict[str, list[TopicPartition]]
"""Member id to its partitions, topics ascending, partitions ascending within a topic."""

Racks = Mapping[str, Sequence[frozenset[str]]]
"""Topic to the racks of the replicas of each of its partitions."""

NO_RACKS: Racks = {}


class Layout(NamedTuple):
    """The number of partitions of each topic that exists, and the racks of their replicas."""

    counts: Mapping[str, int]
    racks: Racks = NO_RACKS

    @classmethod
    def of_nothing(cls, _: object) -> Layout:
        """A layout without topics."""
        return cls({})


class Assignor(Protocol):
    """(members, partition count of each known topic, racks) -> who gets what; every member is in it."""

    def __call__(
        self, members: Sequence[Member], partition_counts: Mapping[str, int], partition_racks: Racks = NO_RACKS
    ) -> Assignment:
        """The assignment."""


def subscribed_topics(members: Iterable[Member], partition_counts: Mapping[str, int]) -> list[str]:
    """The topics that exist and that a member subscribes to, ascending."""
    subscribed = frozenset[str]().union(*(member.topics for member in members))
    return sorted(topic for topic in subscribed if partition_counts.get(topic, 0) > 0)


def in_order(member: Member) -> tuple[bool, str]:
    """A sort key: `Member.order`."""
    return member.order
