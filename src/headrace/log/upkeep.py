"""What is done to a log besides appending and reading: truncation, retention, closing, deletion.

These functions are methods of `PartitionLog`.

A segment goes, oldest first and never past the high watermark, when

    retention.ms      its largest timestamp is longer ago
    retention.bytes   the log is still large enough without it
    log start         every record in it lies below the log start offset

Its files are renamed to `.deleted` and removed after `file.delete.delay.ms`. Source: Kafka's UnifiedLog, LocalLog.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import OffsetOutOfRange, StorageError
from headrace.log.flush import FlushWork
from headrace.log.names import DELETE_DIRECTORY, DELETED, LOG, SNAPSHOT, delete_name, offset_file
from headrace.log.producer_snapshot import snapshot_offsets, write_snapshot
from headrace.log.producer_state import Producers
from headrace.log.recovery import load_producers
from headrace.log.segment import Segment

if TYPE_CHECKING:
    from headrace.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)


def truncate_to(log: PartitionLog, offset: int, now_ms: int) -> None:
    """Drop everything from `offset` on, as a follower does whose log differs from its leader's. Raises StorageError."""
    if offset >= log.log_end_offset:
        log.leader_epochs.truncate_from_end(log.log_end_offset)
        return
    if offset < log.segments[0].base_offset:
        truncate_fully(log, offset, now_ms)
        return
    try:
        kept = [segment for segment in log.segments if segment.base_offset <= offset]
        for segment in log.segments[len(kept) :]:
            log.remove_later(segment.mark_deleted(), now_ms)
        kept[-1].truncate_to(offset)
        _set_end(log, kept, offset, now_ms)
    except OSError as error:
        raise StorageError(f"{log.partition} could not be truncated: {error}") from error


def truncate_fully(log: PartitionLog, offset: int, now_ms: int) -> None:
    """Drop everything and go on at `offset`. Raises StorageError."""
    try:
        for segment in log.segments:
            log.remove_later(segment.mark_deleted(), now_ms)
        _set_end(log, [Segment.create(log.files, log.directory, offset, log.config, now_ms=now_ms)], offset, now_ms)
        log.log_start_offset = offset
        log.producers = Producers(offset)
    except OSError as error:
        raise StorageError(f"{log.partition} could not be truncated: {error}") from error


def _set_end(log: PartitionLog, segments: list[Segment], offset: int, now_ms: int) -> None:
    """Have the log end at `offset` with these segments, and forget what came after."""
    log.truncations += 1
    log.set_segments(segments)
    log.log_end_offset = offset
    log.log_start_offset = min(log.log_start_offset, offset)
    log.high_watermark = min(log.high_watermark, offset)
    log.recovery_point = min(log.recovery_point, offset)
    if log.cleaned_to > offset:
        log.cleaned_to, log.cleaned_to_was_lowered = offset, True
    log.leader_epochs.truncate_from_end(offset)
    for taken_at in snapshot_offsets(log.files, log.directory):
        if taken_at > offset:
            log.files.remove(log.directory / offset_file(taken_at, SNAPSHOT))
    # Synced at once: were the truncation lost in a crash after new records were written, recovery could find batches
    # of the old leader behind those of the new one, and a snapshot that tells of producers that are not there.
    segments[-1].file.sync()
    log.files.sync_directory(log.directory)
    snapshots = snapshot_offsets(log.files, log.directory)
    log.producers = load_producers(log.files, log.directory, segments, snapshots, offset, now_ms=now_ms)


def delete_records_before(log: PartitionLog, offset: int, now_ms: int) -> int:
    """Move the log's start up to `offset`, and remove the segments below; returns the log start offset.

    Raises OffsetOutOfRange above the high watermark; StorageError.
    """
    if offset > log.high_watermark:
        raise OffsetOutOfRange(
            f"{log.partition}: records up to {offset} cannot be deleted, the high watermark is {log.high_watermark}"
        )
    if offset > log.log_start_offset:
        _set_start(log, offset)
        _delete_while(log, lambda segment, next_base: next_base <= log.log_start_offset, now_ms)
    return log.log_start_offset


def delete_old_segments(log: PartitionLog, now_ms: int) -> int:
    """Remove the segments that retention by time, by size, or the log's start lets go; returns how many.

    Raises StorageError.
    """
    deleted = _delete_while(log, lambda segment, next_base: next_base <= log.log_start_offset, now_ms)
    config = log.config
    if not config.is_deleted_by_age:
        return deleted
    if config.retention_bytes >= 0:
        excess_bytes = log.size_bytes - config.retention_bytes

        def is_excess(segment: Segment, _next_base: int) -> bool:
            nonlocal excess_bytes
            excess_bytes -= segment.size
            return excess_bytes >= 0

        deleted += _delete_while(log, is_excess, now_ms)
    if config.retention_ms >= 0:
        deleted += _delete_while(
            log, lambda segment, _: now_ms - _largest_timestamp(segment) > config.retention_ms, now_ms
        )
    return deleted


