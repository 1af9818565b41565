"""A consumer's session in a group of KIP-848: a thread that sends heartbeats, and what poll takes from them.

The thread speaks for the member all the time. poll calls `advance`, which takes the partitions that the coordinator has
assigned; what the consumer then holds goes out with the next heartbeat, at once. If poll is not called for
`max_poll_interval_ms`, the thread leaves the group. `heartbeat_membership` decides.
"""

from __future__ import annotations

import base64
import logging
import re
import threading
import uuid
from collections.abc import Collection

from headrace.client.consumer.group_errors import LOST_COORDINATOR
from headrace.client.consumer.group_link import LATE, GroupLink, GroupTimes
from headrace.client.consumer.heartbeat_membership import Answer, Heartbeat, HeartbeatMembership, HeartbeatMemberState
from headrace.client.consumer.subscription import SubscriptionState
from headrace.client.core.cluster import Cluster
from headrace.client.core.failures import BrokerUnreachable, DeadlineExceeded
from headrace.client.core.timing import Deadline
from headrace.errors import ErrorCode, KafkaError, UnsupportedVersion
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.types import TopicPartition

_log = logging.getLogger(__name__)

_LEAVE_TIMEOUT_MS = 5_000
_FIRST_INTERVAL_MS = 1_000
_TAKEN_EVERY_MS = 20
_WITH_PATTERNS = 1
_FLAGS = {re.IGNORECASE: "i", re.MULTILINE: "m", re.DOTALL: "s"}


