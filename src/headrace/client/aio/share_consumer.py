"""The share consumer for asyncio: the threaded one on a thread of its own.

A cancelled poll took nothing: its records stay locked for this member, and are returned by the next poll.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias, Unpack

from headrace.client.aio.calls import Awaited
from headrace.client.aio.reader import Read, Reader
from headrace.client.core.failures import ClientClosed
from headrace.client.core.option_types import ShareConsumerOptions
from headrace.client.core.settings import ClientSettings
from headrace.client.core.timing import Deadline
from headrace.client.share import share_consumer as threaded
from headrace.client.share.acquired_records import ShareRecord
from headrace.client.share.settings import ShareConsumerSettings
from headrace.errors import KafkaError
from headrace.types import TopicPartition

OnAcknowledged: TypeAlias = Callable[
    [Mapping[TopicPartition, frozenset[int]], KafkaError | None], Awaitable[None] | None
]
"""A function or coroutine function that is called with acknowledged offsets, and the error if they were refused."""


class _Core(threaded.ShareConsumer):
    """The threaded share consumer, whose records can go back."""

    def put_back(self, records: list[ShareRecord]) -> None:
        """Return these by the next poll."""
        for record in records:
            held = self._fetcher.records.get(TopicPartition(record.topic, record.partition))
            if held is not None:
                held.taken_back((record.offset,))
        self._buffer.extendleft(reversed(records))

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
        super().__init__(self._core, "share consumer")

    @property
    def core(self) -> threaded.ShareConsumer:
        """The threaded share consumer, which only its own thread may call."""
        return self._core

    @property
    def settings(self) -> ShareConsumerSettings:
        """The settings."""
        return self._core.settings

    subscribe = Awaited(threaded.ShareConsumer.subscribe)
    unsubscribe = Awaited(threaded.ShareConsumer.unsubscribe)
    acknowledge = Awaited(threaded.ShareConsumer.acknowledge)
    commit = Awaited(threaded.ShareConsumer.commit)

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
        def read(slice_ms: float) -> Read[list[ShareRecord]]:
            return Read(partial(self._core.poll, slice_ms, limit), self._core.put_back)

        self._check_task()
        async with self._is_reading:
            return await self._read(read, deadline)