def _largest_timestamp(segment: Segment) -> int:
    """A segment's largest timestamp; where records have none, when it was made or found."""
    largest_ms = segment.largest.timestamp_ms
    return largest_ms if largest_ms >= 0 else segment.created_ms


def _delete_while(log: PartitionLog, lets_go: Callable[[Segment, int], bool], now_ms: int) -> int:
    """Remove segments from the oldest on while `lets_go(segment, the next one's base offset)`."""
    count = 0
    for number, segment in enumerate(log.segments):
        is_last = number + 1 == len(log.segments)
        next_base = log.log_end_offset if is_last else log.segments[number + 1].base_offset
        if next_base > log.high_watermark or (is_last and not segment.size) or not lets_go(segment, next_base):
            break
        count += 1
    if count:
        try:
            _delete_oldest(log, count, now_ms)
        except OSError as error:
            raise StorageError(f"{log.partition}: old segments could not be deleted: {error}") from error
    return count


def _delete_oldest(log: PartitionLog, count: int, now_ms: int) -> None:
    if count == len(log.segments):
        log.roll(now_ms)
    going, staying = log.segments[:count], log.segments[count:]
    log.set_segments(staying)
    _set_start(log, max(log.log_start_offset, staying[0].base_offset))
    for number, segment in enumerate(going):
        try:
            renamed = segment.mark_deleted()
        except OSError:  # the oldest goes first, or the log would have a hole after a crash
            kept = number if log.files.exists(segment.path(LOG)) else number + 1
            log.set_segments(going[kept:] + staying)
            raise
        logger.info("%s: segment %d is deleted", log.partition, segment.base_offset)
        snapshot = segment.path(SNAPSHOT)
        if log.files.exists(snapshot):
            renamed.append(snapshot.with_name(snapshot.name + DELETED))
            log.files.rename(snapshot, renamed[-1])
        log.remove_later(renamed, now_ms)


def _set_start(log: PartitionLog, offset: int) -> None:
    log.log_start_offset = offset
    log.leader_epochs.truncate_from_start(offset)
    log.producers.on_high_watermark(offset)


def begin_close(log: PartitionLog) -> FlushWork | None:
    """Write what is still in memory; returns what then has to be synced, or None for a log that has not changed since
    the last clean stop. Raises StorageError."""
    if log.failure is not None:
        raise StorageError(log.failure)
    if log.clean_end_offset == log.log_end_offset and not log.truncations and log.active.is_trimmed:
        return None
    try:
        if log.active.close_for_appends():
            log.unsynced_paths.append(log.active.path(LOG))
        log.unsynced_paths += log.active.index.path, log.active.time_index.path
        if log.log_end_offset > log.active.base_offset:
            log.unsynced_paths.append(write_snapshot(log.files, log.directory, log.producers))
        log.note_unsynced(log.directory)
        return log.begin_flush()
    except OSError as error:
        raise StorageError(f"{log.partition} could not be written: {error}") from error


def finish_close(log: PartitionLog, work: FlushWork | None, now_ms: int, error: Exception | None = None) -> None:
    """Let go of a log once `work` was run. Raises StorageError when the next start must not skip recovery."""
    if work is not None:
        log.finish_flush(work, now_ms, error)
    if log.failure is not None:
        raise StorageError(log.failure)
    for segment in log.segments:
        segment.release()


def close(log: PartitionLog, now_ms: int) -> None:
    """Close one log here and now. Raises StorageError when the next start must not skip recovery."""
    work = log.begin_close()
    log.finish_close(work, now_ms, None if work is None else work.try_run())


def delete(log: PartitionLog, unique: str) -> Path:
    """Rename the directory so that it is no partition any more; returns where it is now. Raises OSError, and may then
    be called again."""
    if not log.directory.name.endswith(DELETE_DIRECTORY):
        directory = log.directory.with_name(delete_name(log.partition, unique))
        log.files.rename(log.directory, directory)
        log.directory = directory
        log.failure = f"{log.partition} is deleted"
    log.files.sync_directory(log.directory.parent)
    for segment in log.segments:
        segment.release()
    return log.directory
