"""The producer for asyncio: `send` waits only while the buffer is full or the topic is not known yet.

    send ─▶ the threaded producer's send, on the loop's thread ─▶ Delivery
      └─ it would wait ─▶ the task waits: for room, or for a thread that asks for the topic ─▶ again

Source: `KafkaProducer`; what is different here is only who waits.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, Unpack

from headrace.client.aio.calls import Awaited, Calls
from headrace.client.aio.room import Room
from headrace.client.core.failures import BufferExhausted
from headrace.client.core.metadata import TopicInfo
from headrace.client.core.option_types import ProducerOptions
from headrace.client.core.settings import ClientSettings
from headrace.client.core.timing import Deadline
from headrace.client.producer import producer as threaded
from headrace.client.producer.accumulator import BATCH_FILLED, PartitionQueue
from headrace.client.producer.column_input import ColumnLike, Headers
from headrace.client.producer.delivery import (
    RECORD_OVERHEAD_BYTES,
    Batch,
    ColumnsDelivery,
    Delivery,
    RecordMetadata,
    settled,
)
from headrace.client.producer.interceptors import Intercepted, ProducerInterceptors, ProducerRecord
from headrace.client.producer.partition_rows import Part
from headrace.client.producer.settings import ProducerSettings
from headrace.client.serializers.serializing import Serializing
from headrace.errors import KafkaError
from headrace.records.format2.columns import HeadersColumn
from headrace.types import TopicPartition

if TYPE_CHECKING:
    from headrace.client.producer.transactions import Transactions

T = TypeVar("T")

_LOOKUPS_MAX = 4
_CLOSE_S = 1.0
"""How long a call that waits for a broker may go on once the producer closes."""
_BURST = 512
"""Sends without a wait after which other tasks get their turn: half a millisecond."""


class _NoRoom(Exception):
    """The buffer has no room for so many bytes."""

    def __init__(self, size: int, place: TopicPartition) -> None:
        super().__init__(size, place)
        self.size, self.place = size, place


class _UnknownTopic(Exception):
    """The topic has to be asked for."""


class _Core(threaded.Producer):
    """The threaded producer, with an exception where `send` would wait."""

    is_started: bool
    _is_to_wake: bool

    def _start(self) -> None:
        self.is_started = self._is_to_wake = False
        self._wanted_anew: set[str] = set()

    def start(self) -> None:
        """Start the sender, if it is not."""
        with self._closing:
            if not (self.is_started or self._closed):
                self.is_started = True
                self._sender.start()

    def load_topic(self, topic: str) -> TopicInfo:
        """Ask for the topic; waits."""
        if topic not in self._wanted_anew:
            return super()._load_topic(topic)
        self._cluster.forget(topic)
        found = super()._load_topic(topic)
        self._destinations.found_anew(topic)
        self._wanted_anew.discard(topic)
        return found

    def parts(
        self,
        topic: str,
        keys: ColumnLike | None,
        values: ColumnLike | None,
        timestamps_ms: int | Sequence[int] | memoryview | None,
        partition: int | None,
        headers: Sequence[Headers] | HeadersColumn | None,
    ) -> list[Part]:
        """The columns in slices of a batch each."""
        self._topic(topic)
        return list(self._parts(topic, keys, values, timestamps_ms, partition, headers))

    def take_serializing(self) -> Serializing | None:
        """The serializers, which the asyncio face applies itself: once, where `send` may be tried again."""
        taken, self._serializing = self._serializing, None
        return taken

    @property
    def interceptors(self) -> ProducerInterceptors | None:
        """The interceptors: the asyncio face begins with them itself, before it may try to send again."""
        return self._interceptors

    def room(self) -> Room:
        """The queue of tasks that wait for the buffer."""
        return Room(self._sender, self._accumulator, self.settings.buffer_memory_bytes)

    def flushing(self) -> AbstractContextManager[list[Batch]]:
        """See `Producer._flushing`."""
        return self._flushing()

    def flush_deadline(self, timeout_ms: float | None) -> Deadline:
        """When a flush gives up."""
        return self._flush_deadline(timeout_ms)

    def add_part(self, topic: str, part: Part) -> Batch:
        """Queue a slice of columns as one batch."""
        return self._add_part(topic, *part)

    def buffer_full(self, place: TopicPartition | str) -> BufferExhausted:
        """The error of waiting for room in vain."""
        return self._buffer_full(place)

    def transactional(self) -> Transactions:
        """The transactions. Raises InvalidConfig without a transactional_id, and ClientForked."""
        return self._transactional()

    def check_process(self) -> None:
        """Raises ClientForked in a fork of the process."""
        self._cluster.check_process()

    def refuse_more(self) -> bool:
        """Take no more records; returns whether this call is the one that closes. In a fork it closes nothing."""
        return not self._cluster.is_forked and self._refuse_more()

    def stop(self) -> None:
        """Stop the sender, and fail the remaining records; waits."""
        self._stop()

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, or is of a parent of this process."""
        return self._closed or self._cluster.is_forked

    def interrupt(self) -> None:
        """Fail what waits for a broker."""
        self._cluster.interrupt()

    def _load_topic(self, topic: str) -> TopicInfo:
        raise _UnknownTopic

    def _topic_anew(self, topic: str) -> TopicInfo:
        self._wanted_anew.add(topic)
        raise _UnknownTopic

    def _wake(self, queue: PartitionQueue, news: int) -> None:
        """Wake the sender once the tasks that are ready have had their turn, so that it finds the records of all."""
        if news == BATCH_FILLED:
            self._sender.wake()
        elif not self._is_to_wake:
            self._is_to_wake = True
            asyncio.get_running_loop().call_soon(self._wake_now)

    def _wake_now(self) -> None:
        self._is_to_wake = False
        self._sender.wake()

    def _wait_for_room(self, size: int, partition: TopicPartition) -> None:
        if self._accumulator.bytes_held:
            raise _NoRoom(size, partition)


