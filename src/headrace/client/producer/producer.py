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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from time import monotonic, time_ns
from typing import NamedTuple

from headrace.client.core.cluster import Cluster
from headrace.client.core.failures import BufferExhausted, ClientClosed, DeadlineExceeded
from headrace.client.core.group_metadata import GroupMetadata
from headrace.client.core.metadata import ClusterView, TopicInfo
from headrace.client.core.settings import ClientSettings
from headrace.client.core.timing import Deadline
from headrace.client.producer.accumulator import BATCH_FILLED, Accumulator, Limits, cut
from headrace.client.producer.column_input import ColumnLike, Headers, slice_of
from headrace.client.producer.delivery import (
    RECORD_OVERHEAD_BYTES,
    Batch,
    ColumnsDelivery,
    ColumnSlice,
    Delivery,
    DeliveryCallback,
)
from headrace.client.producer.partition_rows import scatter
from headrace.client.producer.partitioner import StickyPartition, partition_for_key
from headrace.client.producer.prepared import PreparedTransaction
from headrace.client.producer.sender import Sender, SendPolicy
from headrace.client.producer.transactions import (
    TransactionError,
    Transactions,
    TransactionState,
)
from headrace.errors import ErrorCode, InvalidConfig, InvalidRecord, KafkaError, UnknownTopicOrPartition
from headrace.records.codecs.compression import Codec
from headrace.records.format2.columns import HeadersColumn
from headrace.types import TopicPartition

ACKS = {"all": -1, -1: -1, 0: 0, 1: 1, "0": 0, "1": 1, "-1": -1}
IDEMPOTENT_IN_FLIGHT_MAX = 5


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """The settings of a producer."""

    acks: int | str = "all"
    compression: str = "none"
    compression_level: int | None = None
    idempotence: bool | None = None
    """None: yes, where acks=all allows it."""
    linger_ms: float = 5
    batch_bytes: int = 256 << 10
    request_bytes: int = 8 << 20
    buffer_memory_bytes: int = 64 << 20
    max_block_ms: int = 60_000
    delivery_timeout_ms: int = 120_000
    max_in_flight: int = 5
    transactional_id: str | None = None
    """The name under which the producer's transactions survive it: a new producer with the same name ends them."""
    transaction_timeout_ms: int = 60_000

    def policy(self, request_timeout_ms: int) -> SendPolicy:
        """The checked settings of the sender. InvalidConfig names the wrong setting."""
        acks = ACKS.get(self.acks)
        if acks is None:
            raise InvalidConfig(f"acks={self.acks!r}: expected 0, 1 or 'all'")
        idempotent = acks == -1 if self.idempotence is None else self.idempotence
        if idempotent and acks != -1:
            raise InvalidConfig(f"acks={self.acks!r} cannot be idempotent: set acks='all' or idempotence=False")
        if idempotent and self.max_in_flight > IDEMPOTENT_IN_FLIGHT_MAX:
            raise InvalidConfig(f"max_in_flight={self.max_in_flight}: at most 5 is allowed with idempotence")
        if self.transactional_id is not None and not (self.transactional_id and idempotent):
            raise InvalidConfig(
                f"transactional_id={self.transactional_id!r}: a name is needed, and acks='all' with idempotence"
            )
        try:
            codec = Codec[self.compression.upper()]
        except KeyError:
            names = ", ".join(known.name.lower() for known in Codec)
            raise InvalidConfig(f"compression={self.compression!r}: expected one of {names}") from None
        return SendPolicy(acks, codec, self.compression_level, idempotent, self.max_in_flight, request_timeout_ms)


class _Lane(NamedTuple):
    """The data of a topic that `send` needs, looked up once per cluster view and sticky partition."""

    view: ClusterView
    partitions: list[TopicPartition]
    sticky: TopicPartition


