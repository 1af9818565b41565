"""The state machine of one member of a consumer group of KIP-848. Does no IO, and reads no clock.

    JOINING ──heartbeat with epoch 0──▶ JOINED ──FENCED_MEMBER_EPOCH, UNKNOWN_MEMBER_ID, or it left──▶ FENCED
       ▲                                                                                                │
       └────────────────────────── everything that it held is given up as lost ─────────────────────────┘

The coordinator assigns. A heartbeat's answer may have a target: all that the member is to hold. The member gives up
what is not in it, and its next heartbeat says what it holds; only then does another member get the rest, in an answer
with a newer epoch. A heartbeat has only what has changed since the last answered one, and everything after a failure.
Source: Kafka's `ConsumerMembershipManager`, `ConsumerHeartbeatRequestManager`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import TypeAlias

from headrace.client.core.failures import error_for
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m
from headrace.types import TopicPartition

_JOIN_EPOCH, _LEAVE_EPOCH, _STATIC_LEAVE_EPOCH = 0, -1, -2
_UNCHANGED_TIMEOUT = -1

_FENCED = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})

_WHAT_TO_DO: Mapping[int, str] = {
    ErrorCode.UNSUPPORTED_VERSION: "the cluster does not serve this protocol (it needs Apache Kafka 4.0 or headrace, "
    "with group.version=1): set group_protocol=classic",
    ErrorCode.UNRELEASED_INSTANCE_ID: "a member with this group_instance_id is in the group: give each running "
    "consumer its own; that of one that was killed is free after its session timeout",
    ErrorCode.FENCED_INSTANCE_ID: "another member has taken this group_instance_id: give each running consumer its own",
    ErrorCode.UNSUPPORTED_ASSIGNOR: "group_remote_assignor must be one of the broker's group.consumer.assignors",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "the broker matches topics with RE2, which has no look-around and no "
    "back-references: simplify the pattern, or set group_protocol=classic",
    ErrorCode.GROUP_ID_NOT_FOUND: "the group is in use by members of another protocol that cannot be joined: see "
    "`headrace group describe`, and use another group_id or their protocol",
}


Heartbeat: TypeAlias = m.ConsumerGroupHeartbeatRequest | m.ShareGroupHeartbeatRequest
Answer: TypeAlias = m.ConsumerGroupHeartbeatResponse | m.ShareGroupHeartbeatResponse
_Subscribed: TypeAlias = tuple[Collection[str] | None, str | None]
"""Topics, or a pattern."""
_Held: TypeAlias = frozenset[tuple[bytes, int]]
"""Topic ids and partitions."""


class HeartbeatMemberState(Enum):
    """The state of a member in the diagram above."""

    JOINING = "joining"
    JOINED = "joined"
    FENCED = "fenced"


class HeartbeatMembership:
    """The member's state. The caller sends its requests and passes it the answers."""

    def __init__(
        self,
        group_id: str,
        member_id: str,
        rebalance_timeout_ms: int,
        group_instance_id: str | None = None,
        rack: str | None = None,
        server_assignor: str | None = None,
    ) -> None:
        """`member_id` is chosen by the client, and kept while it lives."""
        self.group_id = group_id
        self.group_instance_id = group_instance_id
        self.member_id: str = member_id
        self.generation: int = _JOIN_EPOCH
        self.state: HeartbeatMemberState = HeartbeatMemberState.JOINING
        self.owned: frozenset[TopicPartition] = frozenset()
        self.heartbeat_interval_ms: int | None = None
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._rack = rack
        self._server_assignor = server_assignor
        self._subscribed: _Subscribed = ((), None)
        self._must_subscribe = True
        self._target: dict[bytes, list[int]] | None = None
        self._ids: dict[str, bytes] = {}
        self._sent: tuple[_Subscribed, _Held] | None = None  # what the coordinator knows

    # -- what the application wants

    def rejoin(self) -> None:
        """The subscription changes: `subscribe` is to be called."""
        self._must_subscribe = True

    def subscribe(self, topics: Collection[str] | None, pattern: str | None = None) -> None:
        """Subscribe to these topics, or to all that match an RE2 pattern."""
        self._must_subscribe = False
        self._subscribed = (None if topics is None else tuple(sorted(topics)), pattern)

    @property
    def is_member(self) -> bool:
        """Whether the coordinator takes commits of this member, as far as it knows."""
        return self.state is HeartbeatMemberState.JOINED

    @property
    def is_settled(self) -> bool:
        """Whether there is nothing to do for the application's thread."""
        return self.is_member and self._target is None and not self._must_subscribe

    # -- heartbeats

    @property
    def has_news(self) -> bool:
        """Whether the next heartbeat is to be sent at once."""
        if self._must_subscribe and self.state is HeartbeatMemberState.JOINING:
            return False
        return self.state is not HeartbeatMemberState.FENCED and self._sent != (self._subscribed, self._held)

    def request(self) -> Heartbeat:
        """The next heartbeat of a member that is not FENCED."""
        is_full = self._sent is None
        if is_full:  # it says what the member holds, so what came before must not be taken; the answer has it again
            self._target = None
        known_topics, known_partitions = self._sent or (None, None)
        topics, pattern = self._subscribed
        is_new = known_topics != self._subscribed
        had_pattern = known_topics is not None and known_topics[1] is not None
        held = self._held
        self._sent = (self._subscribed, held)
        return m.ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.generation,
            instance_id=self.group_instance_id,
            rack_id=self._rack if is_full else None,
            rebalance_timeout_ms=self._rebalance_timeout_ms if is_full else _UNCHANGED_TIMEOUT,
            subscribed_topic_names=list(topics or ()) if is_new else None,
            subscribed_topic_regex=(pattern or "") if is_new and (pattern or had_pattern) else None,
            server_assignor=self._server_assignor if is_full else None,
            topic_partitions=_by_topic(held) if known_partitions != held else None,
        )

    @property
    def _held(self) -> _Held:
        return frozenset((self._ids[topic], partition) for topic, partition in self.owned)

    def answered(self, answer: Answer) -> None:
        """Apply an answer. Raises KafkaError: retriable if the heartbeat is to be sent again, else for good."""
        code = answer.error_code
        if code in _FENCED:
            self._fence()
        elif code:
            self.unanswered()
            raise self.error(code, f"group {self.group_id}: {answer.error_message or 'the heartbeat was refused'}")
        else:
            self.member_id = answer.member_id or self.member_id
            self.generation = answer.member_epoch
            self.heartbeat_interval_ms = answer.heartbeat_interval_ms
            self.state = HeartbeatMemberState.JOINED
            if answer.assignment is not None:
                self._target = {each.topic_id: each.partitions for each in answer.assignment.topic_partitions}

    def unanswered(self) -> None:
        """A heartbeat was not answered: the next one says everything."""
        self._sent = None

    # -- partitions

    @property
    def target_ids(self) -> Collection[bytes]:
        """The topics whose names `assigned` needs."""
        return () if self._target is None else tuple(self._target)

    def assigned(self, names: Mapping[bytes, str]) -> list[TopicPartition] | None:
        """What the member is to hold from now on, or None if that has not changed.

        The caller gives up the rest. Topics without a name wait until they have one; those that were created anew,
        under an id that is not the one that the member holds, until it has given up the old ones.
        """
        if self._target is None or not self.is_member:
            return None
        named = {names[topic_id]: topic_id for topic_id in self._target if topic_id in names}
        held = {topic for topic, _ in self.owned}
        anew = {topic for topic, topic_id in named.items() if topic in held and self._ids[topic] != topic_id}
        found = [
            TopicPartition(topic, partition)
            for topic, topic_id in named.items()
            if topic not in anew
            for partition in self._target[topic_id]
        ]
        is_whole = len(named) == len(self._target) and not anew
        if not is_whole and set(found) == self.owned:
            return None
        if is_whole:
            self._target = None
        self._ids.update({topic: topic_id for topic, topic_id in named.items() if topic not in anew})
        self.owned |= frozenset(found)
        return found

    def to_give_up(self, topics: Iterable[str]) -> frozenset[TopicPartition]:
        """What is lost because the member was out of the group."""
        return self.owned if self.state is HeartbeatMemberState.FENCED else frozenset()

    def given_up(self, partitions: Iterable[TopicPartition]) -> None:
        """The member holds these partitions no more."""
        self.owned -= frozenset(partitions)
        if self.state is HeartbeatMemberState.FENCED and not self.owned:
            self.state = HeartbeatMemberState.JOINING

    # -- the end

    def leave_request(self) -> Heartbeat:
        """The heartbeat with which the member leaves; a static one keeps its partitions for a while."""
        epoch = _LEAVE_EPOCH if self.group_instance_id is None else _STATIC_LEAVE_EPOCH
        return m.ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self.group_instance_id,
            rebalance_timeout_ms=_UNCHANGED_TIMEOUT,
            subscribed_topic_names=None,
            subscribed_topic_regex=None,
            topic_partitions=None,
        )

    def left(self) -> None:
        """The member is out of the group; it joins again once it holds nothing."""
        self._fence()

    def heard(self, code: int) -> None:
        """The error code of a commit: the next heartbeat tells what it means."""

    def error(self, code: int, what: str) -> KafkaError:
        """The error for a code, with what to do about it."""
        advice = _WHAT_TO_DO.get(code)
        return error_for(code, f"{what}; {advice}" if advice else what)

    def _fence(self) -> None:
        self.generation = _JOIN_EPOCH
        self._target, self._sent = None, None
        self.state = HeartbeatMemberState.FENCED if self.owned else HeartbeatMemberState.JOINING


def _by_topic(held: _Held) -> list[m.ConsumerGroupHeartbeatRequest.TopicPartitions]:
    by_id: dict[bytes, list[int]] = {}
    for topic_id, partition in sorted(held):
        by_id.setdefault(topic_id, []).append(partition)
    each = m.ConsumerGroupHeartbeatRequest.TopicPartitions
    return [each(topic_id=topic_id, partitions=partitions) for topic_id, partitions in by_id.items()]
