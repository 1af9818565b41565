"""The consumer for asyncio: the threaded one on a thread of its own, which reads while the loop is free.

    task ── poll, async for ─▶ buffer ─ empty ─▶ thread: poll ─▶ Ahead ─▶ buffer
    task ── commit, seek, ... ───────────────▶ thread, after the poll in progress, whose wait it ends

One task reads at a time; others wait for it. Rebalance listeners run on the loop while the poll that led to them waits.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias, TypeVar, Unpack

from headrace.client.aio.calls import Awaited
from headrace.client.aio.reader import Read, Reader
from headrace.client.aio.reading import Ahead, Buffer, Columns, Core, NextRecord
from headrace.client.consumer.fetched_batches import ConsumerRecord, ReadOptions
from headrace.client.consumer.settings import ConsumerSettings
from headrace.client.consumer.subscription import Rebalanced
from headrace.client.core.failures import ClientClosed
from headrace.client.core.group_metadata import GroupMetadata
from headrace.client.core.option_types import ConsumerOptions
from headrace.client.core.settings import ClientSettings
from headrace.client.core.timing import Deadline
from headrace.types import TopicPartition

T = TypeVar("T")

Listener: TypeAlias = Callable[[Collection[TopicPartition]], Awaitable[None] | None]
"""A function or coroutine function that is told of a rebalance."""


class Consumer(Reader):
    """Reads partitions in order. `async with`, or `close`, leaves the group at once. One event loop uses a consumer."""

    def __init__(
        self,
        bootstrap: str | Sequence[str] | Mapping[str, object] | None = None,
        settings: ConsumerSettings | None = None,
        client: ClientSettings | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        """As of `headrace.Consumer`. Nothing is started or connected yet. Raises InvalidConfig."""
        self._core = Core(bootstrap, settings, client, **options)
        self._buffer = Buffer()
        super().__init__(self._core, "consumer")

    @property
    def core(self) -> Core:
        """The threaded consumer, which only its own thread may call."""
        return self._core

    @property
    def settings(self) -> ConsumerSettings:
        """The settings."""
        return self._core.settings

    # -- what to read

    async def subscribe(
        self,
        topics: Collection[str] | re.Pattern[str],
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        on_lost: Listener | None = None,
    ) -> None:
        """As `headrace.Consumer.subscribe`. The callbacks may be coroutine functions, and may await calls of the
        consumer, except those that read."""
        told = [None if each is None else partial(self._told, each) for each in (on_assigned, on_revoked, on_lost)]
        named: dict[str, Rebalanced | None] = dict(zip(("on_assigned", "on_revoked", "on_lost"), told, strict=True))
        await self.call_core(partial(self._core.subscribe, topics, **named), moves=True)

    def _told(self, listener: Listener, partitions: Collection[TopicPartition]) -> None:
        self._ask_loop(partial(listener, partitions))

    assign: Final = Awaited(Core.assign, moves=True)
    unsubscribe: Final = Awaited(Core.unsubscribe, moves=True)
    pause: Final = Awaited(Core.pause, moves=True)
    resume: Final = Awaited(Core.resume)

    @property
    def subscription(self) -> list[str] | re.Pattern[str]:
        """The subscribed topics, or the pattern; an empty list without a subscription."""
        return self._core.subscription

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that are assigned at the moment."""
        return self._core.assignment

    @property
    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        return self._core.paused

    # -- where to read

    seek: Final = Awaited(Core.seek, moves=True)
    seek_to_beginning: Final = Awaited(Core.seek_to_beginning, moves=True)
    seek_to_end: Final = Awaited(Core.seek_to_end, moves=True)
    seek_to_time: Final = Awaited(Core.seek_to_time, moves=True)
    position: Final = Awaited(Core.position)
    beginning_offsets: Final = Awaited(Core.beginning_offsets)
    end_offsets: Final = Awaited(Core.end_offsets)
    offsets_for_times: Final = Awaited(Core.offsets_for_times)
    lag: Final = Awaited(Core.lag)

    # -- reading

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """Every record, one after the other, and then those that come, until the consumer is closed.

        The position is after the record that was given last, so a commit in the loop includes it.
        """
        return self

    async def __anext__(self) -> ConsumerRecord:
        record = None if self._core.has_interceptors else self._buffer.take_one()
        if record is not None:
            return record
        try:
            return await self.getone()
        except ClientClosed:
            if self._closing is None:
                raise
            raise StopAsyncIteration from None

    async def getone(self) -> ConsumerRecord:
        """The next record, whenever it comes. Raises KafkaError."""
        while True:
            while (record := self._buffer.take_one()) is None:
                await self._fill(self.settings.max_poll_records, None)
            if not self._core.has_interceptors:
                return record
            if kept := self._core.intercepted([record]):
                return kept[0]

    async def poll(self, timeout_ms: float = 1_000, max_records: int | None = None) -> list[ConsumerRecord]:
        """Up to `max_records` records of one partition; an empty list if none arrives within `timeout_ms`.

        A cancelled poll took nothing. Raises KafkaError, also if nothing is subscribed or assigned.
        """
        limit = max_records or self.settings.max_poll_records
        found = self._buffer.take(limit) or await self._polled(limit, Deadline.after_ms(timeout_ms))
        return self._core.intercepted(found)

    async def _polled(self, limit: int, deadline: Deadline) -> list[ConsumerRecord]:
        await self._fill(limit, deadline)
        return self._buffer.take(limit)

    async def getmany(
        self, timeout_ms: float = 1_000, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """What `poll` returns, by partition."""
        records = await self.poll(timeout_ms, max_records)
        return {TopicPartition(records[0].topic, records[0].partition): records} if records else {}

    async def poll_columns(self, timeout_ms: float = 1_000, options: ReadOptions | None = None) -> Columns:
        """Records that were fetched or arrive within `timeout_ms`, as columns, without a Python object per record."""

        def read(slice_ms: float) -> Read[Columns]:
            return Read(partial(self._core.poll_columns, slice_ms, options), self._core.put_back_columns)

        self._check_task()
        async with self._is_reading:
            self._before_call(moves=True)
            return await self._read(read, Deadline.after_ms(timeout_ms))

    async def _fill(self, limit: int, deadline: Deadline | None) -> None:
        """Read ahead until the deadline (None: until there are records), unless another task has done so meanwhile."""

        def read(slice_ms: float) -> Read[Ahead | None]:
            return Read(partial(self._core.read_ahead, slice_ms, limit), self._core.put_back_ahead)

        self._check_task()
        async with self._is_reading:
            if not self._buffer.is_empty or self._fill_at_once(limit):
                await asyncio.sleep(0)  # other tasks have their turn, too
                return
            ahead = await self._read(read, deadline)
            if ahead is not None:
                self._buffer.fill(ahead)

    def _fill_at_once(self, limit: int) -> bool:
        """Read ahead on the loop's thread, if the other thread does nothing and nobody has to be asked."""
        if not self._calls.is_idle:
            return False
        self._check()
        if (place := self._buffer.news()) is not None:
            self._core.handed_out(place)
        ahead = self._core.read_at_once(limit)
        if ahead is not None:
            self._buffer.fill(ahead)
        return ahead is not None

    # -- committing

    commit: Final = Awaited(Core.commit)
    committed: Final = Awaited(Core.committed)
    committed_with_metadata: Final = Awaited(Core.committed_with_metadata)

    def group_metadata(self) -> GroupMetadata:
        """This consumer's membership, for `Producer.send_offsets`: a member that lost its place commits nothing."""
        return self._core.group_metadata()

    def metrics(self) -> dict[str, dict[str, float]]:
        """What the consumer has measured of itself, by Kafka's groups and names. Asks nobody."""
        return self._core.metrics()

    # -- the thread

    def _before_call(self, *, moves: bool) -> None:
        """Tell the thread which records were handed out, before it does anything else, and drop what it may move."""
        place = self._buffer.news()
        if place is not None:
            self._calls.submit(partial(self._core.handed_out, place))
        if moves:
            self._put_back(self._buffer.take_rest())

    def _put_back(self, place: NextRecord | None) -> None:
        if place is not None:
            self._calls.submit(partial(self._core.put_back, place))
