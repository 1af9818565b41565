"""A consumer group: its members, what they own, and what they are to own.

    Empty          no members
    Assigning      the group epoch is above the target assignment's: a new one is to be computed
    Reconciling    members are on the way to their target assignment
    Stable         every member owns its target assignment

Invariant: a partition has one owner, which is the member that owns it or has not given it up yet.
Source: Kafka's `ConsumerGroup`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from headrace.coordinators.assignors.assignor import TopicId
from headrace.coordinators.groups.classic.group import CONSUMER_PROTOCOL
from headrace.coordinators.groups.consumer.members import ConsumerMember
from headrace.coordinators.groups.group import Committer, GroupKind, UsedSince
from headrace.coordinators.groups.modern.modern_group import ModernGroup
from headrace.coordinators.groups.modern.writes import Writes
from headrace.coordinators.groups.offsets import CommittedOffset, GroupOffsets
from headrace.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.coordinators.groups.classic.leaving import GivenUp
    from headrace.coordinators.groups.consumer.regular_expressions import ResolvedRegularExpression
    from headrace.coordinators.groups.group_event import GroupEvent
    from headrace.coordinators.groups.modern.topics import Topics
    from headrace.types import TopicPartition

MEMBER_EPOCHS_FROM = 9
"""The version of OffsetCommit that members of the consumer protocol must use."""


NO_OWNERS: Mapping[int, str] = {}


class ConsumerGroup(ModernGroup[ConsumerMember]):
    """A group's whole state. Only its records change it."""

    kind: ClassVar[GroupKind] = GroupKind.CONSUMER

    def __init__(self, group_id: str, partition: int, offsets: GroupOffsets | None = None) -> None:
        super().__init__(group_id, partition, offsets)
        self.static_members: dict[str, str] = {}  # instance id -> member id
        self.resolved: dict[str, ResolvedRegularExpression] = {}
        self.has_partition_metadata = False
        """Whether a record of Apache Kafka before 4.1 is there, which a tombstone removes."""
        self.classic_members = 0
        self.writes: Writes[ConsumerGroup] = Writes(self)
        self.topics: Topics | None = None
        self.restart: Callable[[ConsumerGroup, GroupEvent], None] | None = None
        """Sets the deadlines of all members anew after a write that has failed, or ends the group."""
        self.replaced: GivenUp | None = None
        """The classic group whose place it took, for when its first write fails."""
        self.is_resolving = False
        """Whether its regular expressions are being resolved."""
        self.tried_to_resolve_at_ms: int | None = None
        """When its regular expressions were last given to be resolved; None once one of them is no longer used."""
        self.is_assigning = False
        """Whether its target assignment is being computed off the loop."""
        self._owners: dict[TopicId, dict[int, str]] = {}
        self._assignors: Counter[str] = Counter()
        self._regexes: Counter[str] = Counter()
        self._classic_protocols: Counter[str] = Counter()

    # As a group of any kind

    @property
    def protocol_type(self) -> str:
        return CONSUMER_PROTOCOL

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        is_stable = all(each.is_reconciled(self.target_epoch) for each in self.members.values())
        return "Stable" if is_stable else "Reconciling"

    def commit_fault(self, committer: Committer, partitions: Collection[TopicPartition]) -> ErrorCode:
        """A member's epoch is current, or not older than the one in which it was assigned the partition (KIP-1251)."""
        if committer.epoch < 0 and not self.members:
            return ErrorCode.NONE
        if committer.is_transactional and committer.is_nameless:
            return ErrorCode.NONE
        member = self.members.get(committer.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not committer.is_transactional and member.classic is None and committer.api_version < MEMBER_EPOCHS_FROM:
            return ErrorCode.UNSUPPORTED_VERSION
        if committer.epoch == member.epoch:
            return ErrorCode.NONE
        is_permitted = committer.epoch < member.epoch and all(
            (epoch := self._assignment_epoch(member, each)) is not None and epoch <= committer.epoch
            for each in partitions
        )
        return ErrorCode.NONE if is_permitted else _stale(member)

    def _assignment_epoch(self, member: ConsumerMember, partition: TopicPartition) -> int | None:
        topic = None if self.topics is None else self.topics.by_name(partition.topic)
        return None if topic is None else member.assignment_epoch(topic.topic_id, partition.partition)

    def fetch_fault(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        if member_id is None and member_epoch < 0:
            return ErrorCode.NONE
        member = self.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member_epoch == member.epoch else _stale(member)

    def unused_since(self) -> UsedSince:
        return _committed_at

    def taken_back(self, group_event: GroupEvent) -> None:
        if self.restart is not None:
            self.restart(self, group_event)

    # Members

    def put_member(self, member: ConsumerMember) -> ConsumerMember | None:
        known = super().put_member(member)
        self._count(known, member)
        if known is not None:
            self._disown(known, member)
            if known.instance_id != member.instance_id:
                self._forget_instance(known)
        self._own(member, known)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        return known

    def remove_member(self, member_id: str) -> ConsumerMember | None:
        known = super().remove_member(member_id)
        if known is not None:
            self._count(known, None)
            self._disown(known, None)
            self._forget_instance(known)
        return known

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """The member of an instance id."""
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def _forget_instance(self, member: ConsumerMember) -> None:
        instance_id = member.instance_id
        if instance_id is not None and self.static_members.get(instance_id) == member.member_id:
            del self.static_members[instance_id]

    def _count(self, old: ConsumerMember | None, new: ConsumerMember | None) -> None:
        """Counts assignors, regular expressions and classic protocols of members."""
        for member, step in ((new, 1), (old, -1)):
            if member is None:
                continue
            if member.assignor is not None:
                _step(self._assignors, member.assignor, step)
            if member.regex:
                _step(self._regexes, member.regex, step)
            if member.classic is not None:
                self.classic_members += step
                for name, _ in member.classic.protocols:
                    _step(self._classic_protocols, name, step)

    # Ownership

    def owner(self, topic_id: TopicId, partition: int) -> str | None:
        """The member that owns a partition, or has not given it up."""
        return self.owners(topic_id).get(partition)

    def owners(self, topic_id: TopicId) -> Mapping[int, str]:
        """The member of each partition of a topic that is owned, or not given up yet."""
        return self._owners.get(topic_id, NO_OWNERS)

    def _own(self, member: ConsumerMember, before: ConsumerMember | None) -> None:
        member_id, present = member.member_id, self._owners
        for topic_id, partitions in _changed(member, before):
            owners = present.get(topic_id)
            if owners is None:
                present[topic_id] = dict.fromkeys(partitions, member_id)
            else:
                owners.update(dict.fromkeys(partitions, member_id))

    def _disown(self, member: ConsumerMember, after: ConsumerMember | None) -> None:
        member_id, present = member.member_id, self._owners
        for topic_id, partitions in _changed(member, after):
            owners = present.get(topic_id)
            if owners is None:
                continue
            for partition in partitions:
                if owners.get(partition) == member_id:
                    del owners[partition]
            if not owners:
                del present[topic_id]

    def waits_for_owners(self, member: ConsumerMember) -> bool:
        """Whether another member has not given up a partition that is to be this member's."""
        return any(
            partition not in member.assigned.get(topic_id, {}) and self.owner(topic_id, partition) is not None
            for topic_id, partitions in self.target.get(member.member_id, {}).items()
            for partition in partitions
        )

    # Subscriptions

    def preferred_assignor(self, names: Sequence[str]) -> str:
        """The assignor that most members name; in a tie, and if none does, the first of `names`."""
        return max((each for each in names if self._assignors[each]), key=self._assignors.__getitem__, default=names[0])

    @property
    def regexes(self) -> Collection[str]:
        """The regular expressions to which members subscribe."""
        return self._regexes.keys()

    def regex_count(self, regex: str) -> int:
        """How many members subscribe to a regular expression."""
        return self._regexes[regex]

    def put_resolved(self, regex: str, resolved: ResolvedRegularExpression | None) -> ResolvedRegularExpression | None:
        """Sets or removes the topics that a regular expression matches. Returns what it replaces."""
        known = self.resolved.pop(regex, None)
        if resolved is not None:
            self.resolved[regex] = resolved
        self.subscriptions.replace_matches(
            () if known is None else known.topics, () if resolved is None else resolved.topics
        )
        return known

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """The names of all topics that a member reads. A regular expression that is not resolved matches none."""
        resolved = self.resolved.get(member.regex) if member.regex else None
        if resolved is None:
            return member.topics
        return member.topics | resolved.topics if member.topics else resolved.topics

    # Members of the classic protocol

    def supports_classic(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether all members of the classic protocol support one of these assignors."""
        return protocol_type == CONSUMER_PROTOCOL and any(
            self._classic_protocols[name] == self.classic_members for name in names
        )


def _changed(member: ConsumerMember, other: ConsumerMember | None) -> Iterator[tuple[TopicId, Mapping[int, int]]]:
    """The topics that a member owns or gives up, but for those of which the other has the same mapping. A step of its
    reconciliation changes few of many topics."""
    if other is None:
        yield from member.assigned.items()
        yield from member.revoking.items()
        return
    assigned, revoking = other.assigned, other.revoking
    for owned in (member.assigned, member.revoking):
        if owned is not assigned and owned is not revoking:
            for topic_id, partitions in owned.items():
                if assigned.get(topic_id) is not partitions and revoking.get(topic_id) is not partitions:
                    yield topic_id, partitions


def _step(counts: Counter[str], name: str, step: int) -> None:
    counts[name] += step
    if not counts[name]:
        del counts[name]


def _stale(member: ConsumerMember) -> ErrorCode:
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION


def _committed_at(offset: CommittedOffset) -> int:
    return offset.commit_timestamp_ms
