"""The producer's background thread: sends batches that are ready, and completes them with the brokers' answers.

    plan (accumulator, under the lock) ─▶ encode (outside it) ─▶ one Produce request a leader ─▶ answers ─▶ settle

Each broker has up to `max_in_flight` requests in flight. With idempotence every batch carries the producer id and a
sequence number per partition, so a batch sent twice is stored once and a gap is refused. If a batch fails for good, its
number leaves a gap: the sender waits until nothing is in flight, and continues with a new producer id and sequences
from 0. It does the same if a broker has forgotten the producer. Batches that were sent before and had no answer are
sent again as they were, under the id of then: they may be stored already.

With transactions (`transactions.Transactions`), the id and epoch come from the coordinator, and a partition joins the
transaction before its first batch is sent. A batch that fails for good fails the transaction: nothing is sent until it
is aborted.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from headrace.client.core.cluster import Cluster
from headrace.client.core.connection import Connection, wait_any
from headrace.client.core.failures import DeadlineExceeded, error_for
from headrace.client.core.forks import watch
from headrace.client.core.timing import Deadline
from headrace.client.core.wakeup import Wakeup
from headrace.client.metrics.producing import ProducerMetrics
from headrace.client.producer import at_exit
from headrace.client.producer.accumulator import Accumulator
from headrace.client.producer.delivery import Batch
from headrace.client.producer.encoded_batches import SendPolicy, encode, produce_request
from headrace.client.producer.lost_records import LOST
from headrace.client.producer.mistakes import ADVICE
from headrace.client.producer.producer_identity import ProducerIdentity
from headrace.client.producer.short_way import Flight, ShortWay
from headrace.errors import ErrorCode, InvalidRecord, KafkaError
from headrace.protocol import messages as m
from headrace.types import BrokerId, TopicPartition

if TYPE_CHECKING:
    from headrace.client.producer.transactions import Transactions

_log = logging.getLogger(__name__)

_IDLE_WAIT_S = 1.0
_THROTTLED_WAIT_S = 0.01
_NEAR_S = 0.02
_NEAR_REQUESTS, _NEAR_BYTES = 2, 400_000
"""A broker that answers within `_NEAR_S` gets a third request only while it has not so many bytes to answer. More under
way does not make it faster, and would not stay in the caches of both sides: it costs each twice the CPU."""
_NEW_PRODUCER_ID = frozenset(
    {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH}
)


class Sender(ShortWay):
    """Runs in its own thread from `start` to `stop`; shares the accumulator with the producer under `lock`."""

    def __init__(
        self,
        cluster: Cluster,
        accumulator: Accumulator,
        policy: SendPolicy,
        transactions: Transactions | None = None,
        metrics: ProducerMetrics | None = None,
        lock: threading.Lock | None = None,
    ) -> None:
        super().__init__(
            cluster, accumulator, policy, metrics, lock or threading.Lock(), is_possible=transactions is None
        )
        self.room: threading.Condition = threading.Condition(self.lock)
        self.on_room: Callable[[], None] | None = None
        """Called, with the lock held, when bytes of the buffer become free."""
        self.on_producer_id: Callable[[int], None] | None = None
        """Called in the sender's thread with each producer id, before the first batch that has it is sent."""
        self._told_producer_id = -1
        self.flushing: int = 0
        self._transactions = transactions
        self._new_id_wanted = policy.idempotent and transactions is None
        self._waits_for_answer = False  # batches that are ready, because as much as may be is in flight
        self._throttled_s = 0.0  # how long a broker with batches that are ready is to be left alone
        self._stopping = False
        self.asleep: bool = False
        self._wakeup = Wakeup()
        self._thread = threading.Thread(target=self._run, name="headrace-sender", daemon=True)

    def start(self) -> None:
        """Begin sending."""
        if self._metrics is not None:
            self._metrics.begin()
        self._thread.start()
        at_exit.remember(self)
        watch(self)

    def wake(self) -> None:
        """Wake the sender, because a batch may be ready. Cheap if the thread is awake."""
        if self.asleep:
            self.asleep = False
            self._wakeup.set()

    def stop(self, timeout_s: float) -> None:
        """End the thread. It does not wait for unsent batches: flush first."""
        at_exit.forget(self)
        self._stopping = True
        self.asleep = True
        self.wake()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        self._end_short_way(is_alone=not self._thread.is_alive())
        if self._metrics is not None:
            self._metrics.end()
        self._wakeup.close()

    def forked(self) -> None:
        """This process is a fork, without the thread: there is nothing to flush at its end."""
        at_exit.forget(self)

    def flush_at_exit(self, deadline: Deadline) -> list[Batch]:
        """Send what waits, because the process ends. Returns the batches that waited, done or not."""
        if not self.lock.acquire(timeout=deadline.remaining_s):
            return []
        try:
            self.flushing += 1
            unfinished = self._accumulator.unfinished()
        finally:
            self.lock.release()
        self.wake()
        for batch in unfinished:
            batch.wait_until(deadline.remaining_s)
        return unfinished

    def use_identity(self, identity: ProducerIdentity) -> None:
        """Continue with a transaction's producer id and epoch. Nothing waits and nothing is in flight."""
        with self.lock:
            if self._producer == identity:
                return
            is_known = self._producer.producer_id == identity.producer_id
            self._producer = identity
            for queue in self._accumulator.queues.values():
                queue.forget_sequences(is_known=is_known)

    def drop_unsent(self, cause: KafkaError) -> None:
        """Fail every batch that waits to be sent, because its transaction is aborted."""
        with self.lock:
            dropped = self._accumulator.take_unsent()
        for batch in dropped:
            self._finish(batch, -1, -1, cause)

    # -- the loop

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._turn()
            except KafkaError as cause:
                _log.log(
                    logging.INFO if cause.code.retriable else logging.WARNING,
                    "the sender pauses after an error: %s",
                    cause,
                )
                self._pause()
            except Exception:
                _log.exception("an unexpected error occurred in the sender thread, which continues")
                self._pause()

    def _turn(self) -> None:
        self._take_role()
        try:
            now_s = time.monotonic()
            self._throttled_s = 0.0
            self._waits_for_answer = False
            sent = now_s >= self._pause_until_s and self._send_ready(now_s)
            wait_s = 0.0 if sent else self._sleep_s(now_s)
            connections = {id(flight.connection): flight.connection for flight in self._flights}
        finally:
            self._role.release()
        readable = wait_any(connections.values(), wait_s, self._wakeup.fileno())
        self._take_role()
        try:
            self._receive(readable)
            self._fail_expired()
        finally:
            self._role.release()
        LOST.tell()

    def _sleep_s(self, now_s: float) -> float:
        self.asleep = True
        after_s = now_s if self._waits_for_answer else float("-inf")
        with self.lock:
            due = self._accumulator.next_due_s(self.flushing > 0 and not self._flights, after_s)
        wait = _IDLE_WAIT_S if due is None else max(0.0, due - now_s)
        if self._pause_until_s > now_s:
            wait = max(wait, self._pause_until_s - now_s)
        if self._throttled_s:  # the other brokers' batches are not to wait as long
            wait = max(wait, min(self._throttled_s, _THROTTLED_WAIT_S))
        return self._looks_within_s(min(wait, _IDLE_WAIT_S))

    # -- out

    def _send_ready(self, now_s: float) -> bool:
        if self._new_id_wanted and not self._renew_producer_id():
            self._waits_for_answer = bool(self._flights)
            return False
        with self.lock:
            ready = list(self._accumulator.ready(now_s, self.flushing > 0))
        if not ready:
            return False
        if self._transactions is not None and not self._may_send(self._transactions, ready):
            return False
        if self.on_producer_id is not None and self._told_producer_id != self._producer.producer_id:
            self._tell_producer_id(self.on_producer_id)
        leaders = self._leaders(ready)
        with self.lock:
            planned = self._accumulator.plan(leaders, now_s, self.flushing > 0)
        for leader, batches in planned.items():
            self._send(leader, batches)
        return bool(planned)

    def _may_send(self, transactions: Transactions, ready: list[TopicPartition]) -> bool:
        """Let partitions join the transaction. After a failure nothing may be sent: the batches fail, too."""
        if transactions.error is not None:
            self.drop_unsent(transactions.error)
            return False
        try:
            return transactions.add(ready, Deadline.after_ms(self._policy.request_timeout_ms))
        except KafkaError as cause:
            transactions.failed(cause)
            self.drop_unsent(cause)
            return False

    def _leaders(self, partitions: list[TopicPartition]) -> dict[TopicPartition, BrokerId]:
        """Leaders with room for one more request. Requests metadata for partitions without a leader."""
        topics = {partition.topic for partition in partitions}
        missing = {topic for topic in topics if topic not in self._cluster.view.topics} | self._refresh_wanted
        if missing or self._cluster.metadata_is_old:
            self._cluster.refresh(missing | topics)
            self._refresh_wanted.clear()
        leaders = {}
        for partition in partitions:
            topic = self._cluster.view.topics.get(partition.topic)
            infos = topic.partitions if topic is not None else ()
            info = infos[partition.partition] if partition.partition < len(infos) else None
            if info is None or info.leader not in self._cluster.view.brokers:
                self._refresh_wanted.add(partition.topic)
                self._pause()
            elif self._may_go_to(info.leader):
                leaders[partition] = info.leader
        return leaders

    def _may_go_to(self, leader: BrokerId) -> bool:
        """Whether the broker has room for one more request, and wants it now."""
        connection = self._cluster.held(leader)
        if connection is None:
            return True
        throttled_s = connection.throttled_s
        if throttled_s:
            self._throttled_s = max(self._throttled_s, throttled_s)
        has_room = self._has_room(connection)
        self._waits_for_answer |= not has_room
        return has_room and not throttled_s

    def _has_room(self, connection: Connection) -> bool:
        if connection.in_flight >= self._policy.max_in_flight:
            return False
        if connection.in_flight < _NEAR_REQUESTS or connection.round_trip_s > _NEAR_S:
            return True
        return sum(each.size_bytes for each in self._flights if each.connection is connection) < _NEAR_BYTES

    def _send(self, leader: BrokerId, batches: list[Batch]) -> None:
        deadline = Deadline.after_ms(self._policy.request_timeout_ms)
        batches = [batch for batch in batches if self._encode(batch)]
        if not batches:
            return
        try:
            connection = self._cluster.connection(leader, deadline)
            name = None if self._transactions is None else self._transactions.transactional_id
            request = produce_request(batches, self._policy, name)
            if self._policy.acks == 0:
                connection.send_unanswered(request, m.ProduceResponse, deadline)
                if self._metrics is not None:
                    self._metrics.sent(batches)
                for batch in batches:
                    self._finish(batch, -1, -1, None)
                return
            version = None if self._transactions is None else self._transactions.produce_version(connection)
            pending = connection.send(request, m.ProduceResponse, deadline, version)
            if self._metrics is not None:
                self._metrics.sent(batches)
        except (KafkaError, ValueError) as cause:
            for batch in batches:
                self._retry_or_fail(batch, cause if isinstance(cause, KafkaError) else KafkaError(str(cause)))
            return
        size = sum(len(batch.encoded or b"") for batch in batches)
        by_partition = {batch.partition: batch for batch in batches}
        self._flights.append(Flight(connection, pending, by_partition, size, time.monotonic(), deadline))

    def _encode(self, batch: Batch) -> bool:
        """Encode the batch. A batch that cannot be encoded fails alone."""
        try:
            encode(batch, self._policy, self._producer, is_transactional=self._transactions is not None)
        except (KafkaError, ValueError, TypeError, OverflowError, ImportError) as cause:
            self._lose(batch, InvalidRecord(f"{batch.partition}: cannot encode the batch: {cause}"))
            return False
        return True

    # -- in

    def _receive(self, readable: Iterable[Connection]) -> None:
        self.asleep = False
        self._wakeup.take()
        for connection in readable:
            connection.pump()
        still = []
        for flight in self._flights:
            if flight.pending.done:
                self._settle(flight)
            elif flight.deadline.expired:
                flight.connection.give_up()
                self._settle(flight)
            else:
                still.append(flight)
        self._flights = still

    def _settle(self, flight: Flight) -> None:
        try:
            answer = flight.pending.result()
        except KafkaError as cause:
            for batch in flight.batches.values():
                self._retry_or_fail(batch, cause)
            return
        flight.connection.answered_within(time.monotonic() - flight.sent_s)
        flight.connection.throttle(answer.throttle_time_ms)
        if self._metrics is not None and answer.throttle_time_ms:
            self._metrics.throttled.record(answer.throttle_time_ms)
        parts = {
            TopicPartition(topic.name, part.index): part
            for topic in answer.responses
            for part in topic.partition_responses
        }
        for partition, batch in flight.batches.items():
            if partition in parts:
                self._settle_batch(batch, parts[partition])
            else:
                self._lose(batch, KafkaError(f"{partition} is missing from the broker's response"))

    def _settle_batch(self, batch: Batch, part: m.ProduceResponse.PartitionProduceResponse) -> None:
        code = part.error_code
        if code == ErrorCode.NONE:
            self._backoff.reset()
            self._finish(batch, part.base_offset, part.log_append_time_ms, None)
        elif code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._finish(batch, -1, -1, None)
        else:
            self._retry_or_fail(batch, error_for(code, self._explain(batch, code, part.error_message)))

    def _explain(self, batch: Batch, code: int, said: str | None) -> str:
        advice = next((text for known, text in ADVICE.items() if known == code), "")
        return "; ".join(filter(None, (f"{batch.partition}: {batch.count} records refused", said, advice)))

    # -- outcomes

    def _retry_or_fail(self, batch: Batch, cause: KafkaError) -> None:
        batch.attempts += 1
        fresh_id = self._policy.idempotent and self._transactions is None and cause.code in _NEW_PRODUCER_ID
        is_refused = fresh_id and not self._follows_a_retry(batch)
        self._new_id_wanted |= is_refused
        if not (cause.code.retriable or fresh_id or isinstance(cause, DeadlineExceeded)):
            self._lose(batch, cause)
            return
        self._refresh_wanted.add(batch.partition.topic)
        with self.lock:
            queue = self._accumulator.queues[batch.partition]
            if is_refused:
                queue.refused(batch)
            queue.give_back(batch, time.monotonic() + self._backoff.next_ms() / 1000)
        batch.error = cause
        if self._metrics is not None:
            self._metrics.retried(batch)

    def _follows_a_retry(self, batch: Batch) -> bool:
        """Whether an earlier batch of the partition will be sent again: then a gap is expected."""
        retries = self._accumulator.queues[batch.partition].retries
        return bool(retries) and retries[0].number < batch.number

    def _lose(self, batch: Batch, cause: KafkaError) -> None:
        if self._transactions is None:
            self._new_id_wanted = self._policy.idempotent
        else:
            self._transactions.failed(cause)
        self._finish(batch, -1, -1, cause)

    def _finish(self, batch: Batch, base_offset: int, log_append_time_ms: int, error: KafkaError | None) -> None:
        with self.lock:
            self._accumulator.done(batch, is_stored=error is None)
            if self.flushing:  # as who waits for room does, too
                self.room.notify_all()
            if self.on_room is not None:
                self.on_room()
        if error is not None and self._metrics is not None:
            self._metrics.failed(batch)
        batch.is_error_told |= self._transactions is not None  # whose commit fails
        batch.finish(base_offset, log_append_time_ms, error)

    def _fail_expired(self) -> None:
        with self.lock:
            expired = self._accumulator.take_expired(time.monotonic())
        for batch in expired:
            last = f"; last answer: {batch.error}" if batch.error else ""
            timeout_ms = int(self._accumulator.limits.delivery_timeout_s * 1000)
            self._lose(batch, DeadlineExceeded(f"{batch.partition}: not delivered within {timeout_ms} ms{last}"))

    # -- producer id

    def _knows_producer_id(self) -> bool:
        return self.on_producer_id is None or self._told_producer_id == self._producer.producer_id

    def _renew_producer_id(self) -> bool:
        """Get a producer id when nothing is in flight; returns whether sending may continue."""
        if self._flights:
            return False
        request = m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1)
        answer = self._cluster.call_any(request, m.InitProducerIdResponse, self._cluster.deadline())
        if answer.error_code:
            raise error_for(answer.error_code, "the producer could not get a producer id, which idempotence requires")
        self._producer = ProducerIdentity(answer.producer_id, answer.producer_epoch)
        with self.lock:
            for queue in self._accumulator.queues.values():
                queue.forget_sequences()
        self._new_id_wanted = False
        return True

    def _tell_producer_id(self, tell: Callable[[int], None]) -> None:
        try:
            tell(self._producer.producer_id)
        except KafkaError as cause:
            if not cause.code.retriable:
                self.drop_unsent(cause)
            raise
        self._told_producer_id = self._producer.producer_id

    def _pause(self) -> None:
        self._pause_until_s = time.monotonic() + self._backoff.next_ms() / 1000
