"""A consumer's session with its group coordinator: a connection, a member, and a heartbeat thread.

poll calls `advance`, which never blocks past its deadline. A JoinGroup may be answered only when every other member has
joined, so it stays pending from one poll to the next. While the member is STABLE, a thread sends heartbeats. If poll is
not called for `max_poll_interval_ms`, the thread leaves the group, so that other members get the partitions. One lock
guards the connection. `membership` builds the requests and interprets the answers.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from headrace.client.consumer.membership import LOST_COORDINATOR, REJOIN, Membership, MemberState
from headrace.client.core.cluster import Cluster
from headrace.client.core.connection import Connection, Pending, R
from headrace.client.core.failures import BrokerUnreachable, DeadlineExceeded, error_for
from headrace.client.core.settings import Address
from headrace.client.core.timing import Backoff, Deadline
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.protocol.codec.message import Message
from headrace.types import Offset, TopicPartition

T = TypeVar("T")

_log = logging.getLogger(__name__)

_GROUP_KEY_TYPE = 0
_REBALANCE_GRACE_MS = 5_000
_LEAVE_TIMEOUT_MS = 5_000
_STABLE_FETCH = 7  # from this version on, offsets of open transactions can be waited for


class GroupTimes(NamedTuple):
    """The timeouts and the heartbeat interval of a group member."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000


class Committed(NamedTuple):
    """A group's committed offset for a partition."""

    offset: Offset
    metadata: str | None


