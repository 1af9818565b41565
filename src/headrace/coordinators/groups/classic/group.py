"""A classic group: its state, its members, and their open requests.

    Empty ──join──▶ PreparingRebalance ──all joined, or timed out───▶ CompletingRebalance ──leader's sync──▶ Stable
      ▲                  │    ▲                                           │                                   │
      └──no member left──┘    └──────join, leave, lost member─────────────┴──join, leave, lost member─────────┘
                                                        Dead: deleted, or moved to another broker

Invariants: every id in `joining`, `syncing`, `pending_sync` and `static_members` is in `members`; ids in `pending` are
not; `leader_id` is a member's id unless there are no members; a generation begins only in `next_generation`.
The functions that change a group's state are in `rebalance`, `joining`, `syncing` and `leaving`.
Source: Kafka's `GroupMetadata`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from headrace.coordinators.groups.group import Committer, Group, GroupKind, GroupOverview, UsedSince
from headrace.coordinators.groups.offsets import CommittedOffset, GroupOffsets
from headrace.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.coordinators.groups.classic.members import Member, Protocols
    from headrace.coordinators.groups.group_event import GroupEvent
    from headrace.coordinators.groups.replies import Reply
    from headrace.types import TopicPartition

CONSUMER_PROTOCOL = "consumer"
NO_GENERATION = -1


class GroupState(Enum):
    """The state of a group. The values are Kafka's names, which ListGroups returns."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


PREVIOUS_STATES: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING}),
    GroupState.PREPARING: frozenset({GroupState.EMPTY, GroupState.COMPLETING, GroupState.STABLE}),
    GroupState.COMPLETING: frozenset({GroupState.PREPARING}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING}),
    GroupState.DEAD: frozenset(GroupState),
}


class InitialDelay(NamedTuple):
    """The initial rebalance delay of an empty group: how long it waits now, and what remains if a member joins."""

    delay_ms: int
    remaining_ms: int


