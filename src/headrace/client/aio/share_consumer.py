"""The share consumer for asyncio: the threaded one on a thread of its own.

    thread: poll ─▶ Ahead (acquired, not delivered) ─▶ task ─▶ handed out, before the next call of the thread

So a commit accepts exactly the records that a task has received. A cancelled poll took nothing: its records stay locked
for this member, and are returned by the next poll.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias, Unpack

from headrace.client.aio.calls import Awaited
from headrace.client.aio.reader import Read, Reader
from headrace.client.core.failures import ClientClosed
from headrace.client.core.option_types import ShareConsumerOptions
from headrace.client.core.settings import ClientSettings
from headrace.client.core.timing import Deadline
from headrace.client.share import share_consumer as threaded
from headrace.client.share.acknowledgements import PartitionRecords
from headrace.client.share.acquired_records import ShareRecord
from headrace.client.share.settings import ShareConsumerSettings
from headrace.errors import KafkaError
from headrace.types import TopicPartition

OnAcknowledged: TypeAlias = Callable[
    [Mapping[TopicPartition, frozenset[int]], KafkaError | None], Awaitable[None] | None
]
"""A function or coroutine function that is called with acknowledged offsets, and the error if they were refused."""


class _Ahead(NamedTuple):
    """A record that no task has received yet, and the records of its partition that it belongs to."""

    record: ShareRecord
    held: PartitionRecords


class _Core(threaded.ShareConsumer):
    """The threaded share consumer, with records that are delivered when a task receives them."""

    def poll_ahead(self, timeout_ms: float, limit: int | None) -> list[_Ahead]:
        """Poll. The records are not delivered until they are `handed_out`."""
        found = [_Ahead(record, self._held(record)) for record in self.poll(timeout_ms, limit)]
        for record, held in found:
            held.taken_back((record.offset,))
        return found

    def handed_out(self, given: list[_Ahead]) -> None:
        """Tasks have received these."""
        for record, held in self._current(given):
            held.delivered((record.offset,))

    def put_back(self, found: list[_Ahead]) -> None:
        """Return these by the next poll."""
        self._buffer.extendleft(record for record, _ in reversed(self._current(found)))

    def _held(self, record: ShareRecord) -> PartitionRecords:
        return self._fetcher.records[TopicPartition(record.topic, record.partition)]

    def _current(self, found: list[_Ahead]) -> list[_Ahead]:
        """The records that are still this member's: the end of a subscription has released the others."""
        records = self._fetcher.records
        return [each for each in found if records.get(TopicPartition(*each.record[:2])) is each.held]

    def interrupt(self) -> None:
        """Fail what waits for a broker. Any thread may call."""
        self._cluster.interrupt()

    @property
    def is_forked(self) -> bool:
        """Whether this process is a fork of the one that made the consumer."""
        return self._cluster.is_forked


class ShareConsumer(Reader):
    """Reads topics together with the other members of its group. One event loop uses a share consumer."""

    def __init__(
        self,
        bootstrap: str | Sequence[str] | Mapping[str, object] | None = None,
        settings: ShareConsumerSettings | None = None,
        client: ClientSettings | None = None,
        **options: Unpack[ShareConsumerOptions],
    ) -> None:
        """As of `headrace.ShareConsumer`. Nothing is started or connected yet. Raises InvalidConfig."""
        self._core = _Core(bootstrap, settings, client, **options)
        self._given: list[_Ahead] = []
        super().__init__(self._core, "share consumer")

    @property
    def core(self) -> threaded.ShareConsumer:
        """The threaded share consumer, which only its own thread may call."""
        return self._core

    @property
    def settings(self) -> ShareConsumerSettings:
        """The settings."""
        return self._core.settings

    subscribe: Final = Awaited(threaded.ShareConsumer.subscribe)
    unsubscribe: Final = Awaited(threaded.ShareConsumer.unsubscribe)
    acknowledge: Final = Awaited(threaded.ShareConsumer.acknowledge)
    commit: Final = Awaited(threaded.ShareConsumer.commit)

    @property
    def subscription(self) -> list[str]:
        """The subscribed topics."""
        return self._core.subscription

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that this member reads at the moment; others may read them, too."""
        return self._core.assignment

    def on_acknowledged(self, callback: OnAcknowledged | None) -> None:
        """Call this on the loop with the offsets that were acknowledged, while `poll`, `commit` or `close` waits."""

        def told(offsets: Mapping[TopicPartition, frozenset[int]], error: KafkaError | None) -> None:
            assert callback is not None, "it is not called without one"
            self._ask_loop(partial(callback, offsets, error))

        self._core.on_acknowledged(None if callback is None else told)

    def _before_call(self, *, moves: bool) -> None:
        """Tell the thread what was received."""
        if self._given:
            given, self._given = self._given, []
            self._calls.submit(partial(self._core.handed_out, given))

    def __aiter__(self) -> AsyncIterator[ShareRecord]:
        """Every record, and then those that come, until the consumer is closed; see `headrace.ShareConsumer`."""
        return self

    async def __anext__(self) -> ShareRecord:
        try:
            return await self.getone()
        except ClientClosed:
            if self._closing is None:
                raise
            raise StopAsyncIteration from None

    async def getone(self) -> ShareRecord:
        """The next record, whenever it comes. Raises KafkaError."""
        (record,) = await self._polled(1, None)
        return record

    async def poll(self, timeout_ms: float = 1_000, max_records: int | None = None) -> list[ShareRecord]:
        """As `headrace.ShareConsumer.poll`. A cancelled poll took nothing."""
        return await self._polled(max_records, Deadline.after_ms(timeout_ms))

    async def _polled(self, limit: int | None, deadline: Deadline | None) -> list[ShareRecord]:
        def read(slice_ms: float) -> Read[list[_Ahead]]:
            return Read(partial(self._core.poll_ahead, slice_ms, limit), self._core.put_back)

        self._check_task()
        async with self._is_reading:
            found = await self._read(read, deadline)
            self._given += found
            return [each.record for each in found]