class GroupSession:
    """One member's session; `advance`, commits and `close` from the consumer's thread."""

    def __init__(self, cluster: Cluster, membership: Membership, times: GroupTimes) -> None:
        self.membership = membership
        self._cluster = cluster
        self._times = times
        self._lock = threading.RLock()
        self._connection: Connection | None = None
        self._joining: Pending[m.JoinGroupResponse] | None = None
        self._syncing: Pending[m.SyncGroupResponse] | None = None
        self._step_limit = Deadline.after_ms(0)
        self._backoff = Backoff(cluster.settings.retry_backoff_ms, cluster.settings.retry_backoff_max_ms)
        self._last_poll = Deadline.after_ms(times.max_poll_interval_ms)
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def group_id(self) -> str:
        """The group's name."""
        return self.membership.group_id

    def polled(self) -> None:
        """Note a poll. After `max_poll_interval_ms` without one, the member leaves the group."""
        self._last_poll = Deadline.after_ms(self._times.max_poll_interval_ms)

    # -- joining

    def advance(
        self, topics: Sequence[str], partition_counts: Callable[[set[str]], Mapping[str, int]], deadline: Deadline
    ) -> list[TopicPartition] | None:
        """Continue to join until `deadline`. Returns the new assignment, or None if there is none yet.

        Calls `partition_counts` if this member is the leader. Raises KafkaError if the group refuses for good.
        """
        with self._lock:
            while self.membership.state is not MemberState.STABLE:
                try:
                    if self._step(topics, partition_counts, deadline):
                        self._backoff.reset()
                        self._start_heartbeats()
                        return self.membership.assignment
                except KafkaError as cause:
                    self._forgive(cause)
                    deadline.sleep_ms(self._backoff.next_ms() if cause.code not in REJOIN else 0)
                if deadline.expired:
                    return None
        return None

    def _step(
        self, topics: Sequence[str], partition_counts: Callable[[set[str]], Mapping[str, int]], deadline: Deadline
    ) -> bool:
        """Send or receive once; returns whether the member is STABLE now."""
        connection = self._coordinator(deadline)
        if self._syncing is None and self._joining is None:
            self._step_limit = Deadline.after_ms(self._times.max_poll_interval_ms + _REBALANCE_GRACE_MS)
            request = self.membership.join_request(topics)
            self._joining = connection.send(request, m.JoinGroupResponse, self._step_limit)
        if self._joining is not None:
            joined = self._answer(connection, self._joining, deadline)
            if joined is None:
                return False
            self._joining = None
            if not self.membership.joined(joined):
                return False
            request_sync = self.membership.sync_request(partition_counts(self.membership.led_topics))
            self._syncing = connection.send(request_sync, m.SyncGroupResponse, self._step_limit)
        assert self._syncing is not None
        synced = self._answer(connection, self._syncing, deadline)
        if synced is None:
            return False
        self._syncing = None
        self.membership.synced(synced)
        return True

    def _answer(self, connection: Connection, pending: Pending[R], deadline: Deadline) -> R | None:
        """The answer, or None if it does not arrive before `deadline`; the connection stays usable."""
        if connection.pump_until(pending, deadline):
            return pending.result()
        if self._step_limit.expired:
            raise DeadlineExceeded(f"group {self.group_id}: {connection.address} did not answer in time")
        return None

    def _forgive(self, cause: KafkaError) -> None:
        """After a failed step: start over, with a new coordinator if that is the cause. Raises final errors."""
        self._joining = self._syncing = None
        if cause.code in LOST_COORDINATOR or isinstance(cause, DeadlineExceeded):
            self._drop_coordinator()
        elif cause.code not in REJOIN and not cause.code.retriable:
            raise cause
        self.membership.state = MemberState.UNJOINED

    # -- the coordinator

    def _coordinator(self, deadline: Deadline) -> Connection:
        if self._connection is not None and self._connection.usable:
            return self._connection
        self._joining = self._syncing = None
        request = m.FindCoordinatorRequest(key=self.group_id, key_type=_GROUP_KEY_TYPE)
        limit = Deadline.after_ms(self._cluster.settings.request_timeout_ms)
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

    def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Committed]:
        """The group's committed offsets, without partitions that have none."""
        topics: dict[str, list[int]] = {}
        for topic, index in partitions:
            topics.setdefault(topic, []).append(index)

        def make(version: int) -> Message:
            asked = m.OffsetFetchRequest.OffsetFetchRequestTopic
            return m.OffsetFetchRequest(
                group_id=self.group_id,
                topics=[asked(name=name, partition_indexes=indexes) for name, indexes in topics.items()],
                require_stable=version >= _STABLE_FETCH,
            )

        deadline = self._cluster.deadline()
        return self._retry(lambda: self._fetch_offsets(make, deadline), deadline)

    def _fetch_offsets(self, make: Callable[[int], Message], deadline: Deadline) -> dict[TopicPartition, Committed]:
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
                    found[partition] = Committed(Offset(part.committed_offset), part.metadata)
        return found

    def commit(self, offsets: Mapping[TopicPartition, Offset], deadline: Deadline | None = None) -> None:
        """Commit offsets. Errors such as REBALANCE_IN_PROGRESS mean that other members may own the partitions now."""
        if not offsets:
            return
        topics: dict[str, list[m.OffsetCommitRequest.OffsetCommitRequestPartition]] = {}
        for (topic, index), offset in offsets.items():
            part = m.OffsetCommitRequest.OffsetCommitRequestPartition(
                partition_index=index, committed_offset=offset, committed_metadata=""
            )
            topics.setdefault(topic, []).append(part)
        request = m.OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=self.membership.generation,
            member_id=self.membership.member_id,
            topics=[
                m.OffsetCommitRequest.OffsetCommitRequestTopic(name=name, partitions=parts)
                for name, parts in topics.items()
            ],
        )
        limit = deadline or self._cluster.deadline()
        self._retry(lambda: self._commit(request, limit), limit)

    def _commit(self, request: m.OffsetCommitRequest, deadline: Deadline) -> None:
        answer = self._call(lambda _: request, ApiKey.OFFSET_COMMIT, m.OffsetCommitResponse, deadline)
        for topic in answer.topics:
            for part in topic.partitions:
                if part.error_code:
                    self.membership.heard(part.error_code)
                    where = TopicPartition(topic.name, part.partition_index)
                    raise error_for(part.error_code, f"commit of group {self.group_id} for {where}")

    def _retry(self, attempt: Callable[[], T], deadline: Deadline) -> T:
        """Repeat until it succeeds. Finds the coordinator again if it moved."""
        while True:
            try:
                return attempt()
            except KafkaError as cause:
                final = cause.code in REJOIN or not cause.code.retriable
                if (final and not isinstance(cause, BrokerUnreachable | DeadlineExceeded)) or deadline.expired:
                    raise
                if cause.code in LOST_COORDINATOR:
                    with self._lock:
                        self._drop_coordinator()
            deadline.sleep_ms(self._backoff.next_ms())

    # -- heartbeats

    def _start_heartbeats(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._beat, name=f"headrace-heartbeat-{self.group_id}", daemon=True)
            self._thread.start()

    def _beat(self) -> None:
        while not self._ended.wait(self._times.heartbeat_interval_ms / 1000):
            try:
                with self._lock:
                    if self.membership.state is not MemberState.STABLE or self._ended.is_set():
                        continue
                    if self._last_poll.expired:
                        _log.warning(
                            "group %s: poll was not called within max_poll_interval_ms; this member leaves the group",
                            self.group_id,
                        )
                        self._leave()
                    else:
                        self._heartbeat()
            except KafkaError as cause:
                _log.info("group %s: a heartbeat failed: %s", self.group_id, cause)

    def _heartbeat(self) -> None:
        deadline = Deadline.after_ms(self._times.session_timeout_ms / 3)
        try:
            answer = self._call(
                lambda _: self.membership.heartbeat_request(), ApiKey.HEARTBEAT, m.HeartbeatResponse, deadline
            )
        except (BrokerUnreachable, DeadlineExceeded):
            self._drop_coordinator()
            raise
        if answer.error_code in LOST_COORDINATOR:
            self._drop_coordinator()
        elif answer.error_code:
            self.membership.heard(answer.error_code)
            if answer.error_code == ErrorCode.FENCED_INSTANCE_ID:
                _log.error(
                    "group %s: this member was fenced, because another member uses its group_instance_id", self.group_id
                )

    # -- the end

    def close(self) -> None:
        """Leave the group (a static member stays in it, by design) and close the connection."""
        self._ended.set()
        with self._lock:
            if self.membership.group_instance_id is None:
                try:
                    self._leave()
                except KafkaError as cause:
                    _log.info("group %s: this member could not leave the group: %s", self.group_id, cause)
            self._drop_coordinator()
        if self._thread is not None:
            self._thread.join(_LEAVE_TIMEOUT_MS / 1000)

    def _leave(self) -> None:
        if self.membership.member_id and self._connection is not None and self._connection.usable:
            deadline = Deadline.after_ms(_LEAVE_TIMEOUT_MS)
            self._call(self.membership.leave_request, ApiKey.LEAVE_GROUP, m.LeaveGroupResponse, deadline)
        self.membership.left()
