# cython: language_level=3, annotation_typing=False, binding=False, embedsignature=True
# cython: embedsignature.format=clinic
"""Takes a producer's records one at a time: `send`. Compiled, since it is what each record costs a program.

    send ─▶ interceptors, serializers (if any) ─▶ partition ─▶ the open batch of its queue ─▶ Delivery
                                                                  └─ opened or filled ─▶ the sender wakes

The sender's lock guards the batches. What happens once a batch, or less often, is in `Producer`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from time import monotonic, time_ns
from typing import TYPE_CHECKING, Any

try:
    import cython
except ImportError:
    from headrace import uncompiled as cython

from headrace.client.core.cluster import Cluster
from headrace.client.core.failures import ClientClosed
from headrace.client.core.metadata import ClusterView
from headrace.client.core.record_times import checked_ms
from headrace.client.producer.accumulator import NOTHING_NEW, Accumulator, PartitionQueue, record_bytes
from headrace.client.producer.column_input import Headers
from headrace.client.producer.delivery import Batch, Delivery, DeliveryCallback, delivery_of
from headrace.client.producer.interceptors import Intercepted, ProducerInterceptors, ProducerRecord
from headrace.client.producer.mistakes import refusal
from headrace.client.serializers.serializing import Serializing
from headrace.records.format2.kernel import murmur2
from headrace.types import TopicPartition

if TYPE_CHECKING:
    from headrace.client.producer.transactions import Transactions

if cython.compiled:
    from cython.cimports.cpython.time import time as seconds

COMPILED: bool = cython.compiled
"""Whether this is the C version."""

_EARLIEST_PLAUSIBLE_MS, _LATEST_PLAUSIBLE_MS = 10_000_000_000, 100_000_000_000_000
"""The bounds of `record_times`, as C integers."""


class Destination:
    """The data of a topic that `send` needs, looked up once per cluster view and sticky partition."""

    def __init__(self, view: ClusterView, partitions: list[TopicPartition], sticky: PartitionQueue) -> None:
        self.view: ClusterView = view
        self.partitions: list[TopicPartition] = partitions
        self.sticky: PartitionQueue = sticky
        self.queues: list[PartitionQueue | None] = [None] * len(partitions)


class RecordIntake:
    """The part of a producer that takes records one at a time."""

    def __init__(self, cluster: Cluster, accumulator: Accumulator, lock: threading.Lock, buffer_bytes: int) -> None:
        self._cluster: Cluster = cluster
        self._accumulator: Accumulator = accumulator
        self._lock: threading.Lock = lock
        self._buffer_bytes: int = buffer_bytes
        self._known: dict[str, Destination] = {}
        self._closed: bool = False
        self._serializing: Serializing | None = None
        self._interceptors: ProducerInterceptors | None = None
        self._transactions: Transactions | None = None

    def send(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | Mapping[str, bytes | None] = (),
        on_delivery: DeliveryCallback | None = None,
    ) -> Delivery:
        """Give a record to the sender. Blocks up to `max_block_ms` while the topic is unknown or the buffer is full.

        `value` and `key` are bytes, None, or what the producer's serializers take. `timestamp_ms` is in milliseconds
        since 1970 (None: now); `headers` are pairs or a dict. Raises UnknownTopicOrPartition, BufferExhausted,
        BrokerUnreachable, ClientForked, SerializationError, and InvalidRecord for values that no record can hold. The
        Delivery has later errors.
        """
        if self._interceptors is not None and on_delivery.__class__ is not Intercepted:
            record = ProducerRecord(topic, value, key, partition, timestamp_ms, headers)
            return self._interceptors.send(self.send, record, on_delivery)
        if self._serializing is not None:
            key, value, headers = self._serializing.record(topic, key, value, headers)
        if self._transactions is not None:
            self._transactions.check_open()
        time_ms = _now_ms() if timestamp_ms is None else _checked_ms(timestamp_ms)
        try:
            known = self._known.get(topic)
            if known is None or known.view is not self._cluster.view or self._closed:
                known = self._look_up(topic)
            index = -1
            if partition is not None:
                index = self._choose(topic, partition)
                if index >= len(known.partitions):  # it has grown since
                    known = self._look_up(topic)
            elif key is not None:
                index = (murmur2(key) & 0x7FFFFFFF) % len(known.partitions)  # as `partition_for_key`
            pairs: Headers = headers  # type: ignore[assignment]  # a mapping fails, see below
            size = record_bytes(key, value, pairs)
            news = NOTHING_NEW
            self._lock.acquire()  # not `with`, which costs more when compiled
            try:
                queue = known.sticky if index < 0 else self._queue(known, index)
                if self._accumulator.bytes_held + size > self._buffer_bytes:
                    self._wait_for_room(size, queue.partition)
                if self._closed:
                    raise ClientClosed("the producer is closed")
                if not self._accumulator.add(queue, key, value, time_ms, pairs, size):
                    news = self._accumulator.add_to_new(queue, key, value, time_ms, pairs, size, monotonic())
                batch: Batch = queue.open  # type: ignore[assignment]  # where the record is
                delivery = delivery_of(batch, batch.count - 1)
                if on_delivery is not None:
                    batch.expect(on_delivery)
            finally:
                self._lock.release()
        except (TypeError, ValueError, OverflowError, AttributeError) as cause:
            if isinstance(headers, Mapping):
                pairs = list(headers.items())
                return self.send(topic, value, key, partition, timestamp_ms, pairs, on_delivery)
            raise refusal(topic, value, key, partition, headers, cause) from cause
        if news != NOTHING_NEW:
            self._added(topic, known, queue, news)
        return delivery

    def _queue(self, known: Destination, index: int) -> PartitionQueue:
        queue = known.queues[index]
        if queue is None:
            queue = known.queues[index] = self._accumulator.queue(known.partitions[index])
        return queue

    # -- what a producer does now and then

    def _look_up(self, topic: str) -> Destination:
        """The destination of a topic, as the brokers have it now."""
        raise NotImplementedError

    def _choose(self, topic: str, partition: int) -> int:
        """The partition that was asked for. Raises UnknownTopicOrPartition."""
        raise NotImplementedError

    def _wait_for_room(self, size: int, partition: TopicPartition) -> None:
        """Wait until `size` bytes fit the buffer (holds the lock), or it is closed."""
        raise NotImplementedError

    def _added(self, topic: str, known: Destination, queue: PartitionQueue, news: int) -> None:
        """A batch was opened or filled."""
        raise NotImplementedError


def _now_ms() -> int:
    """Wall-clock milliseconds since 1970."""
    if cython.compiled:
        return int(seconds() * 1000)
    return time_ns() // 1_000_000


def _checked_ms(given: Any) -> int:
    if given.__class__ is int and _EARLIEST_PLAUSIBLE_MS <= given < _LATEST_PLAUSIBLE_MS:
        time_ms: int = given
        return time_ms
    return checked_ms(given)
