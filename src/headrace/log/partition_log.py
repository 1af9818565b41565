"""The log of one partition: a list of segments, of which the last is written to.

    log_start_offset            high_watermark      log_end_offset
         |  000…000.log  |  000…4711.log  |  000…9000.log (active)  |
                              ^ recovery_point: everything below is on the disk

One append: is the batch's sequence the next of its producer; is the active segment full; set base offset and leader
epoch in the batch; one write; every few KiB an index entry. One read: which segment; which position; how many bytes;
the answer is a range of a file, which the connection sends without copying it.

Single owner: everything here is called from one thread, but for `FlushWork.run`. What the disk refuses is a
StorageError. A failed write leaves the log as it was, so a full disk heals by itself; a failed fsync does not, since
nobody knows what is on the disk then: the log refuses appends until it is opened anew.
Batches of every message format may follow each other. Source: Kafka's UnifiedLog, LocalLog. Compaction is in
`compaction` and `cleaner`. Left out: tiered storage.
"""

import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from headrace.config import TopicConfig
from headrace.errors import ErrorCode, KafkaError, OffsetOutOfRange, StorageError
from headrace.log import appending, flush, upkeep
from headrace.log.aborted import aborted_transactions
from headrace.log.appending import AppendResult
from headrace.log.files import Files, LogFile
from headrace.log.flush import Background, FlushWork
from headrace.log.names import INDEX, LOG, TIME_INDEX, offset_file
from headrace.log.partition_metadata import format_topic_id, read_topic_id, write_topic_id
from headrace.log.producer_snapshot import write_snapshot
from headrace.log.recent import RecentBatches
from headrace.log.recovery import FoundLog, OnRead, OpenedLog, find_log, ignore, open_log
from headrace.log.segment import Segment
from headrace.log.time_lookup import TimeOffset, largest_timestamp, offset_for_time
from headrace.log.txn_index import AbortedTransaction
from headrace.types import TopicPartition

__all__ = ["AppendResult", "FileRange", "PartitionLog"]

logger = logging.getLogger(__name__)


class FileRange(NamedTuple):
    """Bytes of a segment's file. Whoever holds it can read it, also when the segment is deleted meanwhile."""

    file: LogFile
    position: int
    size: int


