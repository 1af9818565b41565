"""Compaction of one log: rewrites closed segments as fewer and smaller ones, beside the old ones.

    1. plan      reads the keys of the dirty segments into an offset map, until it is full
    2. clean     reads the segments up to there in groups that fit one segment each, and writes the records of a group
                 that stay to `<first base offset>.log.cleaned` with its indexes, synced
    3. (owner)   replaces the group by the cleaned segment: see `compaction_swap`

       clean part                first dirty      latest known          first uncleanable
       |  0…0.log  |  0…4711.log  |  0…9000.log  |  0…9500.log  |  …  |  active
       '----- group -----------------------------'

Steps 1 and 2 use only files, not the log, so that they can run in another process. A batch with a wrong CRC ends the
cleaning, because a rewrite would give the damaged bytes a correct CRC.
Source: Kafka's Cleaner.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from headrace.config import TopicConfig
from headrace.errors import CorruptMessage
from headrace.limits import INT32_MAX, INT64_MAX
from headrace.log.cleaning.compaction_filter import BatchFilter, LastRecord
from headrace.log.cleaning.compaction_transactions import PassedTransactions
from headrace.log.cleaning.compaction_writer import CleanedWriter
from headrace.log.cleaning.offset_map import OffsetMap
from headrace.log.filenames import CLEANED, INDEX, LOG, TIME_INDEX, TXN_INDEX, offset_file
from headrace.log.files import Files, LogFile
from headrace.log.segment.index_file import CorruptIndex
from headrace.log.segment.segment import Segment
from headrace.log.segment.txn_index import AbortedTransaction, parse_entries
from headrace.records.any_format import any_crc_is_valid, read_any_header
from headrace.records.format2.header import HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC, NO_TIMESTAMP, BatchHeader
from headrace.records.legacy.message_set import iter_messages

SEGMENT_FILES = (LOG, INDEX, TIME_INDEX, TXN_INDEX)
READ_BYTES_MIN = 64 << 10


class CleaningJob(NamedTuple):
    """A request to clean one log. It has plain values only, because it is sent to another process as JSON."""

    directory: str
    sizes: dict[int, int]
    """The size in bytes of each segment of the log by base offset, ascending. The active segment is the last."""
    first_dirty: int
    first_uncleanable: int
    """The end of the part to clean (exclusive): a segment's base offset."""
    producers: dict[int, tuple[int, int]]
    """The `LastRecord` of each live producer, by producer id."""
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    map_bytes_max: int
    load_factor: float
    read_bytes: int
    io_bytes_per_second: float


TakeRun = Callable[[memoryview, int, int, int], tuple[int, int]]
"""Processes a run of plain batches: (window, its position, its lowest offset, the segment's end offset) -> (the run's
end position, the lowest offset that may follow)."""


class CleaningPlan(NamedTuple):
    """A plan to clean the log up to `end_offset` (exclusive). `groups` are the base offsets of each group."""

    end_offset: int
    groups: list[list[int]]
    keys: int
    map_percent: float
    """The used share of the offset map, in percent."""


class CleanedGroup(NamedTuple):
    """The result for one group. The `.cleaned` files of `base_offset` are complete and synced."""

    base_offset: int
    size_bytes: int
    bytes_read: int
    records_read: int
    records_kept: int
    records_without_key: int
    largest_read: int
    """The largest single read in bytes; above `log.cleaner.io.buffer.size` only for a batch that does not fit it."""


class CleaningWorker(Protocol):
    """Does the work of a cleaning, in this process or in another one. One job at a time; blocks. Any thread.

    `plan` and `clean` raise CorruptMessage for damage, and OSError for a refused disk operation.
    """

    def plan(self, job: CleaningJob) -> CleaningPlan:
        """Begin a job, and plan it."""

    def clean(self, group: list[int]) -> CleanedGroup:
        """Clean the next group of the plan."""

    def stop(self) -> None:
        """Stop the work that is under way. Any thread."""


class CleaningStopped(Exception):
    """The worker was stopped."""


