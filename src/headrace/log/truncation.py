"""Truncates a log: a follower removes the end of its log, or all of it, when the log differs from its leader's.

The state in memory changes at once. The disk operations run in the background, and until they end the log refuses
appends (`is_truncating`). The cut is synced before the next append. Otherwise a crash could leave batches of the old
leader behind those of the new one, or a snapshot with producers that no longer exist. The producer state is loaded
again from the newest remaining snapshot and the batches after it.

A truncation that the disk refuses in the middle ends the log: it refuses appends until it is opened again, and recovery
finds its records up to some offset. Segments go last first, so that a crash leaves no hole. A log that begins anew has
its new segment before the others go, as a full disk may not have room for it: then nothing has changed, and the
follower tries again. Source: Kafka's UnifiedLog.truncateTo, truncateFullyAndStartAt.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from headrace.errors import CorruptMessage, StorageError
from headrace.log.filenames import SNAPSHOT, offset_file
from headrace.log.flusher import inline
from headrace.log.partition_log import PartitionLog
from headrace.log.producers.producer_snapshot import snapshot_offsets
from headrace.log.producers.producer_state import Producers
from headrace.log.recovery.recovery import load_producers
from headrace.log.segment.segment import Segment
from headrace.log.segment_list import SegmentList


def truncate_to(log: PartitionLog, offset: int, now_ms: int) -> None:
    """Truncate the log so that it ends at `offset` (exclusive). Raises StorageError.

    An offset below the first segment empties the log. An offset at or above the log end offset keeps all records.
    """
    if offset >= log.log_end_offset:
        try:
            log.leader_epochs.truncate_from_end(log.log_end_offset)
        except OSError as error:
            raise StorageError(f"{log.partition} could not be truncated: {error}") from error
        return
    if offset < log.segments[0].base_offset:
        truncate_fully(log, offset, now_ms)
        return
    _check(log)
    with _failing(log):
        kept = log.segments.ending_at(offset)
        _delete(log, log.segments[len(kept) :], now_ms)
        kept.active.truncate_to(offset)
        _set_end(log, kept, offset, now_ms, is_empty=False)


def truncate_fully(log: PartitionLog, offset: int, now_ms: int, *, at_once: bool = False) -> None:
    """Remove all records. The log then starts and ends at `offset`. Raises StorageError.

    `at_once` waits for the disk, so that the caller can append. It is for an empty log, which has little to sync.
    """
    _check(log)
    made: Segment | None = None
    if all(each.base_offset != offset for each in log.segments):
        try:
            made = log.create_segment(offset, now_ms)
        except OSError as error:
            raise StorageError(f"{log.partition} could not begin anew at offset {offset}: {error}") from error
    with _failing(log):
        _delete(log, log.segments, now_ms)
        segment = made or Segment.create(log.files, log.directory, offset, log.config, now_ms=now_ms)
        _set_end(log, SegmentList([segment]), offset, now_ms, is_empty=True, at_once=at_once)


def _check(log: PartitionLog) -> None:
    if log.is_truncating:
        raise StorageError(f"{log.partition} is being truncated; try again")


@contextmanager
def _failing(log: PartitionLog) -> Iterator[None]:
    """End the log when the body fails: its files and its state may differ. Raises StorageError."""
    try:
        yield
    except (CorruptMessage, OSError) as error:
        log.finish_truncation(log.producers, error)
    if log.failure is not None:
        raise StorageError(log.failure)


def _delete(log: PartitionLog, segments: Sequence[Segment], now_ms: int) -> None:
    for segment in reversed(segments):
        log.remove_later(segment.mark_deleted(), now_ms)


def _set_end(
    log: PartitionLog, segments: SegmentList, offset: int, now_ms: int, *, is_empty: bool, at_once: bool = False
) -> None:
    """End the log at `offset` with these segments, and begin the disk operations."""
    work = _Work(log, segments, offset, snapshot_offsets(log.files, log.directory), is_empty, now_ms)
    log.cut(segments, offset, is_empty=is_empty)
    log.begin_truncation()
    run = inline if at_once else log.flusher.run_in_background
    run(work.run, work.finish)


class _Work:
    """The disk operations of one truncation."""

    def __init__(
        self,
        log: PartitionLog,
        segments: SegmentList,
        offset: int,
        snapshots: Sequence[int],
        is_empty: bool,
        now_ms: int,
    ) -> None:
        """`snapshots` are the offsets of all producer snapshots, ascending. Raises OSError."""
        self._log, self._segments, self._offset = log, segments, offset
        self._files, self._directory, self._now_ms = log.files, log.directory, now_ms
        self._stale = [taken_at for taken_at in snapshots if is_empty or taken_at > offset]
        snapshots = self._snapshots = [taken_at for taken_at in snapshots if not is_empty and taken_at <= offset]
        self._producers = Producers(offset)
        self._file = segments.active.file
        self._size = segments.active.size
        for segment in reversed(segments):  # opened now: retention may rename a file before a thread opens it
            _ = segment.file
            if snapshots and segment.base_offset <= snapshots[-1]:
                break

    def run(self) -> None:
        """Cut the file, remove later snapshots, sync both, and load the producer state. Any thread. Raises OSError."""
        if self._file.size() > self._size:
            self._file.truncate(self._size)
        self._file.sync()
        for taken_at in reversed(self._stale):
            self._files.remove(self._directory / offset_file(taken_at, SNAPSHOT))
        with suppress(FileNotFoundError):  # the log was deleted meanwhile
            self._files.sync_directory(self._directory)
        if self._snapshots or self._size or len(self._segments) > 1:
            self._producers = load_producers(
                self._files, self._directory, self._segments, self._snapshots, self._offset, now_ms=self._now_ms
            )

    def finish(self, error: Exception | None) -> None:
        """Accept appends again, or refuse them for good after an error. For the log's owner."""
        self._log.finish_truncation(self._producers, error)
