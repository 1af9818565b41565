"""The short way of a record that is alone: the thread that sends it, and waits for it, does the sender's work itself.

    send ─▶ nothing under way, no linger ─▶ the request, from this thread ─▶ result() ─▶ the answer, in this thread
                                                    │ nobody waits
                                                    └──▶ the sender's thread looks soon, and takes the answer

Two threads that wake each other cost more time than the broker. The role of the sender is a lock: who has it has the
connections, so that never two threads use one. The sender's thread waits for bytes without the role, and asks a thread
that waits with it to leave.

A producer takes the short way while its records are waited for: then the next one likely is, too, and the sender's
thread need not be woken. It looks every `LOOKS_S` whether one is not. What is not the rule goes the long way: an error,
a repetition, a new leader, a compressed batch, a callback, which the sender's thread calls.
"""

from __future__ import annotations

import select
import threading
from collections.abc import Iterable
from struct import Struct
from time import monotonic
from typing import NamedTuple

from headrace.client.core.cluster import Cluster
from headrace.client.core.connection import Connection, Payload, Pending
from headrace.client.core.metadata import ClusterView
from headrace.client.core.timing import Backoff, Deadline
from headrace.client.core.wakeup import Wakeup
from headrace.client.metrics.producing import ProducerMetrics
from headrace.client.producer.accumulator import Accumulator, PartitionQueue
from headrace.client.producer.delivery import Batch
from headrace.client.producer.encoded_batches import SendPolicy, produce_request
from headrace.client.producer.producer_identity import ProducerIdentity
from headrace.errors import KafkaError
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.protocol.codec.wire import write_uvarint
from headrace.protocol.headers import response_header, write_request_header
from headrace.records.codecs.compression import Codec
from headrace.records.format2.header import HEADER_BYTES
from headrace.records.format2.rows import RowBuffer
from headrace.types import TopicPartition

LOOKS_S = 0.05
_BYTES_MAX = 16 << 10
"""Of a record that goes the short way: any socket takes it at once."""
_FLEXIBLE_FROM = 9
"""The version of Produce whose lengths are variable. Older brokers are talked to the long way."""
_START = Struct(">i4si")
_PLACE = Struct(">qqq")
_SAMPLE_BYTES, _MARK = 100, 0x7E7E7E7E7E7E7E7E


class Flight(NamedTuple):
    """One Produce request in flight."""

    connection: Connection
    pending: Pending[m.ProduceResponse]
    batches: dict[TopicPartition, Batch]
    size_bytes: int
    sent_s: float
    deadline: Deadline


class ProduceForm:
    """The bytes of a Produce request of one batch for one partition, and of its answer, but for what differs."""

    __slots__ = (
        "_after",
        "_answer_begin",
        "_answer_bytes",
        "_answer_end",
        "_before",
        "_fixed_bytes",
        "_head",
        "version",
    )

    def __init__(self, partition: TopicPartition, version: int, policy: SendPolicy, client_id: str) -> None:
        self.version: int = version
        sample = Batch(partition, RowBuffer(HEADER_BYTES), 0, 0.0, 0.0)
        sample.encoded = bytearray(_SAMPLE_BYTES)
        pieces = produce_request([sample], policy, None).encode_chunks(version)
        place = next(place for place, piece in enumerate(pieces) if isinstance(piece, Payload))
        before, after = _joined(pieces[:place]), _joined(pieces[place + 1 :])
        header = write_request_header(ApiKey.PRODUCE, version, 0, client_id)
        self._head = header[:4]
        self._before = header[8:] + before[:-1]  # without the length of the sample, one byte
        self._after = after
        self._fixed_bytes = 8 + len(self._before) + len(after)
        part = m.ProduceResponse.PartitionProduceResponse(
            index=partition.partition, base_offset=_MARK, log_append_time_ms=_MARK, log_start_offset=_MARK
        )
        topic = m.ProduceResponse.TopicProduceResponse(name=partition.topic, partition_responses=[part])
        answer = response_header(ApiKey.PRODUCE, version, 0) + m.ProduceResponse(responses=[topic]).encode(version)
        place = answer.rindex(_PLACE.pack(_MARK, _MARK, _MARK))
        self._answer_begin, self._answer_end = answer[4:place], answer[place + _PLACE.size :]
        self._answer_bytes = len(answer)

    def frame(self, correlation_id: int, batch: bytearray) -> bytes:
        """The request, its size included."""
        length = write_uvarint(len(batch) + 1)
        size = self._fixed_bytes + len(length) + len(batch)
        return b"".join((_START.pack(size, self._head, correlation_id), self._before, length, batch, self._after))

    def place(self, answer: memoryview) -> tuple[int, int] | None:
        """The base offset and the time of the append, or None: the answer says more."""
        if len(answer) != self._answer_bytes:
            return None
        place = 4 + len(self._answer_begin)
        if answer[4:place] != self._answer_begin or answer[place + _PLACE.size :] != self._answer_end:
            return None
        base_offset, log_append_time_ms, _ = _PLACE.unpack_from(answer, place)
        return base_offset, log_append_time_ms


