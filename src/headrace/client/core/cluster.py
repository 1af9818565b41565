"""A client's view of a cluster: metadata, and a connection to each broker.

    bootstrap addresses ──▶ control connection ── Metadata ──▶ ClusterView ──▶ leader of a partition
                                                                   │
                                                broker id ─▶ data connection (opened on first use)

The control connection carries metadata and administration, under a lock, so that any thread may use it. A data
connection belongs to its user (a producer's sender thread, a consumer's poll). The connection to a broker that does not
answer is dropped and opened again on next use. `retry` repeats calls until a deadline.
"""

import logging
import os
import threading
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakSet

from headrace.client.core.connection import Connection, R
from headrace.client.core.failures import BrokerUnreachable, ClientClosed, DeadlineExceeded, SecurityMismatch, error_for
from headrace.client.core.forks import forked_error, watch
from headrace.client.core.metadata import EMPTY_VIEW, ClusterView, PartitionInfo, TopicInfo, merge, view_from
from headrace.client.core.missing_topics import WARN_AFTER_MS, missing_text
from headrace.client.core.settings import Address, ClientSettings, parse_addresses
from headrace.client.core.timing import Backoff, Deadline
from headrace.client.metrics.network import ConnectionMetrics, NetworkMetrics
from headrace.errors import ErrorCode, KafkaError, UnknownTopicOrPartition
from headrace.protocol import messages as m
from headrace.protocol.codec.message import Message
from headrace.types import NO_LEADER, BrokerId, TopicPartition

if TYPE_CHECKING:
    from headrace.network.sasl.login import Login

T = TypeVar("T")

_log = logging.getLogger(__name__)

_STALE_METADATA = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NOT_CONTROLLER,
    }
)
"""Error codes after which a retry refreshes the metadata first."""


