"""Fetches records for a share consumer, and sends its acknowledgements with the next fetch, or alone.

Each leader has one request in flight: a session's requests come one after the other. Records are fetched when the
application asks for some, since their locks run from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from headrace.client.core.cluster import Cluster
from headrace.client.core.connection import Connection, Pending, pump_any
from headrace.client.core.failures import BrokerUnreachable, DeadlineExceeded, error_for
from headrace.client.core.timing import Backoff, Deadline
from headrace.client.core.wakeup import Wakeup
from headrace.client.share.acknowledgements import PartitionRecords
from headrace.client.share.acquired_records import Acquired, acquired_records
from headrace.client.share.share_session import FetchLimits, Place, ShareSessionHandler, has_renewals
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.types import BrokerId, Offset, TopicPartition

Acknowledged = Callable[[TopicPartition, frozenset[int], KafkaError | None], None]
Sent = dict[TopicPartition, dict[Offset, int]]

_WITH_RENEWALS = 2
_GRACE_MS = 1_000


@dataclass(slots=True)
class _Flight:
    pending: Pending[m.ShareFetchResponse] | Pending[m.ShareAcknowledgeResponse]
    sent: Sent
    deadline: Deadline


@dataclass(slots=True)
class _Node:
    session: ShareSessionHandler
    connection: Connection | None = None
    flight: _Flight | None = None
    places: dict[Place, TopicPartition] = field(default_factory=dict)


class ShareFetcher:
    """The sessions with all leaders; used by one thread."""

    def __init__(
        self, cluster: Cluster, group_id: str, member_id: str, limits: FetchLimits, acknowledged: Acknowledged
    ) -> None:
        """`acknowledged` is told of each partition's acknowledgements, with the error if they were refused."""
        self.wakeup: Wakeup = Wakeup()
        self.records: dict[TopicPartition, PartitionRecords] = {}
        self._cluster = cluster
        self._group_id, self._member_id = group_id, member_id
        self._limits = limits
        self._acknowledged = acknowledged
        self._nodes: dict[BrokerId, _Node] = {}
        self._holders: dict[TopicPartition, BrokerId] = {}
        self._places: dict[TopicPartition, Place] = {}
        self._arrived: list[Acquired] = []
        self._is_woken = False
        self._backoff = Backoff(cluster.settings.retry_backoff_ms, cluster.settings.retry_backoff_max_ms)
        self._pause_until: Deadline | None = None

    def fetch(self, assigned: Mapping[TopicPartition, Place], deadline: Deadline) -> list[Acquired]:
        """The acquired records that arrive until `deadline`: those of the first answers that have some.

        Raises KafkaErrors that are not retriable.
        """
        self._places.update(assigned)
        while not self._arrived:
            self._send_fetches(assigned)
            self._wait(deadline)
            self._collect()
            self._is_woken = self._is_woken or self.wakeup.take()
            if self._is_woken or deadline.expired:
                break
        return self.take_arrived()

    def take_woken(self) -> bool:
        """Whether a fetch ended because of `wakeup`; once."""
        was_woken, self._is_woken = self._is_woken, False
        return was_woken

    def take_arrived(self) -> list[Acquired]:
        """The acquired records that have arrived."""
        arrived, self._arrived = self._arrived, []
        return arrived

    def forget(self) -> None:
        """The sessions have ended: this member has no record any more."""
        self.records.clear()
        self._holders.clear()
        for node in self._nodes.values():
            node.session.lost()

    def acknowledge(self, deadline: Deadline, *, is_last: bool = False) -> None:
        """Send all acknowledgements and wait for the answers; `is_last` ends the sessions."""
        self._finish(deadline)
        for broker, node in self._nodes.items():
            if node.flight is not None:
                continue  # out of time: what is to be sent goes with the next fetch
            sent = self._take(broker)
            if sent and not node.session.is_open:
                self._refused(sent, error_for(ErrorCode.SHARE_SESSION_NOT_FOUND, f"group {self._group_id}"))
            elif sent or (is_last and node.session.is_open):
                self._send_acknowledgements(node, sent, deadline, is_last=is_last)
        self._finish(deadline)

    def close(self) -> None:
        """Drop what is in flight."""
        self.wakeup.close()

    # -- asking

    def _send_fetches(self, assigned: Mapping[TopicPartition, Place]) -> None:
        if self._pause_until is not None and not self._pause_until.expired:
            return
        self._pause_until = None
        by_leader: dict[BrokerId, list[TopicPartition]] = {}
        for partition in assigned:
            leader = self._leader(partition)
            if leader is not None:
                by_leader.setdefault(leader, []).append(partition)
        for broker in by_leader.keys() | self._nodes.keys():
            node = self._nodes.setdefault(broker, _Node(ShareSessionHandler(self._group_id, self._member_id)))
            if node.flight is None:
                self._send_fetch(broker, node, {assigned[each]: each for each in by_leader.get(broker, ())})

    def _send_fetch(self, broker: BrokerId, node: _Node, places: dict[Place, TopicPartition]) -> None:
        sent = self._take(broker) if node.session.is_open else {}
        if not places and not sent:
            return
        deadline = Deadline.after_ms(self._cluster.settings.request_timeout_ms)
        if has_renewals({self._places[each]: offsets for each, offsets in sent.items()}):
            self._send_acknowledgements(node, sent, deadline)
            return
        acknowledged = {self._places[each]: offsets for each, offsets in sent.items()}
        node.places.update(places)
        try:
            node.connection = self._cluster.connection(broker, deadline)
            request = node.session.fetch_request(places, acknowledged, self._limits)
            node.flight = _Flight(node.connection.send(request, m.ShareFetchResponse, deadline), sent, deadline)
        except KafkaError as cause:
            self._lost(node, sent, cause, places.values())

    def _send_acknowledgements(self, node: _Node, sent: Sent, deadline: Deadline, *, is_last: bool = False) -> None:
        acknowledged = {self._places[each]: offsets for each, offsets in sent.items()}
        limit = deadline.sooner(self._cluster.settings.request_timeout_ms)
        try:
            if node.connection is None or not node.connection.usable:
                raise BrokerUnreachable("the connection to the leader was lost")
            if (
                has_renewals(acknowledged)
                and node.connection.versions.choose(ApiKey.SHARE_ACKNOWLEDGE) < _WITH_RENEWALS
            ):
                raise KafkaError(
                    "the broker renews no locks (it is older than Apache Kafka 4.2): acknowledge otherwise",
                    ErrorCode.UNSUPPORTED_VERSION,
                )
            request = node.session.acknowledge_request(acknowledged, is_last=is_last)
            node.flight = _Flight(node.connection.send(request, m.ShareAcknowledgeResponse, limit), sent, limit)
        except KafkaError as cause:
            self._lost(node, sent, cause, sent)

    def _take(self, broker: BrokerId) -> Sent:
        """What is to be acknowledged at this broker."""
        return {
            partition: records.take()
            for partition, records in self.records.items()
            if records.has_pending and self._holders.get(partition) == broker
        }

    def _leader(self, partition: TopicPartition) -> BrokerId | None:
        deadline = Deadline.after_ms(self._cluster.settings.request_timeout_ms)
        try:
            return self._cluster.leader(partition, deadline)
        except KafkaError as cause:
            self._failed(cause, [partition])
            return None

    # -- answers

    def _wait(self, deadline: Deadline) -> None:
        limit = deadline
        if self._pause_until is not None and not self._pause_until.expired:
            limit = deadline.sooner(self._pause_until.remaining_s * 1000)
        in_flight = [node.connection for node in self._nodes.values() if node.flight and node.connection]
        if not in_flight:
            limit = limit.sooner(self._cluster.settings.retry_backoff_ms)
        pump_any(in_flight, limit.remaining_s, self.wakeup.fileno())

    def _finish(self, deadline: Deadline) -> None:
        """Wait for all that is in flight."""
        while any(node.flight for node in self._nodes.values()):
            self._collect()
            if deadline.expired:
                return
            self._wait(deadline.sooner(_GRACE_MS))
            self._collect()

    def _collect(self) -> None:
        for node in self._nodes.values():
            flight = node.flight
            if flight is None:
                continue
            if flight.pending.done:
                node.flight = None
                self._answered(node, flight)
            elif flight.deadline.expired and node.connection is not None:
                node.connection.give_up()

    def _answered(self, node: _Node, flight: _Flight) -> None:
        try:
            answer = flight.pending.result()
            node.session.answered(answer.error_code)
            if answer.error_code:
                raise error_for(answer.error_code, f"share group {self._group_id}: {answer.error_message or ''}")
        except KafkaError as cause:
            self._lost(node, flight.sent, cause, list(node.places.values()))
            return
        self._backoff.reset()
        refused: dict[TopicPartition, KafkaError] = {}
        broker = next(known for known, each in self._nodes.items() if each is node)
        trouble: KafkaError | None = None
        if isinstance(answer, m.ShareFetchResponse):
            for topic in answer.responses:
                for part in topic.partitions:
                    try:
                        self._take_part(node, broker, (topic.topic_id, part.partition_index), part, refused)
                    except KafkaError as error:  # of one partition: the others' records are acquired
                        trouble = trouble or error
        else:
            for acknowledged in answer.responses:
                for one in acknowledged.partitions:
                    place = node.places.get((acknowledged.topic_id, one.partition_index))
                    if one.error_code and place is not None:
                        refused[place] = self._error(one.error_code, place, one.error_message)
        for partition, offsets in flight.sent.items():
            self._tell(partition, offsets, refused.get(partition))
        if trouble is not None:
            raise trouble

    def _take_part(
        self,
        node: _Node,
        broker: BrokerId,
        place: Place,
        part: m.ShareFetchResponse.PartitionData,
        refused: dict[TopicPartition, KafkaError],
    ) -> None:
        partition = node.places.get(place)
        if partition is None:
            return
        if part.acknowledge_error_code:
            refused[partition] = self._error(part.acknowledge_error_code, partition, part.acknowledge_error_message)
        if part.error_code:
            self._failed(self._error(part.error_code, partition, part.error_message), [partition])
            return
        acquired = acquired_records(partition, part)
        if not acquired.records and not acquired.gaps:
            return
        self._holders[partition], self._places[partition] = broker, place
        self.records.setdefault(partition, PartitionRecords()).gaps(acquired.gaps)
        if acquired.records:
            self._arrived.append(acquired)

    def _error(self, code: int, partition: TopicPartition, message: str | None) -> KafkaError:
        return error_for(code, f"{partition} in share group {self._group_id}{f': {message}' if message else ''}")

    def _lost(self, node: _Node, sent: Sent, cause: KafkaError, partitions: Iterable[TopicPartition]) -> None:
        """A request failed as a whole: its session begins anew, and what it acknowledged is refused."""
        node.session.lost()
        node.flight = None
        if isinstance(cause, DeadlineExceeded) and node.connection is not None:
            node.connection.close()
        self._refused(sent, cause)
        if cause.code not in (ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH):
            self._failed(cause, partitions)

    def _refused(self, sent: Sent, cause: KafkaError) -> None:
        for partition, offsets in sent.items():
            self._tell(partition, offsets, cause)

    def _tell(self, partition: TopicPartition, offsets: Mapping[Offset, int], cause: KafkaError | None) -> None:
        of_records = frozenset(offset for offset, kind in offsets.items() if kind)
        if of_records:
            self._acknowledged(partition, of_records, cause)

    def _failed(self, cause: KafkaError, partitions: Iterable[TopicPartition]) -> None:
        """Ask for metadata and back off, or raise an error that is not retriable."""
        if not cause.code.retriable:
            raise cause
        for partition in partitions:
            self._cluster.forget(partition.topic)
        self._pause_until = Deadline.after_ms(self._backoff.next_ms())