def _joined(pieces: Iterable[object]) -> bytes:
    return b"".join(piece for piece in pieces if isinstance(piece, bytes))


class _Route(NamedTuple):
    """How a partition's records go, as long as the cluster looks so."""

    view: ClusterView
    connection: Connection
    fd: int
    form: ProduceForm
    poller: select.poll


class ShortWay:
    """The part of a sender that other threads than its own may do."""

    def __init__(
        self,
        cluster: Cluster,
        accumulator: Accumulator,
        policy: SendPolicy,
        metrics: ProducerMetrics | None,
        lock: threading.Lock,
        *,
        is_possible: bool,
    ) -> None:
        self.lock: threading.Lock = lock
        self._cluster = cluster
        self._accumulator = accumulator
        self._policy = policy
        self._metrics = metrics
        self._role = threading.Lock()
        self._flights: list[Flight] = []
        self._producer = ProducerIdentity()
        self._new_id_wanted = False
        self._refresh_wanted: set[str] = set()
        self._backoff = Backoff(cluster.settings.retry_backoff_ms, cluster.settings.retry_backoff_max_ms)
        self._pause_until_s = 0.0
        self._has_short_way = (
            is_possible
            and hasattr(select, "poll")
            and accumulator.limits.linger_s == 0
            and policy.acks != 0
            and policy.codec is Codec.NONE
        )
        self._routes: dict[TopicPartition, _Route] = {}
        self._is_waited_for = False  # whether records were, when the sender's thread looked
        self._was_waited_for = False  # the same, since then
        self._leaving: Wakeup | None = None  # readable when a thread that waits with the role is to leave

    # -- the role

    def _take_role(self) -> None:
        """Become the one who uses the connections; the sender's thread calls."""
        if not self._role.acquire(blocking=False):
            if self._leaving is not None:
                self._leaving.set()
            self._role.acquire()

    def _end_short_way(self, *, is_alone: bool) -> None:
        """No other thread does the sender's work from now on. `is_alone`: the sender's thread has ended, too."""
        self._has_short_way = self._is_waited_for = False
        leaving = self._leaving
        if leaving is None:
            return
        leaving.set()
        if is_alone:
            with self._role:
                self._leaving = None
                leaving.close()

    def _looks_within_s(self, wait_s: float) -> float:
        """How long the sender's thread waits that would wait for `wait_s`, and has the role."""
        self._is_waited_for, self._was_waited_for = self._was_waited_for, False
        return min(wait_s, LOOKS_S) if self._is_waited_for else wait_s

    # -- out

    def send_now(self, queue: PartitionQueue) -> bool:
        """Send the record that was just added, if it is alone; whether nothing is left to do. Any thread may call."""
        if not self._is_waited_for or self._flights or not self._role.acquire(blocking=False):
            return False
        try:
            now_s = monotonic()
            if not self._is_clear(now_s):
                return False
            route = self._routes.get(queue.partition)
            if route is None or route.view is not self._cluster.view or not route.connection.is_free:
                route = self._new_route(queue.partition)
                if route is None:
                    return False
            with self.lock:
                if len(queue.waiting) != 1 or queue.retries or queue.in_flight:
                    return False
                if queue.waiting[0].size_bytes > _BYTES_MAX:
                    return False
                batch = queue.take_head()
            try:
                return self._send_alone(route, batch, now_s)
            except BaseException:  # an interrupt: whether the request was sent is not known
                route.connection.close()
                if not self._flights:
                    self._take_back(queue, batch)
                raise
        finally:
            self._role.release()

    def _is_clear(self, now_s: float) -> bool:
        """Whether the sender would send now, without asking anybody before. Has the role."""
        return (
            self._is_waited_for
            and not self._flights
            and not self._new_id_wanted
            and not self._refresh_wanted
            and now_s >= self._pause_until_s
            and not self._cluster.metadata_is_old
            and self._knows_producer_id()
        )

    def _new_route(self, partition: TopicPartition) -> _Route | None:
        """The way to the leader, if a connection to it is free and the broker speaks the version of the form."""
        self._routes.pop(partition, None)
        view = self._cluster.view
        topic = view.topics.get(partition.topic)
        if topic is None or partition.partition >= len(topic.partitions):
            return None
        connection = self._cluster.held(topic.partitions[partition.partition].leader)
        if connection is None or not connection.is_free:
            return None
        version = connection.versions.choose(ApiKey.PRODUCE)
        if version < _FLEXIBLE_FROM:
            return None
        if self._leaving is None:
            self._leaving = Wakeup()
        form = ProduceForm(partition, version, self._policy, self._cluster.settings.client_id)
        poller = select.poll()
        poller.register(connection.fileno(), select.POLLIN)
        poller.register(self._leaving.fileno(), select.POLLIN)
        route = self._routes[partition] = _Route(view, connection, connection.fileno(), form, poller)
        return route

    def _send_alone(self, route: _Route, batch: Batch, now_s: float) -> bool:
        connection, form = route.connection, route.form
        deadline = Deadline(now_s + self._policy.request_timeout_ms / 1000)
        if not self._encode(batch):
            return True  # it was told
        data = batch.encoded
        assert data is not None
        try:
            pending = connection.send_frame(
                lambda number: form.frame(number, data), ApiKey.PRODUCE, form.version, m.ProduceResponse, deadline
            )
        except KafkaError as cause:
            self._retry_or_fail(batch, cause)
            return False
        if self._metrics is not None:
            self._metrics.sent((batch,))
        self._flights.append(Flight(connection, pending, {batch.partition: batch}, len(data), now_s, deadline))
        if not batch.has_callbacks:
            batch.helper = self
        return True

    def _take_back(self, queue: PartitionQueue, batch: Batch) -> None:
        """Have the sender's thread send it."""
        with self.lock:
            if batch in queue.in_flight:
                queue.give_back(batch, 0.0)
        self.asleep = True
        self.wake()

    # -- in

    def help(self, batch: Batch, timeout_s: float | None) -> float | None:
        """Wait for a batch with the role of the sender, if it is alone, at most for `timeout_s`; returns what is left
        of that. The batch may not be done then: the sender's thread has it."""
        began_s = monotonic()
        self._was_waited_for = self._has_short_way
        if not self._cluster.is_forked and self._role.acquire(blocking=False):
            try:
                route = self._routes.get(batch.partition)
                if route is not None and len(self._flights) == 1:
                    self._wait_alone(self._flights[0], batch, route, timeout_s)
            finally:
                self._role.release()
        return None if timeout_s is None else max(0.0, timeout_s - (monotonic() - began_s))

    def _wait_alone(self, flight: Flight, batch: Batch, route: _Route, timeout_s: float | None) -> None:
        connection, pending = flight.connection, flight.pending
        if list(flight.batches.values()) != [batch] or connection is not route.connection or self._leaving is None:
            return
        try:
            while True:
                try:
                    connection.pump()  # the answer may be there already
                except BaseException:  # an interrupt: what was received may be lost
                    connection.close()
                    raise
                if pending.done:
                    break
                left_s = flight.deadline.remaining_s
                ready = route.poller.poll((left_s if timeout_s is None else min(left_s, max(0.0, timeout_s))) * 1000)
                if not ready:
                    break
                if len(ready) > 1 or ready[0][0] != route.fd:
                    self._leaving.take()
                    break
            if pending.done and not batch.has_callbacks:
                self._settle_alone(flight, batch, route.form)
        finally:
            if self._flights:
                self.wake()

    def _settle_alone(self, flight: Flight, batch: Batch, form: ProduceForm) -> None:
        place = None if not flight.connection.usable else form.place(flight.pending.frame())
        if place is None:
            self._settle(flight)
            self._flights.clear()
            self.asleep = True
            self.wake()  # there may be a repetition to send
            return
        flight.connection.answered_within(monotonic() - flight.sent_s)
        self._backoff.reset()
        self._finish(batch, *place, None)
        self._flights.clear()  # last: after an interrupt the sender's thread does all of it again

    # -- what a sender does

    asleep: bool
    """Whether the sender's thread waits, so that it has to be woken."""

    def wake(self) -> None:
        """Wake the sender, because a batch may be ready. Cheap if the thread is awake."""
        raise NotImplementedError

    def _knows_producer_id(self) -> bool:
        """Whether everybody was told of the producer's id who has to be."""
        raise NotImplementedError

    def _encode(self, batch: Batch) -> bool:
        """Encode the batch. A batch that cannot be encoded fails alone."""
        raise NotImplementedError

    def _settle(self, flight: Flight) -> None:
        """Complete the batches of a request that was answered or failed."""
        raise NotImplementedError

    def _retry_or_fail(self, batch: Batch, cause: KafkaError) -> None:
        """Send a batch again later, or fail it."""
        raise NotImplementedError

    def _finish(self, batch: Batch, base_offset: int, log_append_time_ms: int, error: KafkaError | None) -> None:
        """Complete a batch."""
        raise NotImplementedError
