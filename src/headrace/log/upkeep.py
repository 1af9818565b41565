"""Retention: deletes the oldest segments of a log.

A segment is deleted, oldest first and never past the high watermark, when one of these holds. With
`headrace.kafka07.enable` it stays until the positions of its records are indexed.

    retention.ms      its largest timestamp is older than this
    retention.bytes   the rest of the log has at least this size
    log start         all its records are below the log start offset

Its files are renamed to `.deleted` and removed after `file.delete.delay.ms`. Source: Kafka's UnifiedLog, LocalLog.
"""

import logging
from collections.abc import Callable

from headrace.errors import OffsetOutOfRange, StorageError
from headrace.log.filenames import DELETED, LOG, SNAPSHOT
from headrace.log.partition_log import PartitionLog
from headrace.log.segment.segment import Segment

logger = logging.getLogger(__name__)


def delete_records_before(log: PartitionLog, offset: int, now_ms: int) -> int:
    """Advance the log start offset to `offset`, delete the segments below it, and return the log start offset.

    An offset at or below the log start offset changes nothing. Raises OffsetOutOfRange for an offset above the high
    watermark; StorageError.
    """
    if offset > log.high_watermark:
        raise OffsetOutOfRange(
            f"{log.partition}: records up to {offset} cannot be deleted: the high watermark is {log.high_watermark}"
        )
    if offset > log.log_start_offset:
        log.start_at(offset)
        _delete_while(log, lambda segment, next_base: next_base <= log.log_start_offset, now_ms)
    return log.log_start_offset


def delete_old_segments(log: PartitionLog, now_ms: int) -> int:
    """Delete the segments that `retention.ms`, `retention.bytes` or the log start offset allow, and return how many.

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
    """A segment's largest timestamp in ms. Without timestamps, the time when the segment was created or opened."""
    largest_ms = segment.largest.timestamp_ms
    return largest_ms if largest_ms >= 0 else segment.created_ms


def _delete_while(log: PartitionLog, lets_go: Callable[[Segment, int], bool], now_ms: int) -> int:
    """Delete the oldest segments while `lets_go(segment, base offset of the next one)`, and return how many."""
    count = 0
    for number, segment in enumerate(log.segments):
        next_base = log.segments.end_of(number, log.log_end_offset)
        is_empty = segment is log.active and not segment.size
        if next_base > log.deletable_to or is_empty or not lets_go(segment, next_base):
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
    going = log.drop_oldest(count)
    for number, segment in enumerate(going):
        try:
            renamed = segment.mark_deleted()
        except OSError:  # the oldest goes first, otherwise a crash would leave a hole in the log
            kept = number if log.files.exists(segment.path(LOG)) else number + 1
            log.take_back(going[kept:])
            raise
        logger.info("%s: deleted segment %d", log.partition, segment.base_offset)
        snapshot = segment.path(SNAPSHOT)
        if log.files.exists(snapshot):
            renamed.append(snapshot.with_name(snapshot.name + DELETED))
            log.files.rename(snapshot, renamed[-1])
        log.remove_later(renamed, now_ms)
