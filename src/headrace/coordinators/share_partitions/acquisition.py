"""Acquisition: which of the fetched records a member gets.

    batch-optimized    whole batches of the log, a few records more than `max_records` if need be
    record-limit       `max_records` at most; the rest of the batch stays available

Batches that are available again are acquired as they were. A record that was delivered half as often as it may be comes
in ever smaller portions, and the last time alone, so that one that breaks its consumer does not take others with it.
Source: Kafka's SharePartition.acquire; KIP-932, KIP-1206.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.coordinators.share_partitions.records import ACQUIRED, AVAILABLE, InFlightBatch, RecordRun
from headrace.coordinators.share_partitions.share_partition import SharePartition

_THROTTLED_FROM_MIN = 2


class LogBatch(NamedTuple):
    """The offsets of one batch of the log, both inclusive."""

    base_offset: int
    last_offset: int


class Acquirer(NamedTuple):
    """The member that fetches, and how much it wants."""

    member: str
    is_record_limit: bool
    batch_size: int
    max_records: int


class AcquiredBatches(NamedTuple):
    """Records `first` to `last` (inclusive) that a member has got, and how often they were delivered."""

    first: int
    last: int
    delivery_count: int


def throttled_from(delivery_count_max: int) -> int:
    """The delivery count from which on records come in smaller portions."""
    return max(_THROTTLED_FROM_MIN, -(-delivery_count_max // 2))


def readable_to(partition: SharePartition, max_records: int) -> int:
    """The offset behind which an acquisition takes nothing, whatever is fetched: batches that begin above it need not
    be read."""
    return partition.end_offset + max(0, min(max_records, partition.limits.in_flight_max))


def acquire(
    partition: SharePartition,
    acquirer: Acquirer,
    fetch_offset: int,
    fetched: Sequence[LogBatch],
    aborted: Sequence[LogBatch],
    now_ms: int,
) -> list[AcquiredBatches]:
    """Acquires records of the batches that were `fetched` at `fetch_offset`. `aborted`: those of them that belong to
    aborted transactions, which nobody gets; ascending."""
    if acquirer.max_records <= 0 or not fetched or fetched[-1].last_offset < partition.start_offset:
        return []
    last_offset, max_records = _limits(partition, acquirer.max_records, fetch_offset, fetched[-1].last_offset)
    if max_records <= 0:
        return []
    _archive_stale(partition, fetch_offset, fetched[0].base_offset)
    if last_offset < max(partition.start_offset, fetched[0].base_offset):
        return []  # everything that was fetched is finished, or lies behind the limit of records in flight
    acquired = _Acquisition(partition, acquirer, fetched, now_ms).run(last_offset, max_records)
    if aborted and acquired:
        for base, last in aborted:
            partition.archive(max(base, acquired[0].first), min(last, acquired[-1].last), ACQUIRED, is_counted=True)
        acquired = _without(acquired, aborted)
        partition.move_start()
    return acquired


def _limits(partition: SharePartition, max_records: int, fetch_offset: int, last_offset: int) -> tuple[int, int]:
    """The last offset to acquire, and how many records. At the limit of records in flight, only those that are."""
    allowed = min(max_records, partition.limits.in_flight_max - partition.in_flight_count)
    if allowed <= 0 and fetch_offset <= partition.end_offset:
        allowed = min(max_records, partition.end_offset - fetch_offset + 1)
        last_offset = min(last_offset, partition.end_offset)
    return last_offset, allowed


def _archive_stale(partition: SharePartition, fetch_offset: int, base_offset: int) -> None:
    """Archives available records that compaction has removed, and forgets gaps there: the log answers with later
    ones."""
    if fetch_offset >= base_offset:
        return
    was_gap = partition.lacks(fetch_offset, base_offset)
    if partition.archive(fetch_offset, base_offset - 1, AVAILABLE, is_counted=True) or was_gap:
        partition.move_start()


class _Acquisition:
    """One acquisition under way."""

    __slots__ = ("_acquirer", "_count", "_fetched", "_first", "_lock_until_ms", "_partition", "_result")

    def __init__(self, partition: SharePartition, acquirer: Acquirer, fetched: Sequence[LogBatch], now_ms: int) -> None:
        self._partition, self._acquirer, self._fetched = partition, acquirer, fetched
        self._first = fetched[0].base_offset
        self._lock_until_ms = now_ms + partition.limits.lock_ms
        self._result: list[AcquiredBatches] = []
        self._count = 0

    def run(self, last_offset: int, max_records: int) -> list[AcquiredBatches]:
        partition = self._partition
        base = self._first
        floor = partition.in_flight.floor(base)
        if floor is not None and floor.last >= base:
            base = floor.first
        else:
            base = max(base, partition.start_offset)
        batches = partition.in_flight.beginning_in(min(self._first, base), last_offset)
        if not batches:
            self._acquire_new(base, last_offset, max_records)
            return self._result
        gap_start = base
        for batch in list(batches):
            if self._count >= max_records:
                break
            if partition.has_gaps:
                if gap_start < batch.first:
                    self._acquire_new(gap_start, batch.first - 1, max_records - self._count)
                gap_start = batch.last + 1
                if self._count >= max_records:
                    break
            if self._acquire_again(batch, last_offset, max_records - self._count):
                max_records = 0
                break
        if self._count < max_records and batches[-1].last < last_offset:
            self._acquire_new(batches[-1].last + 1, last_offset, max_records - self._count)
        if self._result:
            partition.filled_to(self._result[-1].last + 1)
        return self._result

    def _acquire_again(self, batch: InFlightBatch, last_offset: int, remaining: int) -> bool:
        """Acquires what is available of a batch in flight; returns whether nothing more may be acquired with it."""
        acquirer = self._acquirer
        is_throttled = self._is_throttled(batch, last_offset)
        if is_throttled and self._count > 0:
            return True
        is_subset = acquirer.is_record_limit and batch.last - batch.first + 1 > remaining
        if batch.is_split or is_throttled or is_subset or not batch.lies_in(self._first, last_offset):
            if not batch.is_split:
                if not batch.runs[0].is_available:
                    return False
                batch.split()
            return self._acquire_parts(batch, last_offset, remaining) > 0 and is_throttled
        run = batch.runs[0]
        if run.is_available:
            self._take(run)
            self._result.append(AcquiredBatches(run.first, run.last, run.delivery_count))
            self._count += len(run)
        return False

    def _take(self, run: RecordRun) -> None:
        run.acquire(self._acquirer.member, self._lock_until_ms)
        self._partition.lock_ends(self._lock_until_ms)

    def _is_throttled(self, batch: InFlightBatch, last_offset: int) -> bool:
        limit = throttled_from(self._partition.limits.delivery_count_max)
        return any(
            run.is_available and run.delivery_count >= limit
            for run in (batch.within(self._first, last_offset) if batch.is_split else batch.runs)
        )

    def _acquire_parts(self, batch: InFlightBatch, last_offset: int, remaining: int) -> int:
        """Acquires available records of a split batch; returns how many."""
        limit = self._partition.limits.delivery_count_max
        count, portion = 0, -1
        taken: list[AcquiredBatches] = []
        for run in batch.within(self._first, last_offset):
            if not run.is_available:
                continue
            is_last_time = limit > 2 and run.delivery_count == limit - 1
            if is_last_time and count:
                break  # comes alone, with the next fetch
            if portion < 0 and run.delivery_count >= throttled_from(limit):
                portion = max(1, (batch.last - batch.first + 1) >> (run.delivery_count - throttled_from(limit) + 1))
            first = max(run.first, self._first)
            size = min(run.last, last_offset) - first + 1
            if is_last_time:
                size = 1
            if self._acquirer.is_record_limit:
                size = min(size, remaining - count)
            if portion > count:
                size = min(size, portion - count)
            part = batch.only(run, first, first + size - 1)
            self._take(part)
            count += size
            if taken and taken[-1].last + 1 == part.first and taken[-1].delivery_count == part.delivery_count:
                taken[-1] = taken[-1]._replace(last=part.last)
            else:
                taken.append(AcquiredBatches(part.first, part.last, part.delivery_count))
            if is_last_time or count == portion or (self._acquirer.is_record_limit and count == remaining):
                break
        self._result += taken
        self._count += count
        return count

    def _acquire_new(self, first: int, last: int, max_records: int) -> None:
        """Acquires records that are not in flight, up to whole batches of the log."""
        partition = self._partition
        if not partition.in_flight:
            first = max(first, partition.end_offset)
        if max_records < last - first + 1:
            end = self._end_of_batch(first + max_records - 1)
            # Between batches that the persister had, a batch of the log may reach over the next one.
            last = min(last, end) if partition.has_gaps else end
        made = self._add(first, last, max_records)
        if partition.in_flight.batches[0].first == first:
            partition.start_offset = first
        partition.end_offset = max(partition.end_offset, last)
        last = made[-1].last
        self._result += made
        self._count += last - first + 1
        partition.filled_to(last + 1)

    def _end_of_batch(self, offset: int) -> int:
        """The last offset of the fetched batch that holds an offset; the offset itself if there is none."""
        for base, last in reversed(self._fetched):
            if base <= offset:
                return max(last, offset)
        return offset

    def _add(self, first: int, last: int, max_records: int) -> list[AcquiredBatches]:
        """Puts new batches in flight."""
        made: list[AcquiredBatches] = []
        if self._acquirer.is_record_limit:
            self._put(first, last)
            size = min(max_records, last - first + 1)
            if size < last - first + 1:
                self._leave_rest(first, first + size)
            return [AcquiredBatches(first, first + size - 1, 1)]
        size = max(1, self._acquirer.batch_size)
        begin = first
        if last - first + 1 > size:
            for base, _ in self._fetched:
                if base > last:
                    break
                if base - begin >= size:
                    made.append(AcquiredBatches(begin, base - 1, 1))
                    begin = base
        made.append(AcquiredBatches(begin, last, 1))
        for each in made:
            self._put(each.first, each.last)
        return made

    def _put(self, first: int, last: int) -> None:
        run = RecordRun(first, last, ACQUIRED, 1, self._acquirer.member, self._lock_until_ms)
        self._partition.in_flight.add(InFlightBatch(run))
        self._partition.lock_ends(self._lock_until_ms)

    def _leave_rest(self, first: int, offset: int) -> None:
        """Leaves the records from `offset` on of the new batch at `first` available; nobody has got them yet."""
        batch = self._partition.in_flight.floor(first)
        if batch is None:
            raise AssertionError(f"the batch at {first} was added just now")
        batch.split()
        rest = batch.only(batch.runs[0], offset, batch.last)
        rest.state, rest.member, rest.delivery_count, rest.lock_until_ms = AVAILABLE, "", 0, None
        self._partition.find_next = True


def _without(acquired: list[AcquiredBatches], aborted: Sequence[LogBatch]) -> list[AcquiredBatches]:
    """What remains of acquired records without these batches. Both ascend."""
    result = []
    number = 0
    for first, last, delivery_count in acquired:
        while number < len(aborted) and aborted[number].last_offset < first:
            number += 1
        begin, at = first, number
        while at < len(aborted) and aborted[at].base_offset <= last:
            if begin < aborted[at].base_offset:
                result.append(AcquiredBatches(begin, aborted[at].base_offset - 1, delivery_count))
            begin = aborted[at].last_offset + 1
            at += 1
        if begin <= last:
            result.append(AcquiredBatches(begin, last, delivery_count))
    return result