@dataclass(slots=True)
class ClassicGroup(Group):
    """A group's whole state. Only the functions of this package change it."""

    kind: ClassVar[GroupKind] = GroupKind.CLASSIC

    group_id: str
    partition: int  # of __consumer_offsets
    state_since_ms: int | None
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)  # instance id -> member id
    pending: set[str] = field(default_factory=set)  # member ids that KIP-394 assigned but that have not joined yet
    joining: dict[str, Reply] = field(default_factory=dict)  # member id -> its open JoinGroup
    syncing: dict[str, Reply] = field(default_factory=dict)  # member id -> its open SyncGroup
    pending_sync: set[str] = field(default_factory=set)  # joined this generation, SyncGroup not seen yet
    initial_delay: InitialDelay | None = None
    has_new_member: bool = False
    subscribed_topics: frozenset[str] | None = None  # None: unknown
    offsets: GroupOffsets = field(default_factory=GroupOffsets)
    _support: Counter[str] = field(default_factory=Counter)  # protocol name -> members that support it

    # As a group of any kind

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    def overview(self) -> GroupOverview:
        return GroupOverview(self.group_id, self.protocol_type or "", self.state.value, self.kind)

    def is_subscribed(self, topic: str) -> bool:
        """Whether a member may read the topic: true if a subscription of a group with members cannot be read."""
        return not self.is_empty and (self.subscribed_topics is None or topic in self.subscribed_topics)

    def commit_fault(self, committer: Committer, partitions: Collection[TopicPartition]) -> ErrorCode:
        """A simple consumer, without member id and generation, must not commit to a group with members; it may in a
        transaction, because clients before TxnOffsetCommit 3 say nothing else."""
        if committer.epoch < 0 and self.is_empty:
            return ErrorCode.NONE
        if committer.is_nameless:
            return ErrorCode.NONE if committer.is_transactional else ErrorCode.UNKNOWN_MEMBER_ID
        fault = self.member_fault(committer.member_id, committer.instance_id)
        if fault is not ErrorCode.NONE:
            return fault
        if committer.epoch != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if committer.is_transactional:
            return ErrorCode.NONE
        # Commits are allowed in PreparingRebalance: members then commit the partitions that they are about to give up.
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is GroupState.COMPLETING else ErrorCode.NONE

    def committing(self, committer: Committer, group_event: GroupEvent) -> None:
        """Restarts the member's session. A transactional commit keeps no session alive, as in Apache Kafka."""
        if not self.is_empty and not committer.is_transactional:
            group_event.touch(self, self.members[committer.member_id])

    def delete_offsets_fault(self) -> ErrorCode:
        is_permitted = self.is_empty or self.protocol_type == CONSUMER_PROTOCOL
        return ErrorCode.NONE if is_permitted else ErrorCode.NON_EMPTY_GROUP

    def unused_since(self) -> UsedSince | None:
        """Counts from the commit; in an empty group that had members, from when the last one left."""
        if self.protocol_type is not None and self.is_empty:
            return self._empty_since
        is_read = self.protocol_type == CONSUMER_PROTOCOL and self.state is GroupState.STABLE
        if self.protocol_type is None or (is_read and self.subscribed_topics is not None):
            return _committed_at
        return None

    def _empty_since(self, offset: CommittedOffset) -> int:
        return offset.commit_timestamp_ms if self.state_since_ms is None else self.state_since_ms

    def member_fault(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """NONE if these ids are those of a member; else UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
        if instance_id is not None:
            current = self.static_members.get(instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    # Members and generations

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def has_all_joined(self) -> bool:
        return len(self.members) == len(self.joining) and not self.pending

    @property
    def can_rebalance(self) -> bool:
        return self.state in PREVIOUS_STATES[GroupState.PREPARING]

    def move_to(self, state: GroupState, now_ms: int) -> None:
        """Changes the state, along an arrow of the diagram only."""
        assert self.state in PREVIOUS_STATES[state], f"{self.group_id}: {self.state} cannot become {state}"
        self.state = state
        self.state_since_ms = now_ms

    def add(self, member: Member, protocol_type: str) -> None:
        """Adds a member whose protocols the group supports (`supports`)."""
        if not self.members:
            self.protocol_type = protocol_type
        self.members[member.member_id] = member
        self._support.update(member.protocol_names)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.pending.discard(member.member_id)

    def remove(self, member_id: str) -> tuple[Reply | None, Reply | None]:
        """Removes a member or pending member. Returns its open JoinGroup and SyncGroup, which must be answered."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._withdraw_support(member)
            if member.instance_id is not None and self.static_members.get(member.instance_id) == member_id:
                del self.static_members[member.instance_id]  # a record may give several members one instance id
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending.discard(member_id)
        self.pending_sync.discard(member_id)
        return self.joining.pop(member_id, None), self.syncing.pop(member_id, None)

    def update(self, member: Member) -> None:
        """Replaces a member's values under the same member id."""
        self._withdraw_support(self.members[member.member_id])
        self._support.update(member.protocol_names)
        self.members[member.member_id] = member

    def rename(self, old_id: str, new_id: str) -> tuple[Reply | None, Reply | None]:
        """Gives a static member a new member id. Returns the old id's open requests, which must be fenced."""
        member = self.members.pop(old_id)
        assert member.instance_id is not None
        self.members[new_id] = member._replace(member_id=new_id)
        self.static_members[member.instance_id] = new_id
        if self.leader_id == old_id:
            self.leader_id = new_id
        if old_id in self.pending_sync:
            self.pending_sync.remove(old_id)
            self.pending_sync.add(new_id)
        return self.joining.pop(old_id, None), self.syncing.pop(old_id, None)

    def elect_joined_leader(self) -> bool:
        """Replaces a leader that has not joined by the first member that has. Whether there is a joined leader."""
        if self.leader_id not in self.joining:
            joined = next((each for each in self.members if each in self.joining), None)
            if joined is None:
                return False
            self.leader_id = joined
        return True

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether the group and a member with these protocols have at least one protocol in common."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type and protocols)
        member_count = len(self.members)
        return self.protocol_type == protocol_type and any(self._support[name] == member_count for name, _ in protocols)

    def select_protocol(self) -> str | None:
        """The protocol that most members prefer, among those that all support; in a tie, the one voted for first. None
        if they have none in common: joining members do, but a record may say otherwise."""
        member_count = len(self.members)
        candidates = {name for name, count in self._support.items() if count == member_count}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def choose_protocol(self, name: str) -> None:
        """Sets the protocol of a group that was not formed by JoinGroup requests."""
        self.protocol_name = name
        self.subscribed_topics = self._topics()

    def next_generation(self, now_ms: int) -> None:
        """Starts the next generation with the current members; without members the group becomes Empty."""
        self.generation += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.subscribed_topics = self._topics()
        self.pending_sync.clear()
        self.move_to(GroupState.COMPLETING if self.members else GroupState.EMPTY, now_ms)

    def _withdraw_support(self, member: Member) -> None:
        for name in member.protocol_names:
            self._support[name] -= 1
            if not self._support[name]:
                del self._support[name]  # clients choose the names, so unused ones must not accumulate

    @classmethod
    def loaded(
        cls,
        group_id: str,
        partition: int,
        *,
        generation: int,
        protocol_type: str | None,
        protocol_name: str | None,
        leader_id: str | None,
        state_since_ms: int | None,
        members: Iterable[Member],
    ) -> ClassicGroup:
        """A group loaded from `__consumer_offsets`: Stable if it has members, else Empty."""
        group = cls(group_id, partition, state_since_ms, generation=generation)
        group.leader_id = leader_id
        for member in members:
            group.add(member, protocol_type or "")
        group.state = GroupState.STABLE if group.members else GroupState.EMPTY
        group.protocol_type = protocol_type or None
        group.protocol_name = protocol_name
        group.subscribed_topics = group._topics()
        return group

    def _topics(self) -> frozenset[str] | None:
        """All topics that the members of a consumer group subscribe to; None if a subscription cannot be read."""
        if self.protocol_type != CONSUMER_PROTOCOL:
            return None
        protocol = self.protocol_name
        if not self.members or protocol is None:
            return frozenset() if not self.members else None
        try:
            return frozenset(
                topic for member in self.members.values() for topic in _subscription(member.metadata(protocol))
            )
        except KafkaError:
            return None  # a client's own format under Kafka's protocol type


def _committed_at(offset: CommittedOffset) -> int:
    return offset.commit_timestamp_ms


def _subscription(metadata: bytes) -> list[str]:
    """The topics of a consumer's subscription. Every later version starts like version 0."""
    from headrace.protocol import messages as m

    subscription, _ = m.ConsumerProtocolSubscription.decode(0, metadata, 2)
    return subscription.topics
