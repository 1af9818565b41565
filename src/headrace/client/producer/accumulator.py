# cython: language_level=3, annotation_typing=False, binding=False
"""Records waiting to be sent, by partition. Compiled. Does no IO, knows no clock; the producer guards it with a lock.

Each partition has three queues, in the order in which records were added:

    retries      sent before and answered with a retriable error, ascending by sequence
    waiting      full or open batches that were never sent; only the last may be open
    in flight    sent and not answered

A batch is ready when it is full, has waited `linger_ms`, or the producer flushes. Retries keep the order: while a retry
waits, no newer batch is sent, and retries are sent only when nothing of the partition is in flight. A batch gets its
sequence number (idempotence) when it is first sent, so that numbers follow the order of sending. Source: Kafka's
`RecordAccumulator`, `TransactionManager`.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from itertools import count
from typing import NamedTuple

from headrace.client.producer.column_input import Headers
from headrace.client.producer.delivery import (
    NO_SEQUENCE,
    RECORD_OVERHEAD_BYTES,
    Batch,
    ColumnSlice,
    Delivery,
    delivery_of,
)
from headrace.records.format2.columns import fitting_rows
from headrace.records.format2.header import HEADER_BYTES
from headrace.records.format2.rows import RowBuffer
from headrace.types import BrokerId, TopicPartition

_SEQUENCE_LIMIT = 2**31

NOTHING_NEW, BATCH_OPENED, BATCH_FILLED = 0, 1, 2


class Limits(NamedTuple):
    """The limits of batches, requests and waiting times."""

    batch_bytes: int
    linger_s: float
    request_bytes: int
    delivery_timeout_s: float


def _number(batch: Batch) -> int:
    return batch.number


class PartitionQueue:
    """One partition's records in their three queues."""

    def __init__(self, partition: TopicPartition, *, is_known: bool) -> None:
        self.partition: TopicPartition = partition
        self.is_known: bool = is_known
        """Whether the broker knows the producer, and so refuses a batch that overtakes another; see `head`."""
        self.retries: deque[Batch] = deque()
        self.waiting: deque[Batch] = deque()
        self.in_flight: list[Batch] = []
        self.open: Batch | None = None
        self.next_sequence: int = 0
        self.retry_at_s: float = 0.0
        self._known_from: int = 0
        """Batches with smaller numbers have sequences of an earlier producer id."""

    def head(self, now_s: float) -> Batch | None:
        """The next batch to send; None if there is none, or if it has to wait: a retry for its time, and others for
        the first batch, because a broker that does not know the producer yet begins with any sequence number. Apache
        Kafka's brokers refuse first batches of a new topic now and then, and would store the second one before.
        """
        if self.retries:
            return self.retries[0] if not self.in_flight and now_s >= self.retry_at_s else None
        return self.waiting[0] if self.waiting and not self.waits_for_first else None

    @property
    def waits_for_first(self) -> bool:
        """Whether the first batch is in flight alone."""
        return not self.is_known and bool(self.in_flight)

    def take_head(self) -> Batch:
        """Move the head into flight and give it its sequence number."""
        batch = self.retries.popleft() if self.retries else self.waiting.popleft()
        if batch is self.open:
            self.open = None
        if batch.base_sequence == NO_SEQUENCE:
            batch.base_sequence = self.next_sequence
            self.next_sequence = (self.next_sequence + batch.count) % _SEQUENCE_LIMIT
        self.in_flight.append(batch)
        return batch

    def give_back(self, batch: Batch, retry_at_s: float) -> None:
        """Put a batch that was in flight back among the retries, in the order of age."""
        self.in_flight.remove(batch)
        self.retries = deque(sorted([*self.retries, batch], key=_number))
        self.retry_at_s = max(self.retry_at_s, retry_at_s)

    def forget_sequences(self, *, is_known: bool = False) -> None:
        """Start the sequences at 0 for new batches: of a new producer id or, if the brokers still know the producer, of
        a new epoch.

        A retry keeps its bytes, with the sequence and the producer id of before: it may be stored already, and only by
        those does the broker know it again. A refused one (`refused`), and what follows it, is not stored.
        """
        self.next_sequence = 0
        self.is_known &= is_known
        self._known_from = 0
        is_stored_perhaps = True
        for batch in self.retries:
            is_stored_perhaps &= batch.base_sequence != NO_SEQUENCE
            if is_stored_perhaps:
                self._known_from = batch.number + 1
            else:
                batch.base_sequence = NO_SEQUENCE
                batch.encoded = None

    def refused(self, batch: Batch) -> None:
        """The broker does not store the batch with this sequence: it gets another one when it is sent again."""
        batch.base_sequence = NO_SEQUENCE
        batch.encoded = None

    def stored(self, batch: Batch) -> None:
        """The broker knows the producer that the batch is of."""
        self.is_known |= batch.number >= self._known_from

    @property
    def is_empty(self) -> bool:
        """Whether no batch waits and none is in flight."""
        return not (self.retries or self.waiting or self.in_flight)


