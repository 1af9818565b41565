"""A consumer's link to its group's coordinator: the connection, and the offsets of the group. For threads.

One lock guards the connection, since heartbeats come from another thread than polls and commits. `GroupSession` and
`HeartbeatSession` add the membership, each by its protocol.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from headrace.client.consumer.group_errors import LOST_COORDINATOR, REJOIN
from headrace.client.consumer.selection import by_topic
from headrace.client.core.cluster import Cluster
from headrace.client.core.connection import Connection, R
from headrace.client.core.failures import BrokerUnreachable, DeadlineExceeded, error_for
from headrace.client.core.group_metadata import OffsetAndMetadata
from headrace.client.core.settings import Address
from headrace.client.core.timing import Backoff, Deadline
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.protocol.codec.message import Message
from headrace.types import Offset, TopicPartition

T = TypeVar("T")

LATE = "group %s: poll was not called within max_poll_interval_ms; this member leaves the group"

_GROUP_KEY_TYPE = 0
_UNKNOWN_TOPIC_MS = 2_000
"""How long a coordinator may take to hear of a topic that this member reads. Then the topic was deleted."""
_STABLE_FETCH = 7  # from this version on, offsets of open transactions can be waited for


class GroupTimes(NamedTuple):
    """The timeouts and the heartbeat interval of a group member."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000


class AnyMembership(Protocol):
    """The state machine of a member, of either protocol."""

    group_id: str
    group_instance_id: str | None
    member_id: str
    generation: int

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """What the member holds at the moment."""

    @property
    def is_member(self) -> bool:
        """Whether the coordinator takes commits of this member, as far as it knows."""

    def to_give_up(self, topics: Iterable[str]) -> frozenset[TopicPartition]:
        """What goes before the member joins for `topics`."""

    def given_up(self, partitions: Iterable[TopicPartition]) -> None:
        """The member holds these partitions no more."""

    def rejoin(self) -> None:
        """The subscription has changed."""

    def heard(self, code: int) -> None:
        """Apply the error code of a commit."""

    def error(self, code: int, what: str) -> KafkaError:
        """The error for a code, with what to do about it."""


