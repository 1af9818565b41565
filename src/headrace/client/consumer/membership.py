"""The state machine of one member of a consumer group. Does no IO, and reads no clock.

    UNJOINED ──JoinGroup──▶ JOINING ──answer──▶ SYNCING ──answer──▶ STABLE
        ▲                      │                   │                  │  heartbeat: REBALANCE_IN_PROGRESS,
        └──────────────────────┴───────────────────┴──────────────────┘  ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID

The first JoinGroup is answered with MEMBER_ID_REQUIRED and an id to come back with (KIP-394). The member that the
coordinator names leader gets all subscriptions, computes the assignment and sends it in its SyncGroup; the others send
an empty one. Subscriptions and assignments are Kafka's ConsumerProtocol: version int16, then the
message. Rebalancing is eager: partitions are given up before joining. Source: `ConsumerCoordinator`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

from headrace.client.consumer.assignors import ASSIGNORS, Member
from headrace.client.core.failures import error_for
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m
from headrace.types import TopicPartition

PROTOCOL_TYPE = "consumer"
_PROTOCOL_VERSION = 1
_NEWEST_PROTOCOL_VERSION = 3
_NO_GENERATION = -1
_LEAVE_BY_LIST = 3

REJOIN = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID})
"""Error codes after which a member rejoins."""

LOST_COORDINATOR = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION}
)
"""Error codes after which the member looks up the coordinator again."""


class MemberState(Enum):
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
    ) -> None:
        self.group_id = group_id
        self.group_instance_id = group_instance_id
        self.member_id = ""
        self.generation = _NO_GENERATION
        self.state = MemberState.UNJOINED
        self.assignment: list[TopicPartition] = []
        self._assignors = assignors
        self._session_timeout_ms = session_timeout_ms
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._protocol = ""
        self._members: list[Member] = []

    # -- joining

    def join_request(self, topics: Sequence[str]) -> m.JoinGroupRequest:
        """UNJOINED -> JOINING."""
        self.state = MemberState.JOINING
        metadata = encode_subscription(topics)
        return m.JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                m.JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=metadata) for name in self._assignors
            ],
        )

    def joined(self, answer: m.JoinGroupResponse) -> bool:
        """JOINING -> SYNCING; False if the coordinator requires the request again, with a member id."""
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self.state = MemberState.UNJOINED
            return False
        self._raise_for(answer.error_code)
        self.member_id = answer.member_id
        self.generation = answer.generation_id
        self._protocol = answer.protocol_name or ""
        self._members = [decode_member(member) for member in answer.members] if answer.leader == self.member_id else []
        self.state = MemberState.SYNCING
        return True

    @property
    def led_topics(self) -> set[str]:
        """Topics whose partition counts `sync_request` needs: all subscribed topics for the leader, else none."""
        return set().union(*(member.topics for member in self._members))

    def sync_request(self, partition_counts: Mapping[str, int]) -> m.SyncGroupRequest:
        """The SyncGroup request: with the assignment from the leader, empty from the others."""
        assignments = []
        if self._members:
            shares = ASSIGNORS[self._protocol](self._members, partition_counts)
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
        """SYNCING -> STABLE; returns this member's partitions."""
        self._raise_for(answer.error_code)
        self.assignment = decode_assignment(answer.assignment)
        self.state = MemberState.STABLE
        return self.assignment

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

    def rejoin(self) -> None:
        """STABLE -> UNJOINED, because the subscription of this member has changed."""
        if self.state is MemberState.STABLE:
            self.state = MemberState.UNJOINED

    def left(self) -> None:
        """-> UNJOINED, without a member id."""
        self._unjoin(ErrorCode.UNKNOWN_MEMBER_ID)

    def heard(self, code: int) -> None:
        """Apply the error code of a heartbeat or commit: STABLE -> UNJOINED if it requires a rejoin."""
        if code in REJOIN:
            self._unjoin(code)

    def _unjoin(self, code: int) -> None:
        self.state = MemberState.UNJOINED
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self.generation = _NO_GENERATION
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""

    def _raise_for(self, code: int) -> None:
        if code:
            self._unjoin(code)
            raise error_for(code, f"group {self.group_id}")


def encode_subscription(topics: Sequence[str]) -> bytes:
    """The subscription that a member sends to the leader: its topics, sorted."""
    message = m.ConsumerProtocolSubscription(topics=sorted(topics))
    return _PROTOCOL_VERSION.to_bytes(2, "big") + message.encode(_PROTOCOL_VERSION)


def encode_assignment(partitions: Sequence[TopicPartition]) -> bytes:
    """The assignment that the leader sends to a member."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    assigned = [
        m.ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=indexes)
        for topic, indexes in topics.items()
    ]
    message = m.ConsumerProtocolAssignment(assigned_partitions=assigned)
    return _PROTOCOL_VERSION.to_bytes(2, "big") + message.encode(_PROTOCOL_VERSION)


def decode_assignment(data: bytes) -> list[TopicPartition]:
    """A member's partitions; none for empty bytes, which some coordinators send to a member without partitions."""
    if not data:
        return []
    message, _ = m.ConsumerProtocolAssignment.decode(_version_of(data), memoryview(data), 2)
    return [
        TopicPartition(assigned.topic, partition)
        for assigned in message.assigned_partitions
        for partition in assigned.partitions
    ]


def decode_member(member: m.JoinGroupResponse.JoinGroupResponseMember) -> Member:
    """A member in the JoinGroup answer to the leader."""
    data = bytes(member.metadata)
    message, _ = m.ConsumerProtocolSubscription.decode(_version_of(data), memoryview(data), 2)
    return Member(member.member_id, frozenset(message.topics), member.group_instance_id)


def _version_of(data: bytes) -> int:
    version = int.from_bytes(data[:2], "big", signed=True)
    if version < 0:
        raise KafkaError(f"consumer protocol version {version} is not supported", ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return min(version, _NEWEST_PROTOCOL_VERSION)