class PartitionLog:
    """One partition's log; `PartitionLog.open` makes it."""

    def __init__(
        self, files: Files, directory: Path, partition: TopicPartition, config: TopicConfig, opened: OpenedLog
    ) -> None:
        self.files = files
        self.directory = directory
        self.partition = partition
        self.config = config
        self.topic_id: bytes | None = None
        self.background: Background = flush.inline
        self.soon: Callable[[Callable[[], None]], object] = flush.at_once
        """Calls a function once the owner has done what else has come: one flush is then for all of it."""
        self.on_flush: Callable[[], None] = flush.nobody
        """Called on the owner's thread when a flush in the background has ended, well or not."""
        self.failure: str | None = None
        """Why appends are refused for good; None while all is well."""
        self.log_start_offset = opened.log_start_offset
        self.log_end_offset = opened.log_end_offset
        self.recovery_point = opened.recovery_point
        self.checkpointed_to = opened.recovery_point
        """The recovery point that is written down."""
        self.high_watermark = opened.log_start_offset
        self.producers = opened.producers
        self.leader_epochs = opened.epochs
        self.removals: deque[tuple[int, Path]] = deque()
        """Files on their way out: (when, where)."""
        self.unsynced_paths: list[Path] = []
        self.unsynced_directories: list[Path] = []
        """What the next flush has to sync besides the segments."""
        self.clean_end_offset = opened.log_end_offset if opened.was_clean else -1
        self.cleaned_to = 0
        """Up to where (exclusive) the cleaner has been; what follows may hold duplicates of a key."""
        self.cleaned_to_was_lowered = False
        self.truncations = 0
        self.is_flushing = self.is_flushing_soon = False
        self.flush_wanted_to = flush.NOTHING_WANTED
        """Up to where (exclusive) the flush after the one that is under way has been asked for."""
        self.last_flush_ms = 0
        self.set_segments(opened.segments)

    @classmethod
    def open(
        cls,
        directory: Path,
        partition: TopicPartition,
        config: TopicConfig,
        *,
        files: Files,
        now_ms: int,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        was_clean: bool = False,
        topic_id: bytes | None = None,
        found: FoundLog | None = None,
        on_read: OnRead = ignore,
    ) -> "PartitionLog":
        """Open the log in `directory`, or make one there. Repairs what a crash left, unless `was_clean`.

        `found` when the directory has been listed already, with these settings. `on_read` as `recovery.open_log`.

        A new one costs no sync: the first flush brings its directory to the disk. What was recovered is flushed where
        the settings have that done before anybody sees it. Raises OSError, StorageError, and what `set_topic_id` and
        `recovery.open_log` do.
        """
        is_new = not files.exists(directory)
        if is_new:
            files.make_directory(directory)
        if found is None:
            found = find_log(
                files, directory, config, recovery_point=recovery_point, was_clean=was_clean, now_ms=now_ms
            )
        opened = open_log(
            files, directory, config, found, log_start_offset=log_start_offset, now_ms=now_ms, on_read=on_read
        )
        log = cls(files, directory, partition, config, opened)
        log.last_flush_ms = now_ms
        log.topic_id = read_topic_id(files, directory)
        if not found.was_clean:  # what is there was perhaps made just before a crash, and its names are not on the disk
            log.note_unsynced(directory.parent)
            log.note_unsynced(directory)
            if log.unflushed_records >= config.flush_count:
                log.flush(now_ms)
        if topic_id is not None:
            log.set_topic_id(topic_id)
        return log

    # Appending

    append = appending.append
    append_set = appending.append_set
    append_replicated = appending.append_replicated

    def roll(self, now_ms: int, base_offset: int | None = None) -> Segment:
        """Close the active segment and begin a new one at `base_offset`, or the log's end. Raises OSError.

        The closed segment goes to the disk in the background; what the producers are at this point, too.
        """
        base_offset = self.log_end_offset if base_offset is None else base_offset
        closed = self.active
        if closed.size == 0 and closed.base_offset == base_offset:
            return closed
        is_cut = closed.close_for_appends()
        self.producers.end_offset = base_offset
        snapshot = write_snapshot(self.files, self.directory, self.producers)
        segment = self._create_segment(base_offset, now_ms)
        self.unsynced_paths += closed.index.path, closed.time_index.path, snapshot
        if is_cut:  # also when all of its records are on the disk: zeros behind them would end the log after a crash
            self.unsynced_paths.append(closed.path(LOG))
        self.note_unsynced(self.directory)
        if closed.size == 0:
            self.remove_later(closed.mark_deleted(), now_ms)
        self.set_segments([each for each in self.segments if each.size or each is not closed] + [segment])
        self.flush_in_background(now_ms, base_offset)
        return segment

    def _create_segment(self, base_offset: int, now_ms: int) -> Segment:
        """A new segment, or nothing of it: records that then go to the one before must not be behind its name."""
        try:
            return Segment.create(self.files, self.directory, base_offset, self.config, now_ms=now_ms)
        except OSError:
            try:
                for suffix in (LOG, INDEX, TIME_INDEX):
                    self.files.remove(self.directory / offset_file(base_offset, suffix))
            except OSError as error:
                self.failure = f"{self.partition} has half a segment that cannot be removed: {error}"
                logger.error("%s; it takes no more records", self.failure)
            raise

    # Reading

    def read(self, offset: int, max_bytes: int, *, end_offset: int, at_least_one: bool) -> FileRange:
        """The bytes from the batch that holds `offset`, of one segment, before `end_offset`, up to `max_bytes`.

        The last batch may be cut off by `max_bytes`, but not the first: when that one does not fit, it comes whole
        with `at_least_one`, and nothing comes without. Nothing also when there is nothing to read before
        `end_offset`. Raises OffsetOutOfRange below the log's start and above its end.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(
                f"{self.partition} has offsets {self.log_start_offset} to {self.log_end_offset}, not {offset}"
            )
        number = bisect_right(self._bases, offset) - 1
        while offset < end_offset and number < len(self.segments):
            segment = self.segments[number]
            position, batch_bytes = self._find(segment, offset)
            size = self._end_position(number, segment, end_offset) - position
            if size > 0:
                if size > max_bytes:
                    if batch_bytes > max_bytes:
                        max_bytes = batch_bytes if at_least_one else 0
                    size = max_bytes
                return FileRange(segment.file, position, size)
            number += 1
        return FileRange(self.active.file, self.active.size, 0)

    def _find(self, segment: Segment, offset: int) -> tuple[int, int]:
        """Position and size of the first batch that ends at or after `offset`; the segment's end when none does."""
        if offset >= self.log_end_offset:
            return segment.size, 0
        found = self.recent.find(offset, segment.size) if segment is self.active else None
        if found is not None:
            return found
        located = segment.locate(offset)
        return (segment.size, 0) if located is None else (located[0], located[1].size_bytes)

    def _end_position(self, number: int, segment: Segment, end_offset: int) -> int:
        """Where the batches before `end_offset` end in a segment."""
        next_base = self._bases[number + 1] if number + 1 < len(self._bases) else self.log_end_offset
        return segment.size if end_offset >= next_base else self._find(segment, end_offset)[0]

    def read_bytes(self, range_: FileRange) -> bytes:
        """The content of a range; an executor may call this."""
        return range_.file.read(range_.size, range_.position)

    def offset_for_time(self, timestamp_ms: int, end_offset: int) -> TimeOffset | None:
        """The first record at or after a time, before `end_offset`; None when there is none."""
        return offset_for_time(self.segments, timestamp_ms, from_offset=self.log_start_offset, end_offset=end_offset)

    def max_timestamp_offset(self) -> TimeOffset | None:
        """The first record that has the largest timestamp; None in an empty log."""
        return largest_timestamp(self.segments)

    # What readers may see

    def update_high_watermark(self, high_watermark: int) -> None:
        """Note how far every replica in sync has the log."""
        self.high_watermark = max(self.log_start_offset, min(high_watermark, self.log_end_offset))
        self.producers.on_high_watermark(self.high_watermark)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Where a reader of committed records has to stop: before the first transaction that is not decided."""
        unstable = self.producers.first_unstable_offset
        return high_watermark if unstable is None else min(max(unstable, self.log_start_offset), high_watermark)

    def aborted_transactions(self, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions that have records between two offsets (the second exclusive)."""
        first = max(0, bisect_right(self._bases, from_offset) - 1)
        found = []
        for segment in self.segments[first:]:
            for transaction in aborted_transactions(segment):
                if transaction.last_offset >= from_offset and transaction.first_offset < to_offset:
                    found.append(transaction)
                if transaction.last_stable_offset >= to_offset:
                    return found  # what was aborted later began behind the range
        return found

    def reach_of(self, found: FileRange, from_offset: int) -> int:
        """An offset that what `read` found at `from_offset` does not go beyond: where its segment ends."""
        for number in range(max(0, bisect_right(self._bases, from_offset) - 1), len(self._bases) - 1):
            if self.segments[number].file is found.file:
                return self._bases[number + 1]
        return self.log_end_offset

    # Flushing

    @property
    def unflushed_records(self) -> int:
        """How many offsets a power failure could take."""
        return self.log_end_offset - self.recovery_point

    def flush_due(self, now_ms: int) -> bool:
        """Whether `flush.messages` or `flush.ms` asks for a flush, and none is under way."""
        unflushed = self.log_end_offset - self.recovery_point
        if unflushed <= 0 or self.is_flushing or self.failure is not None:
            return False
        return unflushed >= self.config.flush_count or now_ms - self.last_flush_ms >= self.config.flush_ms

    def flush_by_count(self, now_ms: int) -> int:
        """Up to where the settings want the log on the disk before a producer hears of it, exclusive; 0 for what is
        there already. Has it flushed soon, or after the flush that is under way; whoever comes meanwhile shares it."""
        return flush.by_count(self, now_ms)

    def begin_flush(self, end_offset: int | None = None) -> FlushWork:
        """What to sync for the log to be safe up to `end_offset` (exclusive; the log's end when None)."""
        return flush.begin(self, self.log_end_offset if end_offset is None else end_offset)

    def finish_flush(self, work: FlushWork, now_ms: int, error: Exception | None = None) -> None:
        """Advance the recovery point after `work.run()`; or, when that failed, refuse appends from now on."""
        flush.finish(self, work, now_ms, error)

    def flush(self, now_ms: int) -> None:
        """Flush here and now. Raises StorageError."""
        work = self.begin_flush()
        self.finish_flush(work, now_ms, work.try_run())
        if self.failure is not None:
            raise StorageError(self.failure)

    def flush_in_background(self, now_ms: int, end_offset: int | None = None) -> None:
        """Flush up to `end_offset` (the log's end when None) without waiting for it."""
        flush.in_background(self, now_ms, self.log_end_offset if end_offset is None else end_offset)

    # Upkeep

    def set_segments(self, segments: list[Segment]) -> None:
        """Take a new list of segments; readers go on with the old one."""
        self.segments = segments
        self.active = segments[-1]
        self._bases = [segment.base_offset for segment in segments]
        self.recent = RecentBatches()

    def remove_later(self, paths: list[Path], now_ms: int) -> None:
        """Remove files that have been renamed out of the way, after `file.delete.delay.ms`."""
        self.removals.extend((now_ms + self.config.file_delete_delay_ms, path) for path in paths)
        self.note_unsynced(self.directory)

    def note_unsynced(self, directory: Path) -> None:
        """Have the next flush sync the names in a directory."""
        if directory not in self.unsynced_directories:
            self.unsynced_directories.append(directory)

    def set_topic_id(self, topic_id: bytes) -> None:
        """Say which topic the partition belongs to. Raises OSError; INCONSISTENT_TOPIC_ID when it is another's."""
        if self.topic_id is None:
            self.unsynced_paths.append(write_topic_id(self.files, self.directory, topic_id))
            self.topic_id = topic_id
            self.note_unsynced(self.directory)
        elif self.topic_id != topic_id:
            ids = f"{format_topic_id(self.topic_id)}, not {format_topic_id(topic_id)}"
            raise KafkaError(f"{self.directory} belongs to topic {ids}", ErrorCode.INCONSISTENT_TOPIC_ID)

    def purge(self, now_ms: int) -> None:
        """Remove the files whose time has come. Raises OSError."""
        while self.removals and self.removals[0][0] <= now_ms:
            self.files.remove(self.removals.popleft()[1])

    def configure(self, config: TopicConfig) -> None:
        """Go on with other settings."""
        self.config = config
        for segment in self.segments:
            segment.configure(config)

    @property
    def size_bytes(self) -> int:
        """The size of all segments, without their indexes."""
        return sum(segment.size for segment in self.segments)

    truncate_to = upkeep.truncate_to
    truncate_fully = upkeep.truncate_fully
    delete_records_before = upkeep.delete_records_before
    delete_old_segments = upkeep.delete_old_segments
    begin_close = upkeep.begin_close
    finish_close = upkeep.finish_close
    close = upkeep.close
    delete = upkeep.delete