class Producer:
    """Sends records to topics. `async with`, or `close`, makes sure that all records are delivered.

    Tasks of several loops and several threads may use one producer.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str] | Mapping[str, object] | None = None,
        settings: ProducerSettings | None = None,
        client: ClientSettings | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        """As of `headrace.Producer`. Nothing is started or connected yet. Raises InvalidConfig."""
        self._core = _Core(bootstrap, settings, client, **options)
        self._room = self._core.room()
        self._serializing = self._core.take_serializing()
        self._interceptors = self._core.interceptors
        self._send, self._waiters = self._core.send, self._room.waiters  # looked up once, for `send`
        self._lookups = Calls("producer", _LOOKUPS_MAX)
        self._calls = Calls("producer")
        self._asked: dict[tuple[asyncio.AbstractEventLoop, str], asyncio.Task[TopicInfo]] = {}
        self._burst = 0
        self._closing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._core.start()
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        await self.close(None if kind is None else 0.0)

    def __del__(self) -> None:
        if "_closing" in self.__dict__ and self._core.is_started and not self._core.is_closed:
            text = f"{self!r} was not closed: use `async with`, or await close()"
            warnings.warn(text, ResourceWarning, stacklevel=2, source=self)

    @property
    def core(self) -> threaded.Producer:
        """The threaded producer, whose calls may wait."""
        return self._core

    @property
    def settings(self) -> ProducerSettings:
        """The settings."""
        return self._core.settings

    async def send(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | Mapping[str, bytes | None] = (),
    ) -> Delivery:
        """Give a record to the sender; await the returned Delivery to know that the brokers have it.

        Waits up to `max_block_ms` while the topic is unknown or the buffer is full. A send that is cancelled while
        it waits sent nothing. The arguments and errors are those of `headrace.Producer.send`. A serializer that has to
        ask a registry does so on a thread.
        """
        intercepted: Intercepted | None = None
        if self._interceptors is not None:
            given = ProducerRecord(topic, value, key, partition, timestamp_ms, headers)
            intercepted = self._interceptors.begin(given)
            topic, value, key, partition, timestamp_ms, headers = intercepted.record
        try:
            if self._serializing is not None:
                serialize = partial(self._serializing.record, topic, key, value, headers)
                waits = self._serializing.may_wait(topic)
                key, value, headers = await self._lookups.run(serialize) if waits else serialize()
            if self._burst >= _BURST:  # before the record is on its way: who is cancelled here has sent nothing
                self._burst = 0
                await asyncio.sleep(0)
            if not self._waiters:
                try:
                    delivery = self._send(topic, value, key, partition, timestamp_ms, headers, intercepted)
                except (_NoRoom, _UnknownTopic):
                    pass
                else:
                    intercepted = None  # it is on its way, whatever becomes of this task
                    self._burst += 1
                    return delivery
            send = partial(self._core.send, topic, value, key, partition, timestamp_ms, headers, intercepted)
            return await self._admitted(topic, _size_of(key, value), send)
        except BaseException as cause:
            if intercepted is not None:
                intercepted.refused(cause)
            raise

    async def send_and_wait(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | Mapping[str, bytes | None] = (),
    ) -> RecordMetadata:
        """Send a record and wait for its place. Raises KafkaError if it could not be delivered."""
        return await (await self.send(topic, value, key, partition, timestamp_ms, headers))

    async def send_columns(
        self,
        topic: str,
        keys: ColumnLike | None,
        values: ColumnLike | None,
        timestamps_ms: int | Sequence[int] | memoryview | None = None,
        partition: int | None = None,
        headers: Sequence[Headers] | HeadersColumn | None = None,
    ) -> ColumnsDelivery:
        """Give many records at once; await the returned ColumnsDelivery to know that the brokers have them.

        Waits as `send` does, for each batch. A cancelled call may have sent the first rows. The columns, which must not
        change until they are delivered, and the errors are those of `headrace.Producer.send_columns`.
        """
        self._core.start()
        cut = partial(self._core.parts, topic, keys, values, timestamps_ms, partition, headers)
        while True:
            await self.partitions(topic)
            try:
                parts = await self._lookups.run(cut)
                break
            except _UnknownTopic:
                continue  # forgotten again
        add = self._core.add_part
        return ColumnsDelivery([await self._admitted(topic, part[2], partial(add, topic, part)) for part in parts])

    async def _admitted(self, topic: str, size: int, attempt: Callable[[], T]) -> T:
        """What `attempt` returns, once there is room for it and the topic is known."""
        core = self._core
        core.start()
        deadline = Deadline.after_ms(core.settings.max_block_ms)
        is_next = not self._waiters
        place: TopicPartition | str = topic
        while True:
            if not is_next:
                try:
                    await self._room.wait(size, deadline.remaining_s, again=place is not topic)
                except TimeoutError:
                    raise core.buffer_full(place) from None
            try:
                return attempt()
            except _UnknownTopic:
                is_next = True
                self._room.pass_on()
                await self._known(topic)
            except _NoRoom as full:
                is_next, size, place = False, full.size, full.place
            except BaseException:
                self._room.pass_on()
                raise

    async def _known(self, topic: str) -> None:
        """Ask for the topic, once for all tasks that send to it; they go on in the order in which they came."""
        which = (asyncio.get_running_loop(), topic)
        asked = self._asked.get(which)
        if asked is None:
            lookup = self._lookups.run(partial(self._core.load_topic, topic))
            asked = self._asked[which] = which[0].create_task(lookup)
            asked.add_done_callback(partial(self._answered, which))
        await asyncio.shield(asked)

    def _answered(self, which: tuple[asyncio.AbstractEventLoop, str], asked: asyncio.Task[TopicInfo]) -> None:
        del self._asked[which]
        if not asked.cancelled():
            asked.exception()  # those who wait have it; perhaps all were cancelled

    async def flush(self, timeout_ms: float | None = None) -> None:
        """Send everything now and wait until it is acknowledged or has failed. The Deliveries have the errors.

        Raises DeadlineExceeded after `timeout_ms` (None: the delivery timeout).
        """
        self._core.check_process()
        deadline = self._core.flush_deadline(timeout_ms)
        with self._core.flushing() as unfinished, suppress(TimeoutError):
            async with asyncio.timeout(deadline.remaining_s):
                await settled(unfinished)

    async def partitions(self, topic: str) -> int:
        """The number of partitions of the topic."""
        self._core.start()
        while True:
            try:
                return self._core.partitions(topic)
            except _UnknownTopic:
                await self._known(topic)

    def metrics(self) -> dict[str, dict[str, float]]:
        """What the producer has measured of itself, by Kafka's groups and names. Asks nobody."""
        return self._core.metrics()

    use_brokers: Final = Awaited(threaded.Producer.use_brokers)

    # -- transactions

    init_transactions: Final = Awaited(threaded.Producer.init_transactions)
    begin: Final = Awaited(threaded.Producer.begin)
    send_offsets: Final = Awaited(threaded.Producer.send_offsets)
    commit: Final = Awaited(threaded.Producer.commit)
    prepare_transaction: Final = Awaited(threaded.Producer.prepare_transaction)
    abort: Final = Awaited(threaded.Producer.abort)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """A transaction that is committed at the end of the block, and aborted after an exception or a cancellation.

        DeadlineExceeded at the end of the block says that the outcome is not known. The next block makes sure first
        that nothing of it is open.
        """
        transactions = self._core.transactional()
        if transactions.is_left_open:
            await self.abort()
        await self.begin()
        try:
            yield
            await self.commit()
        except BaseException:
            try:
                await self.abort()
            except KafkaError:  # the exception says more; a fenced producer has nothing to abort
                transactions.left()
            raise

    async def call_core(self, function: Callable[[], T], *, moves: bool) -> T:
        """Run a call of the threaded producer after those that were made before."""
        self._core.check_process()
        self._core.start()
        return await self._calls.run(function)

    # -- the end

    async def close(self, timeout_ms: float | None = None) -> None:
        """Flush for at most `timeout_ms` (0: not at all), stop the threads, and fail the remaining records.

        A cancelled close goes on without its task. In a fork of the process it does nothing.
        """
        if self._core.refuse_more():
            self._closing = asyncio.get_running_loop().create_task(self._close(timeout_ms))
        if self._closing is not None and self._closing.get_loop() is asyncio.get_running_loop():
            await asyncio.shield(self._closing)

    async def _close(self, timeout_ms: float | None) -> None:
        try:
            if timeout_ms is None or timeout_ms > 0:
                await self.flush(timeout_ms)
        finally:
            stopping = self._calls.submit(self._core.stop)
            await asyncio.wait([stopping], timeout=_CLOSE_S)
            self._core.interrupt()
            self._room.release()
            await self._lookups.end()
            await self._calls.end()
            await stopping


def _size_of(key: bytes | None, value: bytes | None) -> int:
    """The bytes that a record will need, without its headers; the attempt refuses what has no length."""
    try:
        return (len(key) if key else 0) + (len(value) if value else 0) + RECORD_OVERHEAD_BYTES
    except TypeError:
        return 0
