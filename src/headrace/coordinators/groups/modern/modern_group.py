"""What consumer and share groups have in common: members, subscriptions, epochs, and the target assignment.

    member's subscription ──▶ topics ──metadata hash──▶ group epoch ──assignor──▶ target assignment, and its epoch

The group epoch grows when members, their subscriptions, or the topics that they read change. The target assignment is
computed anew while its epoch is below the group's. Members come to their target one by one, at their heartbeats.

The state changes only by the group's records (`writes`), so that a replay gives the same. The refresh deadline is not
stored. Source: Kafka's `ModernGroup`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from headrace.coordinators.assignors.assignor import NO_PARTITIONS, Partitions, TopicId
from headrace.coordinators.groups.group import Group, GroupOverview
from headrace.coordinators.groups.modern.metadata_hash import metadata_hash
from headrace.coordinators.groups.modern.subscriptions import Subscriptions
from headrace.coordinators.groups.modern.topics import existing
from headrace.coordinators.groups.offsets import GroupOffsets
from headrace.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.coordinators.groups.modern.topics import Topics

REFRESH_INTERVAL_MS = 3_600_000
"""How often the metadata of subscribed topics is compared though nobody reported a change; the value is Apache
Kafka's."""
FIRST_EPOCH = 1
NO_TIMESTAMP = 0


class ModernMember(Protocol):
    """A member, as far as both kinds need it."""

    @property
    def member_id(self) -> str: ...

    @property
    def topics(self) -> frozenset[str]: ...

    @property
    def instance_id(self) -> str | None: ...


M = TypeVar("M", bound=ModernMember)


class Refresh(NamedTuple):
    """When the topics' metadata is compared again. It does not hold if the group epoch is below this one: the write of
    that epoch has failed."""

    at_ms: int = 0
    epoch: int = 0


class ModernGroup(Group, Generic[M]):
    """A group whose members are assigned partitions by the coordinator."""

    def __init__(self, group_id: str, partition: int, offsets: GroupOffsets | None = None) -> None:
        """With `offsets`, it takes the place of another group of this id."""
        self.group_id, self.partition = group_id, partition
        self.offsets = GroupOffsets() if offsets is None else offsets
        self.epoch = FIRST_EPOCH
        self.members: dict[str, M] = {}
        self.subscriptions = Subscriptions()
        self.metadata_hash = 0
        self.target: dict[str, Partitions] = {}
        self.target_epoch = FIRST_EPOCH
        self.target_timestamp_ms = NO_TIMESTAMP
        self.refresh = Refresh()
        self._existing: tuple[frozenset[str], int, dict[TopicId, int]] | None = None

    # As a group of any kind

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    @abstractmethod
    def state_name(self) -> str:
        """Kafka's name of the state."""

    @property
    @abstractmethod
    def protocol_type(self) -> str:
        """The protocol type in ListGroups."""

    def overview(self) -> GroupOverview:
        return GroupOverview(self.group_id, self.protocol_type, self.state_name, self.kind)

    def is_subscribed(self, topic: str) -> bool:
        return topic in self.subscriptions

    def topics_changed(self, names: AbstractSet[str]) -> None:
        if self.subscriptions.has_any(names):
            self.refresh = Refresh()

    # Members

    def put_member(self, member: M) -> M | None:
        """Adds or replaces a member. Returns the one it replaces."""
        known = self.members.get(member.member_id)
        self.members[member.member_id] = member
        self.subscriptions.replace_names(() if known is None else known.topics, member.topics)
        return known

    def remove_member(self, member_id: str) -> M | None:
        """Removes a member. Returns it."""
        known = self.members.pop(member_id, None)
        if known is not None:
            self.subscriptions.replace_names(known.topics, ())
        return known

    def member_fault(self, member_id: str) -> ErrorCode:
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    # Metadata of the subscribed topics

    def existing(self, names: frozenset[str], topics: Topics) -> Mapping[TopicId, int]:
        """The topics of a member that exist, with their partition counts; found once for several steps of one
        heartbeat."""
        known = self._existing
        if known is None or known[0] != names or known[1] != topics.version:
            found = {each.topic_id: len(each.racks) for each in existing(names, topics)}
            known = self._existing = (names, topics.version, found)
        return known[2]

    def is_refresh_due(self, now_ms: int) -> bool:
        """Whether the metadata of the subscribed topics is to be compared with the stored hash."""
        return now_ms >= self.refresh.at_ms or self.epoch < self.refresh.epoch

    def refreshed(self, epoch: int, now_ms: int) -> None:
        """Notes that the group epoch is, or with the next write becomes, that of the topics as they are."""
        self.refresh = Refresh(now_ms + REFRESH_INTERVAL_MS, epoch)


def hash_of(subscribed: Collection[str], topics: Topics) -> int:
    """The metadata hash of these topics; those that do not exist do not count."""
    return metadata_hash(existing(subscribed, topics))


def is_interval_over(timestamp_ms: int, interval_ms: int, now_ms: int) -> bool:
    """Whether a target assignment may follow one of that time. An interval of 0 helps after the clock was set back."""
    return timestamp_ms == NO_TIMESTAMP or interval_ms == 0 or now_ms >= timestamp_ms + interval_ms


def changed_targets(old: Mapping[str, Partitions], new: Mapping[str, Partitions]) -> dict[str, Partitions]:
    """The members whose target assignment is new or differs. Members that have none left are not among them."""
    changed = {}
    for member_id, partitions in new.items():
        known = old.get(member_id)
        if known is None or (partitions is not known and partitions != known):
            changed[member_id] = partitions
    return changed


def target_of(
    group: ModernGroup[M], member_id: str, instance_id: str | None, static_member_id: str | None
) -> Partitions:
    """The present target assignment of a member, or of the static member whose place it takes."""
    if instance_id is not None and static_member_id is not None:
        member_id = static_member_id
    return group.target.get(member_id, NO_PARTITIONS)