class GroupLink:
    """Calls to the coordinator, and the group's offsets."""

    def __init__(self, cluster: Cluster, member: AnyMembership) -> None:
        self.member = member
        self._cluster = cluster
        self._lock = threading.RLock()
        self._connection: Connection | None = None
        self._backoff = Backoff(cluster.settings.retry_backoff_ms, cluster.settings.retry_backoff_max_ms)
        self._fatal: KafkaError | None = None

    @property
    def group_id(self) -> str:
        """The group's name."""
        return self.member.group_id

    @property
    def is_member(self) -> bool:
        """Whether the coordinator takes commits of this member, as far as it knows."""
        return self.member.is_member and self._fatal is None

    def given_up(self, partitions: Collection[TopicPartition]) -> None:
        """The consumer reads these no more."""
        self.member.given_up(partitions)

    def _coordinator(self, deadline: Deadline | None = None) -> Connection:
        if self._connection is not None and self._connection.usable:
            return self._connection
        request = m.FindCoordinatorRequest(key=self.group_id, key_type=_GROUP_KEY_TYPE)
        timeout_ms = self._cluster.settings.request_timeout_ms
        limit = Deadline.after_ms(timeout_ms) if deadline is None else deadline.sooner(timeout_ms)
        answer = self._cluster.call_any(request, m.FindCoordinatorResponse, limit)
        if answer.error_code:
            raise error_for(answer.error_code, f"coordinator of group {self.group_id}: {answer.error_message or ''}")
        self._connection = self._cluster.dial(Address(answer.host, answer.port), limit)
        return self._connection

    def _drop_coordinator(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _call(self, make: Callable[[int], Message], api_key: ApiKey, answer: type[R], deadline: Deadline) -> R:
        """Send one request to the coordinator, in a version that it supports."""
        with self._lock:
            connection = self._coordinator(deadline)
            limit = deadline.sooner(self._cluster.settings.request_timeout_ms)
            return connection.call(make(connection.versions.choose(api_key)), answer, limit)

    # -- offsets

    def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """The group's committed offsets, without partitions that have none."""
        asked = m.OffsetFetchRequest.OffsetFetchRequestTopic
        topics = [asked(name=name, partition_indexes=indexes) for name, indexes in by_topic(partitions)]

        def make(version: int) -> Message:
            return m.OffsetFetchRequest(group_id=self.group_id, topics=topics, require_stable=version >= _STABLE_FETCH)

        deadline = self._cluster.deadline()
        return self._retry(lambda: self._fetch_offsets(make, deadline), deadline)

    def _fetch_offsets(
        self, make: Callable[[int], Message], deadline: Deadline
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        answer = self._call(make, ApiKey.OFFSET_FETCH, m.OffsetFetchResponse, deadline)
        if answer.error_code:
            raise error_for(answer.error_code, f"offsets of group {self.group_id}")
        found = {}
        for topic in answer.topics:
            for part in topic.partitions:
                partition = TopicPartition(topic.name, part.partition_index)
                if part.error_code:
                    raise error_for(part.error_code, f"offset of group {self.group_id} for {partition}")
                if part.committed_offset >= 0:
                    found[partition] = OffsetAndMetadata(part.committed_offset, part.metadata or "")
        return found

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | Mapping[TopicPartition, Offset],
        deadline: Deadline | None = None,
        *,
        once: bool = False,
    ) -> None:
        """Commit offsets; with `once` in one attempt. Errors such as REBALANCE_IN_PROGRESS mean that other members may
        own the partitions now."""
        if not offsets:
            return
        topics: dict[str, list[m.OffsetCommitRequest.OffsetCommitRequestPartition]] = {}
        for (topic, index), given in offsets.items():
            place = given if isinstance(given, OffsetAndMetadata) else OffsetAndMetadata(given)
            part = m.OffsetCommitRequest.OffsetCommitRequestPartition(
                partition_index=index, committed_offset=place.offset, committed_metadata=place.metadata
            )
            topics.setdefault(topic, []).append(part)
        limit = self._cluster.deadline() if deadline is None else deadline.sooner(self._cluster.settings.api_timeout_ms)
        self._retry(lambda: self._commit(topics, limit), limit, once=once)

    def _commit(
        self, topics: Mapping[str, list[m.OffsetCommitRequest.OffsetCommitRequestPartition]], deadline: Deadline
    ) -> None:
        named = m.OffsetCommitRequest.OffsetCommitRequestTopic
        request = m.OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=self.member.generation,
            member_id=self.member.member_id,
            group_instance_id=self.member.group_instance_id,
            topics=[named(name=name, partitions=parts) for name, parts in topics.items()],
        )
        answer = self._call(lambda _: request, ApiKey.OFFSET_COMMIT, m.OffsetCommitResponse, deadline)
        for topic in answer.topics:
            for part in topic.partitions:
                if part.error_code:
                    self.member.heard(part.error_code)
                    where = TopicPartition(topic.name, part.partition_index)
                    raise self.member.error(part.error_code, f"commit of group {self.group_id} for {where}")

    def _retry(self, attempt: Callable[[], T], deadline: Deadline, *, once: bool = False) -> T:
        """Repeat until it succeeds. Finds the coordinator again if it moved, and waits for a newer member epoch."""
        patience = Deadline.after_ms(_UNKNOWN_TOPIC_MS)
        while True:
            try:
                return attempt()
            except KafkaError as cause:
                final = cause.code in REJOIN or not (cause.code.retriable or cause.code == ErrorCode.STALE_MEMBER_EPOCH)
                final |= cause.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and patience.expired
                if cause.code in LOST_COORDINATOR:
                    with self._lock:
                        self._drop_coordinator()
                if (final and not isinstance(cause, BrokerUnreachable | DeadlineExceeded)) or deadline.expired:
                    raise
                if once and cause.code != ErrorCode.STALE_MEMBER_EPOCH:
                    raise
            deadline.sleep_ms(self._backoff.next_ms())
