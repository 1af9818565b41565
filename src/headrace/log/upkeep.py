"""Retention: deletes the oldest segments of a log.

A segment is deleted, oldest first and never past the high watermark, when one of these holds. With
`headrace.kafka07.enable` it stays until the positions of its records are indexed. While the log is being truncated
all stay: the truncation reads segments, and the producer snapshots that go with them.

    retention.ms      its largest timestamp is older than this
    retention.bytes   the rest of the log has at least this size
    log start         all its records are below the log start offset

Its files are renamed to `.deleted` and removed after `file.delete.delay.ms`. A rename takes some 20 us, so the caller
deletes thousands of segments in slices. Each slice is a deletion by itself, and the log may change in any way between
two: the log begins with the first segment that is left, in memory as on the disk.
Source: Kafka's UnifiedLog, LocalLog.
"""

import logging

from headrace.errors import OffsetOutOfRange, StorageError
from headrace.limits import INT32_MAX
from headrace.log.filenames import LOG, SNAPSHOT
from headrace.log.partition_log import PartitionLog
from headrace.log.segment.segment import Segment, mark_deleted

logger = logging.getLogger(__name__)

SEGMENTS_PER_SLICE = 32
"""Segments that are deleted in one turn of the event loop, with four or five files each: a few milliseconds."""


def delete_records_before(log: PartitionLog, offset: int, now_ms: int) -> int:
    """Advance the log start offset to `offset`, delete the segments below it, and return the log start offset.

    Deletes one slice of segments. While there are more, `has_segments_below_start`, and `delete_below_start` deletes
    the next slice. An offset at or below the log start offset changes nothing. Raises OffsetOutOfRange for an offset
    above the high watermark; StorageError.
    """
    if offset > log.high_watermark:
        raise OffsetOutOfRange(
            f"{log.partition}: records up to {offset} cannot be deleted: the high watermark is {log.high_watermark}"
        )
    if offset > log.log_start_offset:
        log.start_at(offset)
        delete_below_start(log, now_ms, SEGMENTS_PER_SLICE)
    return log.log_start_offset


def has_segments_below_start(log: PartitionLog) -> bool:
    """Whether the oldest segment has only records below the log start offset."""
    return log.segments.end_of(0, log.log_end_offset) <= log.log_start_offset


def delete_below_start(log: PartitionLog, now_ms: int, most: int) -> int:
    """Delete up to `most` segments with records below the log start offset only, the oldest first. Returns how many.

    Raises StorageError.
    """
    count = _below_log_start(log, min(most, _deletable(log)))
    _delete(log, count, now_ms)
    return count


def delete_old_segments(log: PartitionLog, now_ms: int, most: int = INT32_MAX) -> int:
    """Delete the segments that `retention.ms`, `retention.bytes` or the log start offset allow, the oldest first, up to
    `most`. Returns how many. Raises StorageError.
    """
    most = min(most, _deletable(log))
    if not most:
        return 0
    segments, config = log.segments, log.config
    count = _below_log_start(log, most)
    if config.is_deleted_by_age:
        if config.retention_bytes >= 0 and count < most:
            excess_bytes = sum(segment.size for segment in segments[count:]) - config.retention_bytes
            while count < most and (excess_bytes := excess_bytes - segments[count].size) >= 0:
                count += 1
        if config.retention_ms >= 0:
            oldest_ms = now_ms - config.retention_ms
            while count < most and _largest_timestamp(segments[count]) < oldest_ms:
                count += 1
    _delete(log, count, now_ms)
    return count


def _deletable(log: PartitionLog) -> int:
    """The number of segments that may be deleted, as far as the high watermark goes."""
    if log.is_truncating:
        return 0
    segments, limit = log.segments, log.deletable_to
    most = len(segments)
    if log.log_end_offset > limit or not log.active.size:
        most = min(most - 1, segments.number_of(limit))
    return most


def _below_log_start(log: PartitionLog, most: int) -> int:
    """The number of segments with records below the log start offset only, up to `most`."""
    segments, start, count = log.segments, log.log_start_offset, 0
    while count < most and segments.end_of(count, log.log_end_offset) <= start:
        count += 1
    return count


def _largest_timestamp(segment: Segment) -> int:
    """A segment's largest timestamp in ms. Without timestamps, the time when the segment was created or opened."""
    largest_ms = segment.largest.timestamp_ms
    return largest_ms if largest_ms >= 0 else segment.created_ms


def _delete(log: PartitionLog, count: int, now_ms: int) -> None:
    """Delete the oldest `count` segments."""
    if count:
        try:
            _delete_oldest(log, count, now_ms)
        except OSError as error:
            raise StorageError(f"{log.partition}: old segments could not be deleted: {error}") from error


def _delete_oldest(log: PartitionLog, count: int, now_ms: int) -> None:
    if count == len(log.segments):
        log.roll(now_ms)
    going = log.drop_oldest(count)
    renamed: list[str] = []
    try:
        for number, segment in enumerate(going):
            try:
                segment.mark_deleted(renamed)
                if snapshot := mark_deleted(log.files, segment.text(SNAPSHOT)):
                    renamed.append(snapshot)
            except OSError:  # the oldest goes first, otherwise a crash would leave a hole in the log
                kept = number if log.files.exists(segment.text(LOG)) else number + 1
                log.take_back(going[kept:])
                raise
            logger.info("%s: deleted segment %d", log.partition, segment.base_offset)
    finally:
        log.remove_later(renamed, now_ms)
