"""One share fetch: waits until `min_bytes` can be acquired, and acquires records for the member.

The partitions are tried in the session's order, from another one with each request, and share `max_bytes`. Fetches that
wait for the same records are tried in the order of their arrival. Records are sent as file ranges of whole batches, of
which the member has acquired some or all.

A fetch of many partitions tries a part of them in a turn of the event loop, and goes on with the others in later turns.
Where the batches' headers are not in the page cache, a thread reads them, and other fetches of the same share
partitions wait meanwhile. Source: Kafka's DelayedShareFetch, ShareFetchUtils.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import NamedTuple

from headrace.broker.request.context import RequestContext
from headrace.broker.request.demands import READ_TOPIC
from headrace.broker.share.log_batches import LogBatches, read_batches
from headrace.broker.share.share_manager import LedSharePartition, ShareManager
from headrace.coordinators.share_partitions.acquisition import AcquiredBatches, Acquirer, LogBatch, acquire, readable_to
from headrace.coordinators.share_state.persister import SharePartitionKey, TopicIdPartition
from headrace.errors import ErrorCode, KafkaError, OffsetOutOfRange, StorageError
from headrace.limits import ELEMENTS_PER_SLICE
from headrace.log.segment_list import SegmentRange

log = logging.getLogger(__name__)


class FetchResult(NamedTuple):
    """The result of one partition."""

    error: ErrorCode = ErrorCode.NONE
    records: SegmentRange | None = None
    acquired: Sequence[AcquiredBatches] = ()


FetchResults = dict[TopicIdPartition, FetchResult]


class ShareFetchLimits(NamedTuple):
    """How much a share fetch takes, and how long it waits."""

    min_bytes: int
    max_bytes: int
    max_wait_ms: int


class _Found(NamedTuple):
    """Records that can be acquired."""

    at: TopicIdPartition
    led: LedSharePartition
    offset: int
    range: SegmentRange


class ShareFetch:
    """One share fetch, as an operation of the purgatory."""

    __slots__ = (
        "_acquirer", "_ctx", "_cursor", "_done", "_errors", "_found", "_group_id", "_is_committed_only", "_is_done",
        "_is_going_on", "_limits", "_looked", "_manager", "_partitions", "_size", "_used",
    )  # fmt: skip

    def __init__(
        self,
        ctx: RequestContext,
        manager: ShareManager,
        group_id: str,
        acquirer: Acquirer,
        limits: ShareFetchLimits,
        partitions: Sequence[tuple[TopicIdPartition, str]],
        done: Callable[[FetchResults], None],
    ) -> None:
        """`partitions` with their topics' names. `done` is called once with the results, maybe at once."""
        self._ctx, self._manager, self._group_id = ctx, manager, group_id
        self._acquirer, self._limits, self._partitions, self._done = acquirer, limits, partitions, done
        self._is_committed_only = manager.is_committed_only(group_id)
        self._errors: FetchResults = {}
        self._found: list[_Found] = []
        self._looked: dict[TopicIdPartition, None] = {}
        """The partitions that could acquire, with records or without: the first response of a session contains them."""
        self._used: dict[TopicIdPartition, LedSharePartition] = {}
        """The partitions that the fetch has found in use: one that was dropped meanwhile is an error for this fetch."""
        self._cursor = self._size = 0
        self._is_done = self._is_going_on = False

    def start(self) -> None:
        """Acquires what there is, or waits."""
        limits = self._limits
        if not self._partitions or self._acquirer.max_records <= 0 or limits.max_bytes <= 0:
            self._finish({})
            return
        if self.try_complete():
            return
        if limits.max_wait_ms <= 0:
            self.expire()
            return
        self._ctx.wait_for(self, self._keys(), limits.max_wait_ms)

    def _keys(self) -> Iterator[Hashable]:
        """What the fetch waits for: its share partitions, and their logs. And itself, to go on in a later turn."""
        yield self
        for at, topic in self._partitions:
            yield SharePartitionKey(self._group_id, *at)
            yield (topic, at.partition)

    # Waiting

    def try_complete(self) -> bool:
        """Looks for records; acquires them when there are enough. Returns whether the fetch is complete."""
        if self._is_done or self._ctx.is_abandoned:
            return True
        if not self._is_going_on:
            self._forget()
        self._is_going_on = False
        rest = self._look(ELEMENTS_PER_SLICE)
        if len(self._errors) == len(self._partitions):
            self._finish(self._errors)
            return True
        if self._looked and (self._size >= self._limits.min_bytes or self._size >= self._limits.max_bytes):
            self._acquire()
            return True
        if rest:
            self._is_going_on = True
            self._ctx.services.purgatory.touch(self)
        return False

    def expire(self) -> None:
        """Acquires what there is."""
        if self._is_done or self._ctx.is_abandoned:
            return
        self._forget()
        self._look(ELEMENTS_PER_SLICE)
        self._acquire()

    def _forget(self) -> None:
        self._found.clear()
        self._looked.clear()
        self._size = 0
        if self._cursor >= len(self._partitions):
            self._cursor = 0

    def _look(self, count: int) -> int:
        """Looks at the next partitions; returns how many remain in this round."""
        end = min(self._cursor + count, len(self._partitions))
        leading = []
        permits = self._ctx.services.admission.permits
        for at, topic in self._partitions[self._cursor : end]:
            if not permits(self._ctx, READ_TOPIC, topic):  # while the fetch was waiting, the rules have changed
                self._errors[at] = FetchResult(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                continue
            led = self._used.get(at)
            try:
                if led is None:
                    led = self._used[at] = self._manager.use(SharePartitionKey(self._group_id, *at), topic)
                elif led.error is not None:
                    raise led.error
            except KafkaError as error:
                self._errors[at] = FetchResult(error.code)
                continue
            if led.state is not None and not led.is_fetching and led.state.can_acquire:
                leading.append((at, led))
                self._looked[at] = None
        self._cursor = end
        share = max(1, self._limits.max_bytes // max(1, len(leading)))
        for at, led in leading:
            try:
                self._find(at, led, share)
            except (KafkaError, OSError) as error:
                self._errors[at] = FetchResult(_code_of(error))
        return len(self._partitions) - end

    def _find(self, at: TopicIdPartition, led: LedSharePartition, max_bytes: int) -> None:
        """Finds the records that the share partition would acquire next. Raises KafkaError, OSError."""
        partition, state = led.partition, led.state
        if state is None:
            return
        end_offset = partition.last_stable_offset if self._is_committed_only else partition.high_watermark
        offset = state.next_fetch_offset()
        try:
            found = partition.log.read(offset, max_bytes, end_offset=end_offset, at_least_one=self._size == 0)
        except OffsetOutOfRange:
            if partition.log.log_start_offset <= offset:
                raise
            state.log_starts_at(partition.log.log_start_offset)
            self._manager.changed(led)
            offset = state.next_fetch_offset()
            found = partition.log.read(offset, max_bytes, end_offset=end_offset, at_least_one=self._size == 0)
        if found.size:
            self._size += found.size
            self._found.append(_Found(at, led, offset, found))

    # Acquiring

    def _acquire(self) -> None:
        """Acquires from what was found, and ends the fetch."""
        self._is_done = True
        try:
            batches = [self._batches(each, only_cached=True) for each in self._found]
        except BlockingIOError:
            for each in self._found:
                each.led.is_fetching = True
            if not self._ctx.services.spawn(self._acquire_cold()):
                self._ctx.connection.close("the broker is shutting down")
            return
        self._acquire_from(batches)

    async def _acquire_cold(self) -> None:
        """As `_acquire`, from batches whose headers a thread reads."""
        found, services = self._found, self._ctx.services

        def read() -> list[LogBatches | None]:
            return [self._batches(each, only_cached=False) for each in found]

        try:
            batches = await services.loop.run_in_executor(None, read)
            for each in found:
                each.led.is_fetching = False
            self._acquire_from(batches)
        except Exception:
            self._ctx.failed()
        finally:
            for each in found:
                each.led.is_fetching = False
                services.purgatory.touch(each.led.key)

    def _batches(self, found: _Found, *, only_cached: bool) -> LogBatches | None:
        """The batches of what was found; None if the log cannot be read. Any thread. Raises BlockingIOError."""
        state = found.led.state
        if state is None:
            return None
        try:
            return read_batches(found.range, readable_to(state, self._acquirer.max_records), only_cached=only_cached)
        except BlockingIOError:
            raise
        except (KafkaError, OSError) as error:
            self._errors[found.at] = FetchResult(_code_of(error))
            return None

    def _acquire_from(self, batches: Sequence[LogBatches | None]) -> None:
        if self._ctx.is_abandoned:
            return
        results: FetchResults = dict.fromkeys(self._looked, FetchResult())
        remaining = self._acquirer.max_records
        now_ms = self._manager.clock_ms()
        for each, read in zip(self._found, batches, strict=True):
            state = each.led.state
            if read is None or state is None or each.led.error is not None:
                continue
            try:
                aborted = self._aborted(each, read)
            except (KafkaError, OSError) as error:
                self._errors[each.at] = FetchResult(_code_of(error))
                continue
            acquirer = self._acquirer._replace(max_records=remaining)
            acquired = acquire(state, acquirer, each.offset, read.batches, aborted, now_ms)
            self._manager.changed(each.led)
            traffic = each.led.partition.traffic
            traffic.fetches += 1
            if acquired:
                remaining -= sum(last - first + 1 for first, last, _ in acquired)
                records = read.slice(each.range, acquired[0].first, acquired[-1].last)
                traffic.bytes_out += records.size
                results[each.at] = FetchResult(records=records, acquired=acquired)
        self._finish(results | self._errors)

    def _aborted(self, found: _Found, read: LogBatches) -> list[LogBatch]:
        if not self._is_committed_only or not read.transactional:
            return []
        end = read.batches[-1].last_offset + 1
        return read.aborted(found.led.partition.log.aborted_transactions(read.batches[0].base_offset, end))

    def _finish(self, results: FetchResults) -> None:
        self._is_done = True
        self._done(results)


def _code_of(error: KafkaError | OSError) -> ErrorCode:
    if isinstance(error, KafkaError):
        return error.code
    log.error("a log could not be read: %s", error)
    return StorageError.code
