"""A group, as every kind of group is: what decides about its offsets, its listing and its deletion.

    kind        members                                                       package
    classic     agree by JoinGroup and SyncGroup, one of them assigns         classic
    consumer    are assigned partitions by the coordinator (KIP-848)          consumer
    share       are assigned partitions that they share (KIP-932)             share
    streams     are assigned tasks of Kafka Streams (KIP-1071)                streams

A group id has one group at a time. A kind may replace the empty group of another kind; the offsets stay.
Source: Kafka's `Group`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

from headrace.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.coordinators.groups.group_event import GroupEvent
    from headrace.coordinators.groups.offsets import CommittedOffset, GroupOffsets
    from headrace.types import TopicPartition

NO_MEMBER_ID = ""

UsedSince: TypeAlias = "Callable[[CommittedOffset], int]"
"""The time in ms since which an offset has been unused, from which its retention counts."""


class GroupKind(Enum):
    """The kind of a group. The values are Kafka's names, which ListGroups returns."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


class Committer(NamedTuple):
    """The sender of an OffsetCommit or TxnOffsetCommit."""

    member_id: str
    instance_id: str | None
    epoch: int  # the generation of a classic group, else the member epoch; -1 without
    api_version: int
    is_transactional: bool = False

    @property
    def is_nameless(self) -> bool:
        """Whether it says nothing about itself."""
        return self.epoch < 0 and self.member_id == NO_MEMBER_ID and self.instance_id is None


class GroupOverview(NamedTuple):
    """One group of ListGroups."""

    group_id: str
    protocol_type: str
    state: str  # Kafka's name of the state, such as Stable
    kind: GroupKind


class GroupPosition(NamedTuple):
    """The committed offset of a group in one partition."""

    group_id: str
    partition: TopicPartition
    offset: int


class Group(ABC):
    """A group's whole state. Only the functions of its kind's package change it."""

    __slots__ = ()

    kind: ClassVar[GroupKind]
    group_id: str
    partition: int  # of __consumer_offsets
    offsets: GroupOffsets
    members: Mapping[str, Any]
    """The members, by their ids. Each is a named tuple."""

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether it has no members, so that it may be deleted, and is when its last offset expires."""

    @abstractmethod
    def overview(self) -> GroupOverview:
        """The group in ListGroups."""

    @abstractmethod
    def is_subscribed(self, topic: str) -> bool:
        """Whether members read the topic: its offsets do not expire, and OffsetDelete does not delete them."""

    @abstractmethod
    def commit_fault(self, committer: Committer, partitions: Collection[TopicPartition]) -> ErrorCode:
        """NONE if this client may commit offsets of these partitions."""

    def committing(self, committer: Committer, group_event: GroupEvent) -> None:  # noqa: B027 - most kinds do nothing
        """Notes that a client commits offsets."""

    def topics_changed(self, names: AbstractSet[str]) -> None:  # noqa: B027 - a classic group's leader watches its topics
        """Notes that these topics were created, deleted, or have other partitions, so that they are assigned anew."""

    def fetch_fault(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """NONE if this client may fetch offsets. Clients before OffsetFetch 9, and tools, give no member id."""
        return ErrorCode.NONE

    def delete_offsets_fault(self) -> ErrorCode:
        """NONE if OffsetDelete may delete offsets of topics that no member reads."""
        return ErrorCode.NONE

    def delete_fault(self) -> ErrorCode:
        """NONE if DeleteGroups may delete the group."""
        return ErrorCode.NONE if self.is_empty else ErrorCode.NON_EMPTY_GROUP

    @property
    def can_expire(self) -> bool:
        """Whether the group is deleted when it is empty and has no offsets left."""
        return True

    @abstractmethod
    def unused_since(self) -> UsedSince | None:
        """How the time of an offset's retention counts now; None if offsets do not expire."""
