"""The log of one partition: a list of segments, of which the last is written to.

    log_start_offset            high_watermark      log_end_offset
         |  000…000.log  |  000…4711.log  |  000…9000.log (active)  |
                              ^ recovery_point: everything below is on the disk

An append checks the producer's sequence, rolls a full active segment, sets the base offset and the leader epoch in the
batch, writes the batch once, and adds an index entry every few KiB. A read finds the segment, the position and the
number of bytes. It returns a range of a file, which the connection sends without a copy.

`appending` appends records. `truncation` removes them from the end of the log, and `upkeep` from the beginning.
`flusher` syncs them to the disk. `compaction` and `cleaner` compact the log.

One thread owns a log and makes all calls. A refused disk operation raises StorageError. A failed write leaves the log
unchanged, so appends succeed again once a full disk has space. After a failed fsync nobody knows what is on the disk,
so the log refuses appends until it is opened again. Batches of different message formats may follow each other.
Source: Kafka's UnifiedLog, LocalLog. Left out: tiered storage.
"""

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Lock

from headrace.config import TopicConfig
from headrace.errors import ErrorCode, KafkaError, OffsetOutOfRange, StorageError
from headrace.log.append_state import LogEnd
from headrace.log.directories.partition_metadata import format_topic_id, read_topic_id, write_topic_id
from headrace.log.filenames import INDEX, LOG, TIME_INDEX, offset_file
from headrace.log.files import Files
from headrace.log.flusher import INLINE, Flusher, FlushScheduling, FlushWork, reason_for_clients
from headrace.log.high_watermark import HighWatermarkOwner, StoredHighWatermark
from headrace.log.leader_epochs import LeaderEpochs
from headrace.log.pending_deletions import PendingDeletions
from headrace.log.positions.position_file import truncate_positions
from headrace.log.positions.position_index import PositionIndex
from headrace.log.producers.producer_snapshot import write_snapshot
from headrace.log.producers.producer_state import Producers
from headrace.log.producers.verification import Verification
from headrace.log.recovery.recovery import FoundLog, OnRead, OpenedLog, find_log, ignore, open_log
from headrace.log.segment.aborted_transactions import aborted_between
from headrace.log.segment.segment import Segment
from headrace.log.segment.tail_cache import TailCache
from headrace.log.segment.time_lookup import TimeSearch, searches_for_largest, searches_from
from headrace.log.segment.txn_index import AbortedTransaction
from headrace.log.segment_list import SegmentList, SegmentRange
from headrace.types import TopicPartition

logger = logging.getLogger(__name__)

NO_POSITIONS = -1
"""An offset below that of each position."""