def record_bytes(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """What a record will take, an estimate. Raises TypeError and ValueError for what has no length."""
    size: int = RECORD_OVERHEAD_BYTES
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    if headers:
        for name, content in headers:
            size += len(name) + (len(content) if content else 0) + RECORD_OVERHEAD_BYTES
    return size


class Accumulator:
    """The queues of all partitions, and the number of bytes in them."""

    def __init__(self, limits: Limits, *, is_idempotent: bool = False) -> None:
        self.limits: Limits = limits
        self._batch_bytes: int = limits.batch_bytes
        self._is_idempotent = is_idempotent
        self.queues: dict[TopicPartition, PartitionQueue] = {}
        self.bytes_held: int = 0
        self._numbers = count()

    def append(
        self,
        partition: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: Headers,
        now_s: float,
    ) -> tuple[Delivery, int]:
        """Add one record; also returns whether the sender must wake: a batch got a send time, or is ready now."""
        queue = self.queue(partition)
        size = record_bytes(key, value, headers)
        news = NOTHING_NEW
        if not self.add(queue, key, value, timestamp_ms, headers, size):
            news = self.add_to_new(queue, key, value, timestamp_ms, headers, size, now_s)
        batch = queue.open
        assert batch is not None
        return delivery_of(batch, batch.count - 1), news

    def add(
        self,
        queue: PartitionQueue,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: Headers,
        size: int,
    ) -> bool:
        """Add one record of `size` bytes to the open batch, whose last one it is then; whether there is room for it.

        Raises TypeError and ValueError for a value that no record can hold; then nothing was added.
        """
        batch = queue.open
        if batch is None or batch.size_bytes + size > self._batch_bytes:
            return False
        rows: RowBuffer = batch.content  # type: ignore[assignment]  # those of an open one
        rows.append(key, value, timestamp_ms, headers)
        batch.count += 1
        batch.size_bytes += size
        self.bytes_held += size
        return True

    def add_to_new(
        self,
        queue: PartitionQueue,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: Headers,
        size: int,
        now_s: float,
    ) -> int:
        """Add one record to a new batch, after `add` found no room; returns what the sender is to know.

        Raises TypeError and ValueError as `add` does.
        """
        rows = RowBuffer(HEADER_BYTES)
        rows.append(key, value, timestamp_ms, headers)
        news = BATCH_OPENED if queue.open is None else BATCH_FILLED
        batch = queue.open = self._new_batch(queue, queue.partition, rows, now_s)
        batch.count = 1
        batch.size_bytes = size
        self.bytes_held += size
        return news

    def add_columns(self, partition: TopicPartition, rows: ColumnSlice, size_bytes: int, now_s: float) -> Batch:
        """Add a slice as one closed batch, after the existing batches (see `cut`)."""
        queue = self.queue(partition)
        queue.open = None
        batch = self._new_batch(queue, partition, rows, now_s)
        batch.count = rows.stop - rows.start
        batch.size_bytes = size_bytes
        self.bytes_held += batch.size_bytes
        return batch

    def done(self, batch: Batch, *, is_stored: bool = False) -> None:
        """Remove a batch that was acknowledged or has failed, and free its bytes."""
        queue = self.queues[batch.partition]
        if is_stored:
            queue.stored(batch)
        if batch in queue.in_flight:
            queue.in_flight.remove(batch)
        self.bytes_held -= batch.size_bytes

    def ready(self, now_s: float, flushing: bool) -> Iterator[TopicPartition]:
        """Partitions whose head can be sent now."""
        for partition, queue in self.queues.items():
            head = queue.head(now_s)
            if head is not None and (flushing or self._may_go(queue, head, now_s)):
                yield partition

    def next_due_s(self, flushing: bool, after_s: float = float("-inf")) -> float | None:
        """The time, later than `after_s`, when the next batch becomes ready by itself; None if nothing waits. A flush
        ends the linger, but not the pause before a retry."""
        linger_s = 0.0 if flushing else self.limits.linger_s
        due = [
            queue.retry_at_s if queue.retries else queue.waiting[0].opened_s + linger_s
            for queue in self.queues.values()
            if (queue.retries and not queue.in_flight)
            or (queue.waiting and not queue.retries and not queue.waits_for_first)
        ]
        return min((each for each in due if each > after_s), default=None)

    def plan(
        self, leaders: Mapping[TopicPartition, BrokerId], now_s: float, flushing: bool
    ) -> dict[BrokerId, list[Batch]]:
        """For each leader the batches of its next request: at most one per partition, `request_bytes` in total."""
        planned: dict[BrokerId, list[Batch]] = {}
        sizes: dict[BrokerId, int] = {}
        for partition in self.ready(now_s, flushing):
            leader = leaders.get(partition)
            head = self.queues[partition].head(now_s)
            if leader is None or head is None:
                continue
            total = sizes.get(leader, 0) + head.size_bytes
            if leader in planned and total > self.limits.request_bytes:
                continue
            sizes[leader] = total
            planned.setdefault(leader, []).append(self.queues[partition].take_head())
        return planned

    def take_expired(self, now_s: float) -> list[Batch]:
        """Remove and return the batches not in flight whose delivery timeout has passed."""
        expired = []
        for queue in self.queues.values():
            for place in (queue.retries, queue.waiting):
                while place and place[0].expires_s <= now_s:
                    batch = place.popleft()
                    if batch is queue.open:
                        queue.open = None
                    expired.append(batch)
        return expired

    def take_unsent(self) -> list[Batch]:
        """Remove and return every batch that is not in flight."""
        taken = []
        for queue in self.queues.values():
            taken += [*queue.retries, *queue.waiting]
            queue.retries.clear()
            queue.waiting.clear()
            queue.open = None
        return taken

    @property
    def is_empty(self) -> bool:
        """Whether every record was acknowledged or has failed."""
        return all(queue.is_empty for queue in self.queues.values())

    def unfinished(self) -> list[Batch]:
        """Every batch not yet acknowledged, oldest first within a partition."""
        return [batch for queue in self.queues.values() for batch in [*queue.in_flight, *queue.retries, *queue.waiting]]

    def queue(self, partition: TopicPartition) -> PartitionQueue:
        """The partition's queue; it stays the same one."""
        queue = self.queues.get(partition)
        if queue is None:
            queue = self.queues[partition] = PartitionQueue(partition, is_known=not self._is_idempotent)
        return queue

    def _new_batch(
        self, queue: PartitionQueue, partition: TopicPartition, content: RowBuffer | ColumnSlice, now_s: float
    ) -> Batch:
        batch = Batch(partition, content, next(self._numbers), now_s, now_s + self.limits.delivery_timeout_s)
        queue.waiting.append(batch)
        return batch

    def _may_go(self, queue: PartitionQueue, head: Batch, now_s: float) -> bool:
        closed = head is not queue.open
        return closed or head.attempts > 0 or now_s >= head.opened_s + self.limits.linger_s


def cut(rows: ColumnSlice, batch_bytes: int) -> Iterator[tuple[ColumnSlice, int]]:
    """`rows` in slices that each fit an uncompressed batch of `batch_bytes` (one row at least), with their bytes."""
    start = rows.start
    while start < rows.stop:
        stop, size = fitting_rows(
            rows.keys,
            rows.values,
            start,
            rows.stop,
            rows.timestamps_ms,
            rows.headers,
            rows.order,
            max_batch_bytes=batch_bytes,
        )
        yield rows._replace(start=start, stop=stop), size
        start = stop