class Producer:
    """Sends records to topics. Use `with` or `close` to be sure that all records are delivered."""

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        settings: ProducerSettings | None = None,
        client: ClientSettings | None = None,
    ) -> None:
        self.settings = settings or ProducerSettings()
        client = client or ClientSettings()
        policy = self.settings.policy(client.request_timeout_ms)
        self._cluster = Cluster(bootstrap, client)
        self._accumulator = Accumulator(
            Limits(
                self.settings.batch_bytes,
                self.settings.linger_ms / 1000,
                self.settings.request_bytes,
                self.settings.delivery_timeout_ms / 1000,
            )
        )
        self._sticky: dict[str, StickyPartition] = {}
        self._lanes: dict[str, _Lane] = {}
        self._closed = False
        self._closing = threading.Lock()
        name = self.settings.transactional_id
        self._transactions = (
            None if name is None else Transactions(self._cluster, name, self.settings.transaction_timeout_ms)
        )
        self._sender = Sender(self._cluster, self._accumulator, policy, self._transactions)
        self._sender.start()

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close(None if kind is None else 0.0)

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
        on_delivery: DeliveryCallback | None = None,
    ) -> Delivery:
        """Give a record to the sender. Blocks up to `max_block_ms` while the topic is unknown or the buffer is full.

        Raises UnknownTopicOrPartition, BufferExhausted, BrokerUnreachable, and InvalidRecord for values that are not
        bytes. The Delivery has later errors.
        """
        if self._transactions is not None:
            self._transactions.check_open()
        lane = self._lanes.get(topic)
        if lane is None or lane.view is not self._cluster.view or self._closed:
            lane = self._new_lane(topic)
        if partition is not None:
            chosen = lane.partitions[self._choose(topic, key, partition)]
        elif key is not None:
            chosen = lane.partitions[partition_for_key(key, len(lane.partitions))]
        else:
            chosen = lane.sticky
        if timestamp_ms is None:
            timestamp_ms = time_ns() // 1_000_000
        size = (len(key) if key else 0) + (len(value) if value else 0) + RECORD_OVERHEAD_BYTES
        sender, accumulator = self._sender, self._accumulator
        try:
            with sender.lock:
                if accumulator.bytes_held + size > self.settings.buffer_memory_bytes:
                    self._wait_for_room(size, chosen)
                delivery, news = accumulator.append(chosen, key, value, timestamp_ms, headers, monotonic())
        except (TypeError, ValueError, OverflowError) as cause:
            raise InvalidRecord(f"{chosen}: the record cannot be encoded: {cause}") from cause
        if news:
            if news == BATCH_FILLED and chosen is lane.sticky:
                self._move_on(topic)
                self._lanes.pop(topic, None)
            if sender.asleep:
                sender.wake()
        if on_delivery is not None:
            delivery.add_done_callback(on_delivery)
        return delivery

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
        change until they are delivered.
        """
        if self._transactions is not None:
            self._transactions.check_open()
        columns = slice_of(keys, values, timestamps_ms, headers)
        if columns.stop == 0:
            return ColumnsDelivery([])
        if partition is not None or columns.keys is None:
            return ColumnsDelivery(self._add_columns(topic, partition, columns))
        info = self._topic(topic)
        parts = scatter(columns, len(info.partitions), self._sticky_partition(info))
        return ColumnsDelivery([batch for chosen, part in parts for batch in self._add_columns(topic, chosen, part)])

    def flush(self, timeout_ms: float | None = None) -> None:
        """Send everything now and wait until it is acknowledged or has failed. The Deliveries have the errors.

        Raises DeadlineExceeded after `timeout_ms` (None: the delivery timeout).
        """
        deadline = Deadline.after_ms(timeout_ms if timeout_ms is not None else self.settings.delivery_timeout_ms * 2)
        sender = self._sender
        with sender.lock:
            sender.flushing += 1
            unfinished = self._accumulator.unfinished()
        try:
            sender.wake()
            for batch in unfinished:
                batch.outcome(deadline.remaining_s)
        except DeadlineExceeded as cause:
            left = sum(not batch.is_done for batch in unfinished)
            raise DeadlineExceeded(f"flush: {left} batches are not acknowledged; {cause.message}") from None
        finally:
            with sender.lock:
                sender.flushing -= 1

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
        """Abort the transaction: no read_committed consumer sees its records. Raises KafkaError."""
        transactions = self._transactional()
        deadline = self._deadline(timeout_ms)
        cause = TransactionError("the transaction was aborted before the record was sent")
        if transactions.state is TransactionState.OPEN and not self._accumulator.is_empty:
            transactions.failed(cause)
        self._sender.drop_unsent(cause)
        self.flush(deadline.remaining_s * 1000)
        self._sender.use_identity(transactions.abort(deadline))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction that is committed at the end of the block, and aborted after an exception in it."""
        self.begin()
        try:
            yield
            self.commit()
        except BaseException:
            with suppress(KafkaError):  # the exception says more; a fenced producer has nothing to abort
                self.abort()
            raise

    def _transactional(self) -> Transactions:
        if self._transactions is None:
            raise InvalidConfig("the producer has no transactional_id: set it in ProducerSettings")
        return self._transactions

    def _deadline(self, timeout_ms: float | None) -> Deadline:
        return Deadline.after_ms(self.settings.max_block_ms if timeout_ms is None else timeout_ms)

    def close(self, timeout_ms: float | None = None) -> None:
        """Flush for at most `timeout_ms` (0: not at all), stop the sender, and fail the remaining records."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
        try:
            if timeout_ms is None or timeout_ms > 0:
                self.flush(timeout_ms)
        finally:
            self._sender.stop(self._cluster.settings.request_timeout_ms / 1000)
            if self._transactions is not None:
                self._transactions.close()
            self._cluster.close()
            for batch in self._accumulator.unfinished():
                batch.finish(
                    -1, -1, ClientClosed(f"{batch.partition}: the producer was closed before the batch was delivered")
                )

    def partitions(self, topic: str) -> int:
        """The number of partitions of the topic."""
        return len(self._topic(topic).partitions)

    # -- choosing

    def _new_lane(self, topic: str) -> _Lane:
        info = self._topic(topic)
        partitions = [TopicPartition(topic, index) for index in range(len(info.partitions))]
        lane = self._lanes[topic] = _Lane(self._cluster.view, partitions, partitions[self._sticky_partition(info)])
        return lane

    def _topic(self, topic: str) -> TopicInfo:
        if self._closed:
            raise ClientClosed("the producer is closed")
        known = self._cluster.view.topics.get(topic)
        if known is not None and known.partitions and known.error == ErrorCode.NONE:
            return known
        return self._cluster.topic(topic, Deadline.after_ms(self.settings.max_block_ms), create=True)

    def _choose(self, topic: str, key: bytes | None, partition: int | None) -> int:
        info = self._topic(topic)
        if partition is not None:
            if not 0 <= partition < len(info.partitions):
                raise UnknownTopicOrPartition(
                    f"{topic}-{partition} does not exist: the topic has partitions 0 to {len(info.partitions) - 1}"
                )
            return partition
        if key is not None:
            return partition_for_key(key, len(info.partitions))
        return self._sticky_partition(info)

    def _sticky_partition(self, info: TopicInfo) -> int:
        sticky = self._sticky.get(info.name)
        if sticky is None:
            sticky = self._sticky.setdefault(info.name, StickyPartition())
        return sticky.current(info.available or range(len(info.partitions)))

    def _move_on(self, topic: str) -> None:
        info = self._topic(topic)
        self._sticky_partition(info)
        self._sticky[topic].move_on(info.available)

    # -- giving to the sender

    def _add_columns(self, topic: str, partition: int | None, rows: ColumnSlice) -> list[Batch]:
        """Cut rows into batches and queue them; without a partition, each batch goes to the current sticky one."""
        batches = []
        for part, size in cut(rows, self.settings.batch_bytes):
            chosen = TopicPartition(topic, self._choose(topic, None, partition))
            with self._sender.lock:
                if self._accumulator.bytes_held + size > self.settings.buffer_memory_bytes:
                    self._wait_for_room(size, chosen)
                batches.append(self._accumulator.add_columns(chosen, part, size, monotonic()))
            if partition is None:
                self._move_on(topic)
            self._sender.wake()
        return batches

    def _wait_for_room(self, size: int, partition: TopicPartition) -> None:
        """Wait until `size` bytes fit the buffer (holds the sender's lock). A larger record goes alone."""
        deadline = Deadline.after_ms(self.settings.max_block_ms)
        limit = self.settings.buffer_memory_bytes
        self._sender.flushing += 1
        try:
            while (held := self._accumulator.bytes_held) and held + size > limit:
                self._sender.wake()
                if not self._sender.room.wait(deadline.remaining_s) and deadline.expired:
                    raise BufferExhausted(
                        f"{partition}: the buffer's {limit} bytes have been full for {self.settings.max_block_ms} ms; "
                        "records are produced faster than the brokers acknowledge them"
                    )
        finally:
            self._sender.flushing -= 1