class PartitionLog(LogEnd):
    """The log of one partition. `PartitionLog.open` creates it."""

    __slots__ = (
        "_committed", "clean_end_offset", "cleaned_to", "cleaned_to_was_lowered", "config", "directory", "files",
        "flusher", "partition", "positions", "positions_lock", "removals", "topic_id", "truncations",
    )  # fmt: skip

    active: Segment
    segments: SegmentList
    producers: Producers
    leader_epochs: LeaderEpochs

    def __init__(
        self,
        files: Files,
        directory: Path,
        partition: TopicPartition,
        config: TopicConfig,
        opened: OpenedLog,
        *,
        now_ms: int,
        cleaned_to: int = 0,
        topic_id: bytes | None = None,
        scheduling: FlushScheduling = INLINE,
    ) -> None:
        self.files = files
        self.directory = directory
        self.partition = partition
        self.config = config
        self.set_rules(config)
        self.topic_id = topic_id
        self.failure = None
        self.log_start_offset = opened.log_start_offset
        self.log_end_offset = opened.log_end_offset
        self._committed: HighWatermarkOwner = StoredHighWatermark(opened.log_start_offset)
        self.producers = opened.producers
        self.leader_epochs = opened.epochs
        self.removals = PendingDeletions()
        """Files that were renamed for deletion. The log manager removes them."""
        self.clean_end_offset = opened.log_end_offset if opened.was_clean else -1
        self.cleaned_to = cleaned_to
        """The offset up to which (exclusive) the log is cleaned. Records behind it may have duplicates of a key."""
        self.cleaned_to_was_lowered = False
        self.truncations = 0
        self.writes_at_once = False
        self.positions: PositionIndex | None = None
        """The positions of Kafka 0.7, once they are known; only with `headrace.kafka07.enable`."""
        self.positions_lock = Lock()
        """For a thread that writes their file: `truncations`, `directory` and `failure` change outside of it."""
        self.is_truncating = False
        self.flusher = Flusher(self, scheduling, opened.recovery_point, now_ms)
        self._set_segments(SegmentList(opened.segments))

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
        cleaned_to: int = 0,
        was_clean: bool = False,
        topic_id: bytes | None = None,
        found: FoundLog | None = None,
        on_read: OnRead = ignore,
        scheduling: FlushScheduling = INLINE,
    ) -> "PartitionLog":
        """Open the log in `directory`, or create one there. Recovers it after a crash, unless `was_clean`.

        `recovery_point`, `log_start_offset` and `cleaned_to` are offsets from the checkpoints. `found` is the result of
        `find_log` with the same arguments, when the caller has it. `on_read` is passed to `recovery.open_log`.

        A new log is not synced here: the first flush syncs its directory. Recovered records are flushed when
        `flush.messages` asks for it. Raises OSError, StorageError, and the errors of `set_topic_id` and
        `recovery.open_log`.
        """
        is_new = not files.exists(directory)
        if is_new:
            files.make_directory(directory)
        if found is None:
            found = find_log(
                files, directory, config, recovery_point=recovery_point, was_clean=was_clean, now_ms=now_ms
            )
        opened = open_log(
            files,
            directory,
            config,
            found,
            log_start_offset=log_start_offset,
            cleaned_to=cleaned_to,
            now_ms=now_ms,
            on_read=on_read,
        )
        log = cls(
            files,
            directory,
            partition,
            config,
            opened,
            now_ms=now_ms,
            cleaned_to=cleaned_to,
            topic_id=read_topic_id(files, directory),
            scheduling=scheduling,
        )
        if not found.was_clean:  # files made just before a crash may not have their names on the disk
            log.flusher.note_names(directory.parent)
            log.flusher.note_names(directory)
            if log.flusher.unflushed_records >= config.flush_count:
                log.flusher.flush(now_ms)
        if topic_id is not None:
            log.set_topic_id(topic_id)
        return log

    # Segments

    def roll(self, now_ms: int, base_offset: int | None = None) -> Segment:
        """Close the active segment and begin a new one at `base_offset`, which defaults to the log end offset.

        Returns the new active segment, or the current one when it is empty and begins there. The closed segment and a
        producer snapshot are flushed in the background. Raises OSError.
        """
        base_offset = self.log_end_offset if base_offset is None else base_offset
        closed = self.active
        if closed.size == 0 and closed.base_offset == base_offset:
            return closed
        written = closed.close_for_appends()
        if closed.records.text in written:
            self.flusher.closed_was_cut(closed.base_offset)
        self.producers.end_offset = base_offset
        snapshot, file = write_snapshot(self.files, self.directory, self.producers)
        written[snapshot] = file
        segment = self.create_segment(base_offset, now_ms)
        self.flusher.note_names(self.directory)
        if closed.size == 0:
            self.remove_later(closed.mark_deleted(), now_ms)
        self._set_segments(self.segments.followed_by(segment))
        self.flusher.flush_in_background(now_ms, base_offset, written, closed)
        return segment

    def create_segment(self, base_offset: int, now_ms: int) -> Segment:
        """Create a segment, or remove all its files when that fails. Raises OSError.

        The log goes on with the segment before, so no file may remain with a base offset below later records.
        """
        try:
            return Segment.create(self.files, self.directory, base_offset, self.config, now_ms=now_ms)
        except OSError:
            try:
                for suffix in (LOG, INDEX, TIME_INDEX):
                    self.files.remove(f"{self.directory}/{offset_file(base_offset, suffix)}")
            except OSError as error:
                self.fail(f"{self.partition} has an incomplete segment that cannot be removed: {error}")
                logger.error("%s; the partition refuses appends until the next start", self.failure)
            raise

    # Reading

    def read(self, offset: int, max_bytes: int, *, end_offset: int, at_least_one: bool) -> SegmentRange:
        """The range of one segment's file from the batch that holds `offset`, below `end_offset` (exclusive).

        The range has at most `max_bytes` bytes, which may cut off its last batch. A first batch larger than `max_bytes`
        comes whole with `at_least_one`; without it the range is empty. The range is also empty when there is no batch
        below `end_offset`. Raises OffsetOutOfRange below the log start offset and above the log end offset.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(
                f"{self.partition} has offsets {self.log_start_offset} to {self.log_end_offset}, not {offset}"
            )
        return self.segments.read(
            offset, max_bytes, end_offset=end_offset, at_least_one=at_least_one, log_end_offset=self.log_end_offset
        )

    def read_bytes(self, range_: SegmentRange) -> bytes:
        """The content of a range. Any thread. Raises OSError."""
        return range_.file.read(range_.size, range_.position)

    def searches_for_time(self, timestamp_ms: int, end_offset: int) -> Iterator[TimeSearch | None]:
        """The searches for the first record at or after a time, in segments that begin below `end_offset`.

        Yields and raises what `searches_from` does.
        """
        return searches_from(self.segments, timestamp_ms, from_offset=self.log_start_offset, end_offset=end_offset)

    def searches_for_largest_timestamp(self) -> Iterator[TimeSearch | None]:
        """The searches for the first record with the largest timestamp, as `searches_for_largest` yields them."""
        return searches_for_largest(self.segments)

    # What consumers may see

    @property
    def high_watermark(self) -> int:
        """The high watermark, from its owner: all in-sync replicas have the records below it."""
        return self._committed.high_watermark

    def restore_high_watermark(self, high_watermark: int) -> None:
        """Set the high watermark from the checkpoint, bounded by the log's start and end.

        Only for a log that has no replica yet.
        """
        self._committed = StoredHighWatermark(max(self.log_start_offset, min(high_watermark, self.log_end_offset)))

    def committed_by(self, owner: HighWatermarkOwner) -> None:
        """Take the high watermark from a replica's state from now on."""
        self._committed = owner

    def last_stable_offset(self, high_watermark: int) -> int:
        """The end (exclusive) for read_committed consumers: the first offset of the oldest undecided transaction.

        Without an undecided transaction it is `high_watermark`.
        """
        unstable = self.producers.transactions.first_unstable_offset(high_watermark)
        return high_watermark if unstable is None else min(max(unstable, self.log_start_offset), high_watermark)

    def begin_verification(
        self, producer_id: int, first_sequence: int, epoch: int, *, supports_epoch_bump: bool, now_ms: int
    ) -> Verification | None:
        """Begin to verify that a transactional batch belongs to its producer's open transaction.

        Returns None when the log knows that it does. Otherwise the caller asks the transaction coordinator, and passes
        the result to `appending.append`. `supports_epoch_bump` is true for a client with `transaction.version` 2.
        Raises InvalidProducerEpoch for an epoch older than the producer's.
        """
        return self.producers.begin_verification(
            producer_id, first_sequence, epoch, supports_epoch_bump=supports_epoch_bump, now_ms=now_ms
        )

    def aborted_transactions(self, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions with records from `from_offset` (inclusive) to `to_offset` (exclusive).

        Raises OSError, and CorruptMessage for damage in the log.
        """
        return aborted_between(self.segments, from_offset, to_offset)

    def reach_of(self, found: SegmentRange, from_offset: int) -> int:
        """An upper bound (exclusive) for the offsets in a range that `read` found at `from_offset`.

        It is the end of the range's segment.
        """
        return self.segments.reach_of(found, from_offset, self.log_end_offset)

    # What other modules change

    def _set_segments(self, segments: SegmentList) -> None:
        """Set a new list of segments. Readers that hold the old list continue with it."""
        self.segments = segments
        self.active = segments.active

    def appended(self, base_offset: int, last_offset: int, position: int) -> None:
        """Note a batch that was written to the active segment at `position`."""
        self.log_end_offset = self.producers.end_offset = last_offset + 1
        self.segments.recent.add(base_offset, position)

    def forget_positions(self) -> None:
        """Forget the positions of recent batches, so that readers use the index for them.

        The next batch does not begin at the offset where the one before ends, or it begins with a message that no
        reader asks for.
        """
        self.segments.recent = TailCache()

    @property
    def deletable_to(self) -> int:
        """The offset up to which (exclusive) retention may delete segments.

        It is the high watermark or, while their positions of Kafka 0.7 are not known, less.
        """
        if not self.config.kafka07_enable:
            return self.high_watermark
        return -1 if self.positions is None else min(self.high_watermark, self.positions.deletable_to)

    def start_at(self, offset: int) -> None:
        """Set the log start offset to an offset inside the log."""
        self.log_start_offset = offset
        self.leader_epochs.truncate_from_start(offset)

    def drop_oldest(self, count: int) -> tuple[Segment, ...]:
        """Take the oldest `count` segments out of the log and return them. The caller removes their files."""
        dropped = self.segments[:count]
        self._set_segments(self.segments.without_oldest(count))
        self.start_at(max(self.log_start_offset, self.segments[0].base_offset))
        return dropped

    def take_back(self, dropped: Iterable[Segment]) -> None:
        """Put dropped segments back that could not be removed. The log start offset stays."""
        self._set_segments(self.segments.preceded_by(dropped))

    def replace(self, old: Iterable[Segment], cleaned: Segment) -> None:
        """Replace segments by the cleaned segment that was made from them."""
        self._set_segments(self.segments.replaced(old, cleaned))

    def cut(self, segments: SegmentList, offset: int, *, is_empty: bool) -> None:
        """End the log at `offset` (exclusive) with these segments, and forget everything behind it.

        `is_empty` says that no records are left, so that the log also starts at `offset`. Raises OSError.
        """
        with self.positions_lock:
            self.truncations += 1
            truncate_positions(self.files, self.directory, NO_POSITIONS if is_empty else offset)
        if self.positions is not None and (is_empty or not self.positions.truncate(offset)):
            self.positions = None
        self._set_segments(segments)
        self.log_end_offset = offset
        self.log_start_offset = offset if is_empty else min(self.log_start_offset, offset)
        self._committed.on_truncated(self.log_start_offset, offset)
        self.flusher.truncated(offset)
        if self.cleaned_to > offset:
            self.cleaned_to, self.cleaned_to_was_lowered = offset, True
        self.leader_epochs.truncate_from_end(offset)

    def begin_truncation(self) -> None:
        """Refuse appends until `finish_truncation`, while the cut is not on the disk."""
        self.is_truncating = True

    def finish_truncation(self, producers: Producers, error: Exception | None) -> None:
        """Set the producers of the remaining records and accept appends; after an error refuse appends for good."""
        self.is_truncating = False
        if error is None:
            self.producers = producers
        elif self.failure is None:
            self.fail(f"{self.partition} could not be truncated: {reason_for_clients(error)}")
            logger.error(
                "%s could not be truncated: %s; the partition refuses appends until the next start",
                self.partition, error,
            )  # fmt: skip

    def relocate(self, directory: Path, segments: SegmentList, *, synced_to: int) -> None:
        """Continue in another directory with copies of the same segments, synced up to `synced_to` (exclusive).

        The results of flushes that are under way are ignored: they belong to the old directory.
        """
        with self.positions_lock:
            self.truncations += 1
            self.directory = directory
        self.leader_epochs.relocated(directory)
        self._set_segments(segments)
        if self.positions is not None:
            self.positions.relocated()
        self.flusher.relocated(synced_to)
        self.clean_end_offset = -1
        self.removals.forget()
        self.flusher.note_names(directory)
        self.flusher.note_names(directory.parent)

    def cleaned(self, end_offset: int) -> None:
        """Note that the cleaner has cleaned the log up to `end_offset` (exclusive)."""
        self.cleaned_to = end_offset

    def take_cleaned_to_lowered(self) -> bool:
        """Whether a truncation lowered `cleaned_to` since the last call."""
        was_lowered, self.cleaned_to_was_lowered = self.cleaned_to_was_lowered, False
        return was_lowered

    def fail(self, reason: str) -> None:
        """Refuse appends with this reason until the log is opened again."""
        with self.positions_lock:
            self.failure = reason

    def revive(self, failure: str | None) -> None:
        """Continue after a deletion that failed. `failure` is the log's failure from before the deletion."""
        self.failure = failure

    def renamed(self, directory: Path) -> None:
        """Note the new directory name of a log that is deleted."""
        self.directory = directory

    # Upkeep

    def remove_later(self, paths: Iterable[str], now_ms: int) -> None:
        """Remove files that have been renamed for deletion, after `file.delete.delay.ms`."""
        self.removals.add(paths, now_ms + self.config.file_delete_delay_ms)
        self.flusher.note_names(self.directory)

    def set_topic_id(self, topic_id: bytes) -> None:
        """Set the id of the partition's topic, 16 bytes.

        Raises OSError, and KafkaError with INCONSISTENT_TOPIC_ID when the log belongs to another topic.
        """
        if self.topic_id is None:
            self.flusher.note_files(write_topic_id(self.files, self.directory, topic_id))
            self.topic_id = topic_id
            self.flusher.note_names(self.directory)
        elif self.topic_id != topic_id:
            ids = f"{format_topic_id(self.topic_id)}, not {format_topic_id(topic_id)}"
            raise KafkaError(f"{self.directory} belongs to topic {ids}", ErrorCode.INCONSISTENT_TOPIC_ID)

    def release(self) -> None:
        """Release the segments' files. Each file closes when no reader holds it."""
        for segment in self.segments:
            segment.release()

    def configure(self, config: TopicConfig) -> None:
        """Apply new settings."""
        self.config = config
        self.set_rules(config)
        for segment in self.segments:
            segment.configure(config)

    @property
    def size_bytes(self) -> int:
        """The size of all segments in bytes, without their indexes."""
        return self.segments.size_bytes

    # Closing

    def begin_close(self) -> FlushWork | None:
        """Write what is still in memory, and return what to sync.

        Returns None for a log that has not changed since the last clean stop. Raises StorageError.
        """
        if self.failure is not None:
            raise StorageError(self.failure)
        if self.is_truncating:
            raise StorageError(f"{self.partition} is being truncated; try again")
        if self.clean_end_offset == self.log_end_offset and not self.truncations and self.active.is_trimmed:
            return None
        try:
            self.flusher.note_files(*self.active.close_for_appends())
            if self.log_end_offset > self.active.base_offset:
                self.flusher.note_files(write_snapshot(self.files, self.directory, self.producers)[0])
            self.flusher.note_names(self.directory)
            return self.flusher.begin()
        except OSError as error:
            raise StorageError(f"{self.partition} could not be written: {error}") from error

    def finish_close(self, work: FlushWork | None, now_ms: int, error: Exception | None = None) -> None:
        """Release the log after `work` has run. Raises StorageError when the next start must not skip recovery."""
        if work is not None:
            self.flusher.finish(work, now_ms, error)
        self.flusher.check(error)
        self.release()

    def close(self, now_ms: int) -> None:
        """Close one log at once. Raises StorageError when the next start must not skip recovery."""
        work = self.begin_close()
        self.finish_close(work, now_ms, None if work is None else work.try_run())