def new_member_id() -> str:
    """A random id as Kafka's `Uuid` writes it: 22 characters, none of them a dash at the front."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text


def re2_pattern(pattern: re.Pattern[str]) -> str:
    """The pattern as the coordinator takes it; it matches whole names, as `fullmatch` does."""
    flags = "".join(letter for flag, letter in _FLAGS.items() if pattern.flags & flag)
    return f"(?{flags}){pattern.pattern}" if flags else pattern.pattern


class HeartbeatSession(GroupLink):
    """One member's session; `advance`, commits and `close` from the consumer's thread."""

    follows_topics = False
    """The coordinator notices new topics and partitions."""
    _api_key = ApiKey.CONSUMER_GROUP_HEARTBEAT
    _answer: type[Answer] = m.ConsumerGroupHeartbeatResponse

    def __init__(self, cluster: Cluster, membership: HeartbeatMembership, times: GroupTimes) -> None:
        super().__init__(cluster, membership)
        self.membership = membership
        self._times = times
        self._last_poll = Deadline.after_ms(times.max_poll_interval_ms)
        self._wake = threading.Event()
        self._ended = False
        self._thread: threading.Thread | None = None
        self._names: dict[bytes, str] = {}
        self._ask_names_again = Deadline.after_ms(0)

    @property
    def is_settled(self) -> bool:
        """Whether the consumer reads what it is to read, as far as it knows."""
        return self.membership.is_settled and self._fatal is None

    def polled(self) -> None:
        """Note a poll. Raises the KafkaError for which the group refuses this member."""
        if self._fatal is not None:
            raise self._fatal
        self._last_poll = Deadline.after_ms(self._times.max_poll_interval_ms)

    def to_give_up(self, subscription: SubscriptionState) -> frozenset[TopicPartition]:
        """What the consumer has lost."""
        return self.membership.to_give_up(())

    def given_up(self, partitions: Collection[TopicPartition]) -> None:
        """The consumer reads these no more: the coordinator is told at once."""
        super().given_up(partitions)
        self._wake.set()

    def advance(self, subscription: SubscriptionState, deadline: Deadline) -> list[TopicPartition] | None:
        """Wait until `deadline` for a new assignment, and return it: all that the consumer is to read from now on.

        None if there is none, or something to give up first. Raises KafkaError if the group refuses for good.
        """
        with self._lock:
            if subscription.pattern is None:
                self.membership.subscribe(subscription.topics())
            else:
                self.membership.subscribe(None, re2_pattern(subscription.pattern))
        self._start()
        while True:
            self._wake.set()
            if self._fatal is not None:
                raise self._fatal
            with self._lock:
                self._name_topics()
                assigned = self.membership.assigned(self._names)
            if assigned is not None:
                return assigned
            if deadline.expired or self.membership.to_give_up(()):
                return None
            deadline.sleep_ms(_TAKEN_EVERY_MS)

    def _name_topics(self) -> None:
        """Find the names of assigned topics."""
        unnamed = [topic_id for topic_id in self.membership.target_ids if topic_id not in self._names]
        if not unnamed or not self._ask_names_again.expired:
            return
        self._ask_names_again = Deadline.after_ms(self._cluster.settings.retry_backoff_ms)
        asked = m.MetadataRequest.MetadataRequestTopic
        request = m.MetadataRequest(
            topics=[asked(topic_id=topic_id, name=None) for topic_id in unnamed], allow_auto_topic_creation=False
        )
        limit = Deadline.after_ms(self._cluster.settings.request_timeout_ms)
        try:
            answer = self._cluster.call_any(request, m.MetadataResponse, limit)
        except KafkaError as cause:
            if not cause.code.retriable:
                raise
            return
        self._names.update(
            {topic.topic_id: topic.name for topic in answer.topics if topic.name and not topic.error_code}
        )

    # -- heartbeats

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._beat, name=f"headrace-heartbeat-{self.group_id}", daemon=True)
            self._thread.start()

    def _beat(self) -> None:
        due = paused = Deadline.after_ms(0)
        while not self._ended:
            self._wake.wait(due.remaining_s)
            self._wake.clear()
            if not paused.expired:  # `advance` wakes again and again; the coordinator is not asked as often
                continue
            try:
                with self._lock:
                    if self._is_quiet:
                        due = Deadline.after_ms(_FIRST_INTERVAL_MS)
                        continue
                    if due.expired or self.membership.has_news:
                        self._beat_once()
                        due = Deadline.after_ms(self.membership.heartbeat_interval_ms or _FIRST_INTERVAL_MS)
                        self._backoff.reset()
            except KafkaError as cause:
                due = paused = Deadline.after_ms(self._backoff.next_ms())
                self._failed(cause)

    @property
    def _is_quiet(self) -> bool:
        return self._ended or self._fatal is not None or self.membership.state is HeartbeatMemberState.FENCED

    def _beat_once(self) -> None:
        membership = self.membership
        if self._last_poll.expired:
            if membership.is_member:
                _log.warning(LATE, self.group_id)
                self._leave()
        elif membership.is_member or membership.has_news:
            deadline = Deadline.after_ms(self._cluster.settings.request_timeout_ms)
            membership.answered(self._call(self._request, self._api_key, self._answer, deadline))

    def _request(self, version: int) -> Heartbeat:
        request = self.membership.request()
        if (
            isinstance(request, m.ConsumerGroupHeartbeatRequest)
            and request.subscribed_topic_regex
            and version < _WITH_PATTERNS
        ):
            raise KafkaError(
                f"group {self.group_id}: the broker matches no patterns (it serves version {version} of the protocol): "
                "subscribe to a list of topics, or set group_protocol=classic",
                ErrorCode.UNSUPPORTED_VERSION,
            )
        return request

    def _failed(self, cause: KafkaError) -> None:
        """After a failed heartbeat: say everything again, to a new coordinator if that is the cause; or end."""
        with self._lock:
            self.membership.unanswered()
            if cause.code in LOST_COORDINATOR or isinstance(cause, BrokerUnreachable | DeadlineExceeded):
                self._drop_coordinator()
                _log.info("group %s: a heartbeat failed: %s", self.group_id, cause)
            elif not cause.code.retriable:
                is_unserved = isinstance(cause, UnsupportedVersion) and "group_protocol" not in cause.message
                self._fatal = self.membership.error(cause.code, cause.message) if is_unserved else cause
                _log.error("%s", self._fatal)

    # -- the end

    def leave(self) -> None:
        """Leave the group (a static member keeps its partitions for a while); `advance` joins it again."""
        with self._lock:
            try:
                self._leave()
            except KafkaError as cause:
                _log.info("group %s: this member could not leave the group: %s", self.group_id, cause)
            self.membership.left()
            self.membership.rejoin()

    def close(self) -> None:
        """Leave the group and close the connection."""
        self._ended = True
        self._wake.set()
        with self._lock:
            self.leave()
            self._drop_coordinator()
        if self._thread is not None:
            self._thread.join(_LEAVE_TIMEOUT_MS / 1000)

    def _leave(self) -> None:
        if self.membership.is_member and self._connection is not None and self._connection.usable:
            deadline = Deadline.after_ms(_LEAVE_TIMEOUT_MS)
            self._call(lambda _: self.membership.leave_request(), self._api_key, self._answer, deadline)
        self.membership.left()
