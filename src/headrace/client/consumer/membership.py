"""The state machine of one member of a classic consumer group. Does no IO, and reads no clock.

    UNJOINED ──JoinGroup──▶ JOINING ──answer──▶ SYNCING ──answer──▶ STABLE
        ▲                      │                   │                  │  heartbeat: REBALANCE_IN_PROGRESS,
        └──────────────────────┴───────────────────┴──────────────────┘  ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID

The first JoinGroup is answered with MEMBER_ID_REQUIRED and an id to come back with (KIP-394). The member that the
coordinator names leader gets all subscriptions, computes the assignment and sends it in its SyncGroup; the others send
an empty one. `owned` are the partitions that the member holds at the moment:

    eager         gives them all up before it joins
    cooperative   joins with them; gives up what its assignment lacks, and joins again so that others get it (KIP-429)

A group is cooperative if each of a member's assignors is, as in Java's clients. A member without a generation was
out of the group: what it holds is lost, not given up. Source: `ConsumerCoordinator`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

from headrace.client.consumer.assignors.by_name import ASSIGNORS
from headrace.client.consumer.assignors.member import NO_GENERATION, NO_RACKS, Member, Racks
from headrace.client.consumer.assignors.names import COOPERATIVE_STICKY
from headrace.client.consumer.consumer_protocol import (
    PROTOCOL_TYPE,
    Subscription,
    decode_assignment,
    decode_member,
    encode_assignment,
    encode_subscription,
)
from headrace.client.consumer.group_errors import REJOIN
from headrace.client.core.failures import error_for
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m
from headrace.types import TopicPartition

_LEAVE_BY_LIST = 3
_MOVED_ON = (
    "the group is rebalancing, or has done so without this member: poll, which joins it, before you commit again"
)


class ClassicMemberState(Enum):
    """The state of a member in the diagram above."""

    UNJOINED = "unjoined"
    JOINING = "joining"
    SYNCING = "syncing"
    STABLE = "stable"


class Membership:
    """The member's state. The caller sends its requests and passes it the answers."""

    def __init__(
        self,
        group_id: str,
        assignors: Sequence[str],
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        group_instance_id: str | None = None,
        rack: str | None = None,
    ) -> None:
        self.group_id = group_id
        self.group_instance_id = group_instance_id
        self.member_id: str = ""
        self.generation: int = NO_GENERATION
        self.state: ClassicMemberState = ClassicMemberState.UNJOINED
        self.owned: frozenset[TopicPartition] = frozenset()
        self.joined_topics: set[str] = set()
        self.is_cooperative: bool = set(assignors) == {COOPERATIVE_STICKY}
        self._previous: Sequence[TopicPartition] = ()
        self._assigned_in = NO_GENERATION
        self._assignors = assignors
        self._session_timeout_ms = session_timeout_ms
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._rack = rack
        self._protocol = ""
        self._members: list[Member] = []

    # -- joining

    def to_give_up(self, topics: Iterable[str]) -> frozenset[TopicPartition]:
        """What of `owned` goes before the member joins for `topics`: revoked while `is_member`, else lost."""
        if self.state is not ClassicMemberState.UNJOINED:
            return frozenset()
        if self.is_cooperative and self.is_member:
            wanted = set(topics)
            return frozenset(partition for partition in self.owned if partition.topic not in wanted)
        return self.owned

    def given_up(self, partitions: Iterable[TopicPartition]) -> None:
        """The member holds these partitions no more."""
        self.owned -= frozenset(partitions)

    def join_request(self, topics: Sequence[str]) -> m.JoinGroupRequest:
        """UNJOINED -> JOINING."""
        self.state = ClassicMemberState.JOINING
        self.joined_topics = set(topics)
        subscription = Subscription(topics, sorted(self.owned), self._previous, self._assigned_in, self._rack)
        asked = m.JoinGroupRequest.JoinGroupRequestProtocol
        return m.JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[asked(name=name, metadata=encode_subscription(subscription, name)) for name in self._assignors],
        )

    def joined(self, answer: m.JoinGroupResponse) -> bool:
        """JOINING -> SYNCING; False if the coordinator requires the request again, with a member id."""
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self.state = ClassicMemberState.UNJOINED
            return False
        self._raise_for(answer.error_code)
        self.member_id = answer.member_id
        self.generation = answer.generation_id
        self._protocol = answer.protocol_name or ""
        leads = answer.leader == self.member_id and not answer.skip_assignment
        self._members = [decode_member(member, self._protocol) for member in answer.members] if leads else []
        self.state = ClassicMemberState.SYNCING
        return True

    @property
    def led_topics(self) -> set[str]:
        """Topics whose partition counts `sync_request` needs: all subscribed topics for the leader, else none."""
        return set().union(*(member.topics for member in self._members))

    def sync_request(
        self, partition_counts: Mapping[str, int], partition_racks: Racks = NO_RACKS
    ) -> m.SyncGroupRequest:
        """The SyncGroup request: with the assignment from the leader, empty from the others."""
        assignments = []
        if self._members:
            shares = ASSIGNORS[self._protocol](self._members, partition_counts, partition_racks)
            assignments = [
                m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=encode_assignment(share))
                for member_id, share in shares.items()
            ]
        return m.SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self._protocol,
            assignments=assignments,
        )

    def synced(self, answer: m.SyncGroupResponse) -> list[TopicPartition]:
        """SYNCING -> STABLE; returns this member's partitions. UNJOINED if others wait for what it must give up."""
        self._raise_for(answer.error_code)
        assignment = decode_assignment(answer.assignment)
        must_give_up = not self.owned.issubset(assignment)
        self.owned = frozenset(assignment)
        self._previous, self._assigned_in = assignment, self.generation
        self.state = ClassicMemberState.UNJOINED if must_give_up else ClassicMemberState.STABLE
        return assignment

    # -- being a member

    def heartbeat_request(self) -> m.HeartbeatRequest:
        """The request that a STABLE member sends a few times per session timeout."""
        return m.HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
        )

    def leave_request(self, version: int) -> m.LeaveGroupRequest:
        """The request to leave at once instead of by timeout; a static member does not send it."""
        if version < _LEAVE_BY_LIST:
            return m.LeaveGroupRequest(group_id=self.group_id, member_id=self.member_id)
        identity = m.LeaveGroupRequest.MemberIdentity(member_id=self.member_id, reason="the consumer is being closed")
        return m.LeaveGroupRequest(group_id=self.group_id, members=[identity])

    @property
    def is_member(self) -> bool:
        """Whether this member belongs to a generation of the group, as far as it knows."""
        return self.generation != NO_GENERATION

    def rejoin(self) -> None:
        """STABLE -> UNJOINED, because the subscription of this member has changed."""
        if self.state is ClassicMemberState.STABLE:
            self.state = ClassicMemberState.UNJOINED

    def left(self) -> None:
        """-> UNJOINED, without a member id."""
        self._unjoin(ErrorCode.UNKNOWN_MEMBER_ID)

    def heard(self, code: int) -> None:
        """Apply the error code of a heartbeat or commit: STABLE -> UNJOINED if it requires a rejoin."""
        if code in REJOIN and self.state is ClassicMemberState.STABLE:
            self._unjoin(code)

    def error(self, code: int, what: str) -> KafkaError:
        """The error for a code, with what to do about it."""
        if code == ErrorCode.FENCED_INSTANCE_ID:
            return error_for(
                code,
                f"{what}: another member has taken group_instance_id={self.group_instance_id!r}: give each running "
                "consumer its own",
            )
        if code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            return error_for(
                code,
                f"{what}: no assignor of partition_assignment_strategy={','.join(self._assignors)} is one that all "
                "other members have: add one of theirs (`headrace group describe` shows the group's)",
            )
        return error_for(code, f"{what}: {_MOVED_ON}" if code in REJOIN else what)

    def _unjoin(self, code: int) -> None:
        self.state = ClassicMemberState.UNJOINED
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self.generation = NO_GENERATION
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""

    def _raise_for(self, code: int) -> None:
        if code:
            self._unjoin(code)
            raise self.error(code, f"group {self.group_id}")
