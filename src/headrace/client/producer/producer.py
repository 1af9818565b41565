"""The producer: records in, one at a time or as columns; acknowledged batches out.

    send / send_columns ─▶ partition ─▶ accumulator ─▶ sender thread ─▶ leader
             ▲                              │
             └────── waits for room ◀───────┘      at most `buffer_memory_bytes` unacknowledged

Defaults are Kafka's (acks=all, idempotent, linger 5 ms) except `batch_bytes`: 256 KiB, and 16 KiB in Java, because
small batches cost a broker most. Many threads may use one producer. Source: `KafkaProducer`, `Sender`.

With `transactional_id` every record belongs to a transaction:

    producer.init_transactions()
    with producer.transaction():            commits at the end, aborts after an exception
        producer.send(...)
        producer.send_offsets({partition: next_offset}, consumer.group_metadata())

A transaction that another process commits is prepared (`headrace.client.producer.prepared`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Unpack

from headrace.client.core.cluster import Cluster
from headrace.client.core.failures import BufferExhausted, ClientClosed, DeadlineExceeded
from headrace.client.core.group_metadata import GroupMetadata
from headrace.client.core.metadata import TopicInfo
from headrace.client.core.option_types import ProducerOptions
from headrace.client.core.other_methods import PRODUCER, tells_of
from headrace.client.core.settings import ClientSettings, parse_addresses
from headrace.client.core.timing import Deadline
from headrace.client.metrics.producing import ProducerMetrics
from headrace.client.producer.accumulator import BATCH_FILLED, Accumulator, PartitionQueue
from headrace.client.producer.column_input import ColumnLike, Headers, slice_of
from headrace.client.producer.delivery import (
    Batch,
    ColumnsDelivery,
    ColumnSlice,
)
from headrace.client.producer.destinations import Destinations
from headrace.client.producer.intake import Destination, RecordIntake
from headrace.client.producer.interceptors import producer_interceptors
from headrace.client.producer.lost_records import LOST
from headrace.client.producer.mistakes import refusal
from headrace.client.producer.partition_rows import Part, parts_of
from headrace.client.producer.sender import Sender
from headrace.client.producer.settings import ACKS, ProducerSettings
from headrace.client.security.arguments import settings_of
from headrace.client.serializers.serializing import serializing_of
from headrace.errors import ErrorCode, InvalidConfig, KafkaError
from headrace.records.format2.columns import HeadersColumn
from headrace.types import TopicPartition

if TYPE_CHECKING:
    from headrace.client.producer.prepared import PreparedTransaction
    from headrace.client.producer.transactions import Transactions

__all__ = ["ACKS", "Producer", "ProducerSettings"]


@tells_of(PRODUCER)
class Producer(RecordIntake):
    """Sends records to topics. Use `with` or `close` to be sure that all records are delivered."""

    settings: ProducerSettings

    def __init__(
        self,
        bootstrap: str | Sequence[str] | Mapping[str, object] | None = None,
        settings: ProducerSettings | None = None,
        client: ClientSettings | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        """`bootstrap` is HOST:PORT, several of them, or a mapping with `bootstrap.servers` and other settings.

        `options` are settings by Kafka's names or ours (`client.core.options`), over those of `settings` and
        `client`. Raises InvalidConfig.
        """
        address, self.settings, client = settings_of(
            "producer", bootstrap, settings or ProducerSettings(), client, options
        )
        policy = self.settings.policy(client.request_timeout_ms)
        lock = threading.Lock()
        super().__init__(
            Cluster(address, client),
            Accumulator(self.settings.limits, is_idempotent=policy.idempotent),
            lock,
            self.settings.buffer_memory_bytes,
        )
        self._serializing = serializing_of(self.settings.key_serializer, self.settings.value_serializer)
        self._interceptors = producer_interceptors(self.settings.interceptors)
        self._closing = threading.Lock()
        name = self.settings.transactional_id
        if name is not None:
            from headrace.client.producer.transactions import Transactions  # 2 ms of an import, for few producers

            self._transactions = Transactions(self._cluster, name, self.settings.transaction_timeout_ms)
        self._metrics = ProducerMetrics(
            self._cluster, self._buffer_bytes, lambda: self._accumulator.bytes_held, self.settings.resource
        )
        self._sender = Sender(self._cluster, self._accumulator, policy, self._transactions, self._metrics, lock)
        self._destinations = Destinations(self._cluster, self._accumulator, lock, self._topic, self._topic_anew)
        self._known = self._destinations.known
        self._start()

    def _start(self) -> None:
        self._sender.start()

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close(None if kind is None else 0.0)

    def send_columns(
        self,
        topic: str,
        keys: ColumnLike | None,
        values: ColumnLike | None,
        timestamps_ms: int | Sequence[int] | memoryview | None = None,
        partition: int | None = None,
        headers: Sequence[Headers] | HeadersColumn | None = None,
    ) -> ColumnsDelivery:
        """Give many records at once, as columns of equal length, without a Python object per record.

        `keys` and `values` are a BinaryColumn, a pyarrow array, or a list of bytes or None; `timestamps_ms` is one
        time for all (None: now) or one for each. Without `partition`, keys choose the partition as in `send`; rows
        without a key stick to one partition per batch. Rows of one partition keep their order. The buffers must not
        change until they are delivered. They hold bytes: serializers and interceptors are not applied.
        """
        parts = self._parts(topic, keys, values, timestamps_ms, partition, headers)
        return ColumnsDelivery([self._add_part(topic, *part) for part in parts])

    def watch_producer_id(self, on_producer_id: Callable[[int], None]) -> None:
        """Call `on_producer_id` before the first batch of each producer id is sent; set it before the first `send`.

        It is called in another thread. Nothing is sent while it runs. If it raises a KafkaError, it is called again, or
        if that is final, the records that wait fail with it. An idempotent producer gets another id after errors.
        """
        self._sender.on_producer_id = on_producer_id

    def flush(self, timeout_ms: float | None = None) -> None:
        """Send everything now and wait until it is acknowledged or has failed. The Deliveries have the errors; those
        that nobody asks for are logged.

        Raises DeadlineExceeded after `timeout_ms` (None: the delivery timeout).
        """
        self._cluster.check_process()
        deadline = self._flush_deadline(timeout_ms)
        with self._flushing() as unfinished:
            for batch in unfinished:
                batch.wait_until(deadline.remaining_s)

    def _flush_deadline(self, timeout_ms: float | None) -> Deadline:
        return Deadline.after_ms(timeout_ms if timeout_ms is not None else self.settings.delivery_timeout_ms * 2)

    @contextmanager
    def _flushing(self) -> Iterator[list[Batch]]:
        """Send without lingering while the caller waits for these batches. Raises DeadlineExceeded if one is left."""
        sender = self._sender
        with sender.lock:
            sender.flushing += 1
            unfinished = self._accumulator.unfinished()
        try:
            sender.wake()
            yield unfinished
        finally:
            with sender.lock:
                sender.flushing -= 1
        left = sum(not batch.is_done for batch in unfinished)
        if left:
            raise DeadlineExceeded(f"flush: {left} batches are not acknowledged in time; the producer continues")

    # -- transactions

    def init_transactions(self, timeout_ms: float | None = None) -> None:
        """Get the producer's epoch, once, before the first transaction.

        It fences earlier producers with the same `transactional_id`, and aborts a transaction that one left open.
        Raises DeadlineExceeded after `timeout_ms` (None: `max_block_ms`), and KafkaError.
        """
        transactions = self._transactional()
        transactions.init(self._deadline(timeout_ms))
        self._sender.use_identity(transactions.identity)

    def begin(self) -> None:
        """Begin a transaction. Raises TransactionError if one is open."""
        self._transactional().begin()

    def send_offsets(
        self,
        offsets: Mapping[TopicPartition, int],
        group: GroupMetadata | str,
        timeout_ms: float | None = None,
        metadata: str = "",
    ) -> None:
        """Commit offsets of a consumer group when the transaction commits: those of the next records to read.

        `group` is `Consumer.group_metadata()`, or the name of a group without members. `metadata` is kept beside each
        offset. Raises KafkaError; after an error the transaction must be aborted.
        """
        named = GroupMetadata(group) if isinstance(group, str) else group
        self._transactional().send_offsets(offsets, named, metadata, self._deadline(timeout_ms))

    def commit(self, timeout_ms: float | None = None) -> None:
        """Send what is left, and commit the transaction.

        Raises TransactionError if a record could not be delivered: then abort. Raises DeadlineExceeded if the outcome
        is not known in time: then call `commit` again.
        """
        transactions = self._transactional()
        transactions.check_open()
        deadline = self._deadline(timeout_ms)
        self.flush(deadline.remaining_s * 1000)
        transactions.check_open()
        self._sender.use_identity(transactions.commit(deadline))

    def prepare_transaction(self, timeout_ms: float | None = None) -> PreparedTransaction:
        """Send what is left, and leave the transaction open, for `end_prepared` in this or another process.

        Afterwards this producer can only be closed, which does not abort the transaction. Raises TransactionError if
        a record could not be delivered, or the transaction is empty: then abort.
        """
        transactions = self._transactional()
        transactions.check_open()
        self.flush(self._deadline(timeout_ms).remaining_s * 1000)
        return transactions.prepare()

    def abort(self, timeout_ms: float | None = None) -> None:
        """Abort the transaction: no read_committed consumer sees its records, unless a commit without an answer was
        done. Raises KafkaError."""
        transactions = self._transactional()
        deadline = self._deadline(timeout_ms)
        self._sender.drop_unsent(transactions.give_up(has_unsent=not self._accumulator.is_empty))
        self.flush(deadline.remaining_s * 1000)
        self._sender.use_identity(transactions.abort(deadline))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction that is committed at the end of the block, and aborted after an exception in it.

        DeadlineExceeded at the end of the block says that the outcome is not known. The next block makes sure first
        that nothing of it is open.
        """
        transactions = self._transactional()
        if transactions.is_left_open:
            self.abort()
        self.begin()
        try:
            yield
            self.commit()
        except BaseException:
            try:
                self.abort()
            except KafkaError:  # the exception says more; a fenced producer has nothing to abort
                transactions.left()
            raise

    def _transactional(self) -> Transactions:
        self._cluster.check_process()
        if self._transactions is None:
            raise InvalidConfig("the producer has no transactional_id: set it in ProducerSettings")
        return self._transactions

    def _deadline(self, timeout_ms: float | None) -> Deadline:
        return Deadline.after_ms(self.settings.max_block_ms if timeout_ms is None else timeout_ms)

    def close(self, timeout_ms: float | None = None) -> None:
        """Flush for at most `timeout_ms` (0: not at all), stop the sender, and fail the remaining records.

        In a fork of the process it does nothing: the producer is its parent's.
        """
        if self._cluster.is_forked:
            return
        if not self._refuse_more():
            return
        try:
            if timeout_ms is None or timeout_ms > 0:
                self.flush(timeout_ms)
        finally:
            self._stop()

    def _refuse_more(self) -> bool:
        """Take no more records; returns whether this call is the one that closes."""
        with self._closing:
            was_closed, self._closed = self._closed, True
            return not was_closed

    def _stop(self) -> None:
        """Stop the sender, and fail the remaining records."""
        self._sender.stop(self._cluster.settings.request_timeout_ms / 1000)
        if self._transactions is not None:
            self._transactions.close()
        self._cluster.close()
        with self._lock:  # a record that is added at this moment is among them, and no later one is added
            unfinished = self._accumulator.unfinished()
            self._sender.room.notify_all()  # who waits for room is told that it is closed
        for batch in unfinished:
            batch.finish(
                -1, -1, ClientClosed(f"{batch.partition}: the producer was closed before the batch was delivered")
            )
        LOST.tell(now=True)
        if self._interceptors is not None:
            self._interceptors.close()

    def metrics(self) -> dict[str, dict[str, float]]:
        """What the producer has measured of itself, by Kafka's groups and names. Asks nobody."""
        return self._metrics.registry.read()

    def partitions(self, topic: str) -> int:
        """The number of partitions of the topic."""
        return len(self._topic(topic).partitions)

    def use_brokers(self, bootstrap: Sequence[str]) -> None:
        """Look at these brokers for who leads what, now, and whenever the known brokers do not answer."""
        self._cluster.bootstrap = parse_addresses(bootstrap)
        self._cluster.refresh(list(self._cluster.view.topics))

    # -- the topic

    def _topic(self, topic: str) -> TopicInfo:
        self._cluster.check_process()
        if self._closed:
            raise ClientClosed("the producer is closed")
        if not isinstance(topic, str):
            raise refusal(topic, None, None, None, (), TypeError())
        known = self._cluster.view.topics.get(topic)
        if known is not None and known.partitions and known.error == ErrorCode.NONE:
            return known
        return self._load_topic(topic)

    def _load_topic(self, topic: str) -> TopicInfo:
        """Ask the brokers for the topic, until there is one."""
        return self._cluster.topic(topic, Deadline.after_ms(self.settings.max_block_ms), create=True)

    def _topic_anew(self, topic: str) -> TopicInfo:
        """The topic as the brokers have it now: it may have more partitions."""
        self._cluster.forget(topic)
        found = self._load_topic(topic)
        self._destinations.found_anew(topic)
        return found

    # -- giving to the sender

    def _look_up(self, topic: str) -> Destination:
        return self._destinations.look_up(topic)

    def _choose(self, topic: str, partition: int) -> int:
        return self._destinations.choose(topic, None, partition)

    def _added(self, topic: str, known: Destination, queue: PartitionQueue, news: int) -> None:
        if news == BATCH_FILLED and queue is known.sticky:
            self._destinations.move_on(topic)
            self._known.pop(topic, None)
        if self._sender.asleep:
            self._wake(queue, news)

    def _parts(
        self,
        topic: str,
        keys: ColumnLike | None,
        values: ColumnLike | None,
        timestamps_ms: int | Sequence[int] | memoryview | None,
        partition: int | None,
        headers: Sequence[Headers] | HeadersColumn | None,
    ) -> Iterator[Part]:
        """The rows by partition (None: any), in slices of a batch each with their bytes."""
        if self._transactions is not None:
            self._transactions.check_open()
        columns = slice_of(keys, values, timestamps_ms, headers)
        if columns.stop == 0:
            return
        spread = None
        if partition is None and columns.keys is not None:
            info = self._topic(topic)
            spread = len(info.partitions), self._destinations.sticky(info)
        yield from parts_of(columns, partition, self.settings.batch_bytes, spread)

    def _add_part(self, topic: str, partition: int | None, rows: ColumnSlice, size: int) -> Batch:
        """Queue rows as one batch; without a partition they go to the current sticky one."""
        chosen = TopicPartition(topic, self._destinations.choose(topic, None, partition))
        with self._sender.lock:
            if self._accumulator.bytes_held + size > self._buffer_bytes:
                self._wait_for_room(size, chosen)
            if self._closed:
                raise ClientClosed("the producer is closed")
            batch = self._accumulator.add_columns(chosen, rows, size, monotonic())
        if partition is None:
            self._destinations.move_on(topic)
        self._sender.wake()
        return batch

    def _wake(self, queue: PartitionQueue, news: int) -> None:
        """Wake the sender: a batch was opened or filled. A record that is alone may go without it."""
        sender, batch = self._sender, queue.open
        if news == BATCH_FILLED or not sender.send_now(queue):
            if batch is not None:
                batch.helper = sender
            sender.wake()

    def _wait_for_room(self, size: int, partition: TopicPartition) -> None:
        """Wait until `size` bytes fit the buffer (holds the sender's lock), or it is closed. A larger record goes
        alone."""
        deadline = Deadline.after_ms(self.settings.max_block_ms)
        limit = self._buffer_bytes
        self._sender.flushing += 1
        try:
            while (held := self._accumulator.bytes_held) and held + size > limit and not self._closed:
                self._sender.wake()
                if not self._sender.room.wait(deadline.remaining_s) and deadline.expired:
                    raise self._buffer_full(partition)
        finally:
            self._sender.flushing -= 1

    def _buffer_full(self, place: TopicPartition | str) -> BufferExhausted:
        self._metrics.exhausted.record()
        return BufferExhausted(
            f"{place}: the buffer's {self.settings.buffer_memory_bytes} bytes have been full for "
            f"{self.settings.max_block_ms} ms; records are produced faster than the brokers acknowledge them"
        )