class Throttle:
    """Limits reads and writes to a number of bytes per second, by sleeping."""

    def __init__(
        self,
        bytes_per_second: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._per_second, self._clock, self._sleep = bytes_per_second, clock, sleep
        self._free_at = clock()

    def spend(self, size: int) -> None:
        """Count `size` bytes, and sleep when they exceed the rate."""
        now = self._clock()
        self._free_at = max(self._free_at, now) + size / self._per_second
        if self._free_at - now > 0.02:
            self._sleep(self._free_at - now)


class Compaction:
    """The worker that cleans in this process."""

    def __init__(self, files: Files, throttle: Callable[[float], Throttle] = Throttle) -> None:
        self._files = files
        self._make_throttle = throttle
        self._is_stopped = False

    def stop(self) -> None:
        """Stop at the next batch. The call under way raises CleaningStopped."""
        self._is_stopped = True

    def plan(self, job: CleaningJob) -> CleaningPlan:
        """Read the keys of the dirty part of the log, until the offset map is full, and return the plan.

        Raises CorruptMessage, OSError, CleaningStopped.
        """
        self._job = job
        self._largest_read = 0
        self._directory = Path(job.directory)
        self._throttle = self._make_throttle(job.io_bytes_per_second)
        bases = sorted(job.sizes)
        self._next_base = dict(zip(bases, [*bases[1:], INT64_MAX], strict=True))
        aborted = self._aborted_transactions(bases)
        known = OffsetMap(job.map_bytes_max, job.load_factor, max(1, job.first_uncleanable - job.first_dirty))
        passed = PassedTransactions(each for each in aborted if each.last_offset >= job.first_dirty)
        for base in bases:
            if base < job.first_uncleanable and self._next_base[base] > job.first_dirty:
                if self._learn(base, known, passed):
                    break
                known.latest_offset = max(known.latest_offset, self._next_base[base] - 1)
        self._known = known
        end_offset = max(known.latest_offset + 1, job.first_dirty)
        self._ended: list[AbortedTransaction] = []
        self._filter = BatchFilter(
            known,
            PassedTransactions(aborted, self._ended.append),
            {producer: LastRecord(*last) for producer, last in job.producers.items()},
            now_ms=job.now_ms,
            delete_retention_ms=job.delete_retention_ms,
        )
        self._drop_old_tombstones_until_ms = self._legacy_horizon_ms(bases)
        groups = self._groups([base for base in bases if base < end_offset])
        self._groups_left = len(groups)
        return CleaningPlan(end_offset, groups, known.entries, 100 * known.entries / known.entries_max)

    def _learn(self, base: int, known: OffsetMap, passed: PassedTransactions) -> bool:
        """Add a segment's keys to the offset map. Returns True when the map has no room for all of them."""
        first_dirty = self._job.first_dirty

        def learn(window: memoryview, at: int, expected: int, next_base: int) -> tuple[int, int]:
            return known.learn(window, at, expected, next_base, first_dirty)

        for batch, header in self._batches(base, learn):
            if header.last_offset < first_dirty:
                continue
            if header.magic < MAGIC:
                if self._learn_messages(batch, known):
                    return True
            elif not passed.is_needless(batch, header) and not header.is_control:
                is_full = known.index(batch, header, self._job.first_dirty)
                if is_full:
                    return True
            known.latest_offset = max(known.latest_offset, header.last_offset)
        return False

    def _learn_messages(self, batch: memoryview, known: OffsetMap) -> bool:
        for offset, _, _, message in iter_messages(batch, check_crcs=False):
            if message.key is not None and offset >= self._job.first_dirty and known.put(message.key, offset):
                known.latest_offset = max(known.latest_offset, offset - 1)
                return True
        return False

    def clean(self, group: list[int]) -> CleanedGroup:
        """Write the records of the plan's next group that stay to one cleaned segment.

        `group` has the base offsets. Raises CorruptMessage, OSError, CleaningStopped.
        """
        job, counts = self._job, self._filter
        before = counts.records_read, counts.records_kept, counts.records_without_key
        base_offset = group[0]
        self._largest_read = 0
        remove_cleaned(self._files, self._directory, base_offset)
        settings = TopicConfig(
            segment_index_bytes=job.segment_index_bytes, index_interval_bytes=job.index_interval_bytes
        )
        cleaned = Segment.create(
            self._files, self._directory, base_offset, settings, now_ms=job.now_ms, name_ending=CLEANED
        )
        writer = CleanedWriter(cleaned, job.index_interval_bytes, self._throttle.spend)
        for base in group:
            self._clean_into(writer, base)
        writer.finish()
        for transaction in self._ended:
            cleaned.txn_index.append(self._files, transaction)
        self._ended.clear()
        for suffix in SEGMENT_FILES:
            if self._files.exists(cleaned.path(suffix)):
                self._files.open(cleaned.path(suffix)).sync()
        self._groups_left -= 1
        if not self._groups_left:  # the memory for the keys is not kept for a next job, which may be long in coming
            del self._known, self._filter
        modified_ms = self._files.modified_ms(self._directory / offset_file(group[-1], LOG))
        self._files.set_modified_ms(cleaned.path(LOG), modified_ms)
        return CleanedGroup(
            base_offset,
            cleaned.size,
            sum(job.sizes[base] for base in group),
            counts.records_read - before[0],
            counts.records_kept - before[1],
            counts.records_without_key - before[2],
            self._largest_read,
        )

    def _clean_into(self, writer: CleanedWriter, base: int) -> None:
        is_old = self._files.modified_ms(self._directory / offset_file(base, LOG)) <= self._drop_old_tombstones_until_ms

        def sift(window: memoryview, at: int, expected: int, next_base: int) -> tuple[int, int]:
            writer.make_room()
            return self._filter.sift(window, at, expected, next_base, writer)

        for batch, header in self._batches(base, sift):
            kept = self._filter.kept(batch, header, drop_old_tombstones=is_old)
            if kept is not None:
                writer.add(kept.batch, kept.last_offset, kept.max_timestamp_ms if kept.record_count else NO_TIMESTAMP)

    def _batches(self, base: int, take: TakeRun) -> Iterator[tuple[memoryview, BatchHeader]]:
        """The batches of a segment, checked, except those that `take` processes.

        Raises CorruptMessage, which names the file.
        """
        path = self._directory / offset_file(base, LOG)
        file, size = self._files.open_readonly(path), self._job.sizes[base]
        try:
            yield from self._checked_batches(file, size, base, take)
        except CorruptMessage as error:
            raise CorruptMessage(f"{path}: {error.message}") from error

    def _checked_batches(
        self, file: LogFile, size: int, base: int, take: TakeRun
    ) -> Iterator[tuple[memoryview, BatchHeader]]:
        read_bytes, next_base = max(READ_BYTES_MIN, self._job.read_bytes), self._next_base[base]
        window, window_start, position, expected = memoryview(b""), 0, 0, base
        while position < size:
            if self._is_stopped:
                raise CleaningStopped
            at = position - window_start
            if at + HEADER_BYTES > len(window):
                window, window_start, at = self._read(file, position, min(read_bytes, size - position)), position, 0
            behind, expected = take(window, at, expected, next_base)
            if behind > at:
                position += behind - at
                continue
            header = read_any_header(window, at)
            length = header.batch_length + LOG_OVERHEAD_BYTES
            last_offset = header.base_offset + header.last_offset_delta
            if length > size - position:
                raise CorruptMessage(f"the batch at position {position}, offset {header.base_offset}, is cut off")
            if at + length > len(window):
                wanted = max(min(read_bytes, size - position), length)
                self._largest_read = max(self._largest_read, wanted)
                window, window_start, at = self._read(file, position, wanted), position, 0
            batch = window[at : at + length]
            if not any_crc_is_valid(batch, 0, header):
                raise CorruptMessage(
                    f"the batch at position {position}, offset {header.base_offset}, does not match its CRC"
                )
            if not expected <= header.base_offset <= last_offset < next_base:
                raise CorruptMessage(  # no checksum covers base offsets
                    f"the batch at position {position} has offsets {header.base_offset} to "
                    f"{last_offset}, but offset {expected} or a later one is expected"
                )
            yield batch, header
            expected = last_offset + 1
            position += length

    def _read(self, file: LogFile, position: int, size: int) -> memoryview:
        self._throttle.spend(size)
        return memoryview(file.read(size, position))

    def _aborted_transactions(self, bases: list[int]) -> list[AbortedTransaction]:
        """The aborted transactions of the whole log: a marker may be segments behind its transaction's records."""
        found: list[AbortedTransaction] = []
        for base in bases:
            path = self._directory / offset_file(base, TXN_INDEX)
            if self._files.exists(path):
                try:
                    found += parse_entries(self._files.read(path), base, path.name)
                except CorruptIndex as error:  # without it aborted records would be taken for committed ones
                    raise CorruptMessage(str(error)) from error
        return found

    def _legacy_horizon_ms(self, bases: list[int]) -> int:
        """For formats 0 and 1: segments modified at or before this time lose their tombstones. -1 for none."""
        clean = [base for base in bases if base < self._job.first_dirty]
        if not clean:
            return -1
        newest = self._directory / offset_file(clean[-1], LOG)
        return self._files.modified_ms(newest) - self._job.delete_retention_ms

    def _groups(self, bases: list[int]) -> list[list[int]]:
        """Group neighbouring segments that fit one segment: by bytes, by the bytes of each index, and by offsets."""
        job = self._job
        groups: list[list[int]] = []
        sums = [0, 0, 0]
        for base in bases:
            sizes = [job.sizes[base], self._index_bytes(base, INDEX), self._index_bytes(base, TIME_INDEX)]
            limits = (job.segment_bytes, job.segment_index_bytes, job.segment_index_bytes)
            together = [one + other for one, other in zip(sums, sizes, strict=True)]
            last_offset = min(self._next_base[base], job.first_uncleanable) - 1
            if (
                groups
                and all(each <= limit for each, limit in zip(together, limits, strict=True))
                and last_offset - groups[-1][0] <= INT32_MAX
            ):
                groups[-1].append(base)
                sums = together
            else:
                groups.append([base])
                sums = sizes
        return groups

    def _index_bytes(self, base: int, suffix: str) -> int:
        path = self._directory / offset_file(base, suffix)
        return self._files.file_size(path) if self._files.exists(path) else 0


def remove_cleaned(files: Files, directory: Path, base_offset: int) -> None:
    """Remove the `.cleaned` files of a segment that is not swapped in. Raises OSError."""
    for suffix in SEGMENT_FILES:
        files.remove(directory / (offset_file(base_offset, suffix) + CLEANED))