class Cluster:
    """Metadata, connections and retries for one client."""

    def __init__(self, bootstrap: str | Sequence[str], settings: ClientSettings | None = None) -> None:
        self.settings: ClientSettings = settings or ClientSettings()
        self.bootstrap: list[Address] = parse_addresses(bootstrap)
        self.view: ClusterView = EMPTY_VIEW
        self.metrics: NetworkMetrics | None = None
        """What the connections do, where it is measured; set it before the first call."""
        self._lock = threading.RLock()
        self._control: Connection | None = None
        self._data: dict[BrokerId, Connection] = {}
        self._dialled: WeakSet[Connection] = WeakSet()
        self.silent: set[Address] = set()
        """Where a broker did not answer in time, and has not answered since: it is asked last. It may take connections
        and answer nothing, so each question to it costs the time of one."""
        self._closed = False
        self._refreshed_at: Deadline | None = None
        self._credentials: Login | None = None
        self._process = os.getpid()
        self._is_forked = False
        watch(self)

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection; requests in flight fail."""
        self._closed = True
        if self._is_forked:  # the connections are the parent's, and its lock may be held
            return
        with self._lock:
            for connection in [*self._data.values(), *([self._control] if self._control else [])]:
                connection.close()
            self._data.clear()
            self._control = None

    def interrupt(self) -> None:
        """Fail the call in progress, and all later ones, because the client closes. Any thread may call."""
        self._closed = True
        for connection in self._dialled.copy():
            connection.interrupt()

    def forked(self) -> None:
        """This process is a fork of the one that made the cluster: every later call raises ClientForked."""
        self._is_forked = True
        self.view = EMPTY_VIEW

    @property
    def is_forked(self) -> bool:
        """Whether this process is a fork of the one that made the cluster."""
        return self._is_forked

    def check_process(self) -> None:
        """Raises ClientForked in a fork."""
        if self._is_forked:
            raise forked_error(self._process)

    def deadline(self) -> Deadline:
        """The deadline of a public call that starts now."""
        return Deadline.after_ms(self.settings.api_timeout_ms)

    # -- metadata

    def refresh(
        self, topics: Collection[str] | None, deadline: Deadline | None = None, *, create: bool = False
    ) -> ClusterView:
        """Request `topics` (None: all), merge them into `view`, and return it. `create` lets a broker create them."""
        request = m.MetadataRequest(
            topics=None if topics is None else [m.MetadataRequest.MetadataRequestTopic(name=name) for name in topics],
            allow_auto_topic_creation=create,
        )
        self.check_process()
        with self._lock:
            answer = self.call_any(request, m.MetadataResponse, deadline or self.deadline())
            self.view = merge(self.view, view_from(answer), all_topics=topics is None)
            self._refreshed_at = Deadline.after_ms(self.settings.metadata_max_age_ms)
            return self.view

    @property
    def metadata_is_old(self) -> bool:
        """Whether `metadata_max_age_ms` has passed since the last refresh."""
        return self._refreshed_at is None or self._refreshed_at.expired

    def topic(self, name: str, deadline: Deadline | None = None, *, create: bool = False) -> TopicInfo:
        """The topic, from memory or by a request; waits while it is being created.

        Raises UnknownTopicOrPartition if there is none; with `create`, DeadlineExceeded if it is not created in time.
        A wait that takes long is logged, with the name and similar ones.
        """
        known = self.view.topics.get(name)
        if known is not None and known.error == ErrorCode.NONE and known.partitions:
            return known
        limit = deadline or self.deadline()
        patience, told = Deadline.after_ms(WARN_AFTER_MS if create else 0), ""

        def attempt() -> TopicInfo:
            nonlocal told
            try:
                return self._ask_topic(name, create)
            except UnknownTopicOrPartition as cause:
                if not told and patience.expired:
                    told = missing_text(name, self._similar_names())
                    if create:
                        _log.warning("%s (no broker has created it; waiting %.0f s)", told, limit.remaining_s)
                raise UnknownTopicOrPartition(told) if told else cause from None

        return self.retry(attempt, limit, wait_for_topic=create)

    def _similar_names(self) -> list[str]:
        """The names of all topics, for an error. The error must not be that they could not be had in the time left."""
        try:
            return self.topic_names(Deadline.after_ms(WARN_AFTER_MS))
        except KafkaError:
            return []

    def topic_names(self, deadline: Deadline) -> list[str]:
        """The names of all topics, without remembering them."""
        answer = self.call_any(m.MetadataRequest(topics=None), m.MetadataResponse, deadline)
        return sorted(view_from(answer).topics)

    def partition(self, partition: TopicPartition, deadline: Deadline | None = None) -> PartitionInfo:
        """The partition's metadata; UnknownTopicOrPartition says how many partitions the topic has."""
        infos = self.topic(partition.topic, deadline).partitions
        if not 0 <= partition.partition < len(infos):
            raise UnknownTopicOrPartition(
                f"{partition} does not exist: topic {partition.topic} has partitions 0 to {len(infos) - 1}"
            )
        return infos[partition.partition]

    def leader(self, partition: TopicPartition, deadline: Deadline | None = None) -> BrokerId:
        """The leader of `partition`. Raises KafkaError (LEADER_NOT_AVAILABLE, retriable) while there is none."""
        leader = self.partition(partition, deadline).leader
        if leader == NO_LEADER:
            self.forget(partition.topic)
            raise KafkaError(f"{partition} has no leader", ErrorCode.LEADER_NOT_AVAILABLE)
        return leader

    def forget(self, topic: str) -> None:
        """Drop the metadata of `topic`, so that the next use requests it."""
        self.check_process()
        with self._lock:
            self.view = self.view._replace(topics={k: v for k, v in self.view.topics.items() if k != topic})

    def _ask_topic(self, name: str, create: bool) -> TopicInfo:
        info = self.refresh([name], create=create).topics.get(name)
        if info is None or info.error != ErrorCode.NONE:
            code = info.error if info else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if code == ErrorCode.INVALID_TOPIC_EXCEPTION:
                raise error_for(
                    code, f"{name!r} is no topic's name, which has 1 to 249 of a-z, A-Z, 0-9, '.', '_', '-'"
                )
            raise error_for(code, f"topic {name}")
        return info

    # -- connections

    def connection(self, broker: BrokerId, deadline: Deadline) -> Connection:
        """The data connection to `broker`, opened and negotiated when needed."""
        self.check_process()
        held = self._data.get(broker)
        if held is not None and held.usable:
            return held
        address = self.view.brokers.get(broker)
        if address is None:
            address = self.refresh([], deadline).brokers.get(broker)
        if address is None:
            raise KafkaError(f"broker {broker} is not in the metadata of the cluster", ErrorCode.BROKER_NOT_AVAILABLE)
        opened = self.dial(address, deadline)
        if opened.metrics is not None and self.metrics is not None:
            opened.metrics.node = self.metrics.node(broker)
        self._data[broker] = opened
        return opened

    def held(self, broker: BrokerId) -> Connection | None:
        """The data connection to `broker`, if there is a usable one."""
        connection = self._data.get(broker)
        return connection if connection is not None and connection.usable else None

    def in_flight(self) -> int:
        """How many requests of all connections have no answer yet."""
        return sum(connection.in_flight for connection in self._dialled.copy())

    def dial(self, address: Address, deadline: Deadline) -> Connection:
        """A new, negotiated connection, owned by the caller."""
        self.check_process()
        if self._closed:
            raise ClientClosed("the client is closed")
        login = self._login()
        connection = Connection.open(address, self.settings, deadline)
        if self.metrics is not None:
            connection.metrics = ConnectionMetrics(self.metrics)
        self._dialled.add(connection)
        connection.on_silence = self.silent.add
        try:
            connection.negotiate(deadline.sooner(self.settings.request_timeout_ms))
            if login is not None:
                connection.authenticate(login, deadline.sooner(self.settings.request_timeout_ms))
        except BaseException:
            connection.close()
            raise
        self.silent.discard(address)
        return connection

    def _login(self) -> "Login | None":
        """The credentials for every broker. Raises InvalidConfig."""
        if self._credentials is None and self.settings.sasl is not None:
            from headrace.network.sasl.login import login_of

            self._credentials = login_of(self.settings.sasl)
        return self._credentials

    # -- calls

    def call(self, broker: BrokerId, request: Message, answer: type[R], deadline: Deadline) -> R:
        """One attempt on the broker's data connection."""
        limit = deadline.sooner(self.settings.request_timeout_ms)
        return self.connection(broker, limit).call(request, answer, limit)

    def call_any(self, request: Message, answer: type[R], deadline: Deadline) -> R:
        """The answer of any reachable broker; tries each known address once. Any thread may call."""
        self.check_process()
        with self._lock:
            failure: KafkaError | None = None
            for _ in range(2):
                try:
                    connection = self._control_connection(deadline)  # may have waited for silent addresses first
                    limit = deadline.sooner(self.settings.request_timeout_ms)
                    return connection.call(request, answer, limit)
                except (BrokerUnreachable, DeadlineExceeded) as cause:
                    failure = cause
                    if self._control is None or deadline.expired:
                        break
                    self._control = None
            assert failure is not None
            raise failure

    def call_controller(self, request: Message, answer: type[R], deadline: Deadline) -> R:
        """One attempt on the controller, as the newest metadata names it."""
        self.check_process()
        with self._lock:
            controller = self.view.controller
            if controller not in self.view.brokers:
                controller = self.refresh([], deadline).controller
        return self.call(controller, request, answer, deadline)

    def _control_connection(self, deadline: Deadline) -> Connection:
        if self._control is not None and self._control.usable:
            if self._control.address not in self.silent:
                return self._control
            self._control.close()
        self._control = None
        failures: list[KafkaError] = []
        known = dict.fromkeys([*self.bootstrap, *self.view.brokers.values()])
        for address in sorted(known, key=self.silent.__contains__):
            try:
                self._control = self.dial(address, deadline)
                return self._control
            except (BrokerUnreachable, DeadlineExceeded) as cause:
                failures.append(cause)
        raise _joined(failures)

    # -- retrying

    def retry(self, attempt: Callable[[], T], deadline: Deadline, *, wait_for_topic: bool = False) -> T:
        """Call until it succeeds, fails for good, or time runs out. Refreshes metadata if the error requires it.

        An unknown topic is final unless `wait_for_topic`. If no broker was ever reached, that is final too, so that a
        wrong address is reported at once, unless the settings say `waits_for_brokers`.
        """
        backoff = Backoff(self.settings.retry_backoff_ms, self.settings.retry_backoff_max_ms)
        answered: KafkaError | None = None  # the last attempt often has too little time left to be answered
        while True:
            try:
                return attempt()
            except KafkaError as cause:
                is_late = isinstance(cause, DeadlineExceeded)
                gives_up = not self._worth_retrying(cause, wait_for_topic)
                if gives_up and not (is_late and answered):
                    raise
                if not is_late:
                    answered = cause
                if gives_up or deadline.expired:
                    if answered is None:
                        raise
                    raise DeadlineExceeded(
                        f"the operation did not succeed in time; the last attempt failed with: {answered}"
                    ) from cause
                if cause.code in _STALE_METADATA:
                    self._refresh_quietly(deadline)
            deadline.sleep_ms(backoff.next_ms())

    def _worth_retrying(self, cause: KafkaError, wait_for_topic: bool) -> bool:
        if self._closed:
            return False
        if isinstance(cause, DeadlineExceeded):
            return self.settings.waits_for_brokers
        if cause.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return wait_for_topic
        if isinstance(cause, SecurityMismatch) and cause.is_certain:
            return False
        if isinstance(cause, BrokerUnreachable):
            return self.settings.waits_for_brokers or bool(self.view.brokers)
        return cause.code.retriable

    def _refresh_quietly(self, deadline: Deadline) -> None:
        try:
            self.refresh(list(self.view.topics), deadline)
        except KafkaError:
            pass  # the next attempt fails the same way and reports it


def _joined(failures: Sequence[KafkaError]) -> BrokerUnreachable:
    """The failures of all addresses as one. What security settings to change comes first; equal texts come once."""
    refused = [each for each in failures if isinstance(each, SecurityMismatch)]
    text = "; ".join(dict.fromkeys(each.message for each in (*refused, *failures)))
    if not refused:
        return BrokerUnreachable(text)
    is_certain = len(refused) == len(failures) and all(each.is_certain for each in refused)
    return SecurityMismatch(text, is_certain=is_certain)
