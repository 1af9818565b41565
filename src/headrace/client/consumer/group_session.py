"""A consumer's session in a classic group: a member that joins from poll, and a heartbeat thread.

poll calls `advance`, which never blocks past its deadline. A JoinGroup may be answered only when every other member has
joined, so it stays pending from one poll to the next. While the member is STABLE, a thread sends heartbeats. If poll is
not called for `max_poll_interval_ms`, the thread leaves the group, so that other members get the partitions.
`membership` builds the requests and interprets the answers.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from headrace.client.consumer.assignors.member import Layout
from headrace.client.consumer.group_errors import LOST_COORDINATOR, REJOIN
from headrace.client.consumer.group_link import LATE, GroupLink, GroupTimes
from headrace.client.consumer.membership import ClassicMemberState, Membership
from headrace.client.consumer.subscription import SubscriptionState
from headrace.client.core.cluster import Cluster
from headrace.client.core.connection import Connection, Pending, R
from headrace.client.core.failures import BrokerUnreachable, DeadlineExceeded
from headrace.client.core.timing import Deadline
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.types import TopicPartition

__all__ = ["GroupSession", "GroupTimes"]

_log = logging.getLogger(__name__)

_REBALANCE_GRACE_MS = 5_000
_LEAVE_TIMEOUT_MS = 5_000


class GroupSession(GroupLink):
    """One member's session; `advance`, commits and `close` from the consumer's thread."""

    follows_topics = True
    """The member joins again when topics or partitions come or go."""

    def __init__(self, cluster: Cluster, membership: Membership, times: GroupTimes) -> None:
        super().__init__(cluster, membership)
        self.membership = membership
        self._times = times
        self._joining: Pending[m.JoinGroupResponse] | None = None
        self._syncing: Pending[m.SyncGroupResponse] | None = None
        self._joining_on: Connection | None = None
        self._assigned: list[TopicPartition] | None = None
        self._topics: Sequence[str] = ()
        self._layout_of: Callable[[set[str]], Layout] = Layout.of_nothing
        self._step_limit = Deadline.after_ms(0)
        self._last_poll = Deadline.after_ms(times.max_poll_interval_ms)
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def is_settled(self) -> bool:
        """Whether the member has its assignment, as far as it knows."""
        return self.membership.state is ClassicMemberState.STABLE and self._assigned is None

    def polled(self) -> None:
        """Note a poll. After `max_poll_interval_ms` without one, the member leaves the group.

        Raises KafkaError if another member has taken its `group_instance_id`.
        """
        if self._fatal is not None:
            raise self._fatal
        self._last_poll = Deadline.after_ms(self._times.max_poll_interval_ms)

    # -- joining

    def to_give_up(self, subscription: SubscriptionState) -> frozenset[TopicPartition]:
        """What the consumer is to give up before it joins."""
        return self.membership.to_give_up(self._topics_of(subscription))

    def _topics_of(self, subscription: SubscriptionState) -> Sequence[str]:
        is_to_join = self.membership.state is ClassicMemberState.UNJOINED
        return subscription.topics() if is_to_join else subscription.latest_topics

    def advance(self, subscription: SubscriptionState, deadline: Deadline) -> list[TopicPartition] | None:
        """Continue to join until `deadline`. Returns the new assignment, or None if there is none yet.

        Also None if there is something to give up first. Asks for the layout of topics if this member is the leader.
        Raises KafkaError if the group refuses for good.
        """
        topics = self._topics = self._topics_of(subscription)
        self._layout_of = subscription.layout
        with self._lock:
            while not self.is_settled:
                if self._assigned is None:
                    self._try_step(deadline)
                if self._assigned is not None:
                    assigned, self._assigned = self._assigned, None
                    if self.membership.joined_topics != set(topics):
                        self.membership.rejoin()
                    self._backoff.reset()
                    self._start_heartbeats()
                    return assigned
                if deadline.expired or self.membership.to_give_up(topics):
                    return None
        return None

    def _try_step(self, deadline: Deadline) -> None:
        try:
            self._assigned = self._step(deadline)
        except KafkaError as cause:
            self._forgive(cause)
            deadline.sleep_ms(self._backoff.next_ms() if cause.code not in REJOIN else 0)

    def _step(self, deadline: Deadline) -> list[TopicPartition] | None:
        """Send or receive once; returns the new assignment when it is there."""
        connection = self._join_connection()
        if self._syncing is None and self._joining is None:
            self._step_limit = Deadline.after_ms(self._times.max_poll_interval_ms + _REBALANCE_GRACE_MS)
            request = self.membership.join_request(self._topics)
            self._joining = connection.send(request, m.JoinGroupResponse, self._step_limit)
        if self._joining is not None:
            joined = self._answer(connection, self._joining, deadline)
            if joined is None:
                return None
            self._joining = None
            if not self.membership.joined(joined):
                return None
            request_sync = self.membership.sync_request(*self._layout_of(self.membership.led_topics))
            self._syncing = connection.send(request_sync, m.SyncGroupResponse, self._step_limit)
        assert self._syncing is not None
        synced = self._answer(connection, self._syncing, deadline)
        if synced is None:
            return None
        self._syncing = None
        return self.membership.synced(synced)

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
        self.membership.state = ClassicMemberState.UNJOINED

    # -- the coordinator

    def _join_connection(self) -> Connection:
        """A connection of its own: a broker answers in order, and a join waits for others while this member commits."""
        if self._joining_on is None or not self._joining_on.usable:
            self._joining = self._syncing = None
            limit = Deadline.after_ms(self._cluster.settings.request_timeout_ms)
            self._joining_on = self._cluster.dial(self._coordinator().address, limit)
        return self._joining_on

    def _drop_coordinator(self) -> None:
        super()._drop_coordinator()
        if self._joining_on is not None:
            self._joining_on.close()
            self._joining_on = None

    # -- heartbeats

    def _start_heartbeats(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._beat, name=f"headrace-heartbeat-{self.group_id}", daemon=True)
            self._thread.start()

    def _beat(self) -> None:
        while not self._ended.wait(self._times.heartbeat_interval_ms / 1000):
            try:
                with self._lock:
                    if not self._ended.is_set():
                        self._beat_once()
            except KafkaError as cause:
                _log.info("group %s: a heartbeat failed: %s", self.group_id, cause)

    def _beat_once(self) -> None:
        if self._last_poll.expired and self.membership.state is not ClassicMemberState.UNJOINED:
            _log.warning(LATE, self.group_id)
            self._leave()
        elif self._assigned is None and (self._joining or self._syncing):
            self._try_step(Deadline.after_ms(0))  # the group waits, and the application is busy with its records
        elif self.membership.state is ClassicMemberState.STABLE:
            self._heartbeat()

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
                self._fatal = self.membership.error(answer.error_code, f"group {self.group_id}")
                _log.error("%s", self._fatal)

    # -- the end

    def leave(self) -> None:
        """Leave the group (a static member stays in it, by design); `advance` joins it again."""
        with self._lock:
            self._joining = self._syncing = self._assigned = None
            if self.membership.group_instance_id is None:
                try:
                    self._leave()
                except KafkaError as cause:
                    _log.info("group %s: this member could not leave the group: %s", self.group_id, cause)
            self.membership.rejoin()

    def close(self) -> None:
        """Leave the group (a static member stays in it, by design) and close the connection."""
        self._ended.set()
        with self._lock:
            self.leave()
            self._drop_coordinator()
        if self._thread is not None:
            self._thread.join(_LEAVE_TIMEOUT_MS / 1000)

    def _leave(self) -> None:
        self._joining = self._syncing = self._assigned = None
        if self.membership.member_id and self._connection is not None and self._connection.usable:
            deadline = Deadline.after_ms(_LEAVE_TIMEOUT_MS)
            self._call(self.membership.leave_request, ApiKey.LEAVE_GROUP, m.LeaveGroupResponse, deadline)
        self.membership.left()
