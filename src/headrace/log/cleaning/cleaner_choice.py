"""The choice of logs to clean: how dirty each log is, and up to which offset it may be cleaned.

    clean                     dirty                              not to be cleaned
    |        |        |       ^ cleaned_to   |         |         ^ first uncleanable                active |

A log is cleaned when the dirty part's share of the bytes that may be cleaned exceeds `min.cleanable.dirty.ratio`, or
its oldest dirty record has waited longer than `max.compaction.lag.ms`. The active segment, records at or above the last
stable offset, and segments with a record younger than `min.compaction.lag.ms` are never cleaned. Unlike Apache Kafka,
headrace does not clean records above the recovery point in the checkpoint either. So no record is removed in favour of
a newer one that a power failure could take, and recovery never reads a segment that the cleaner has shortened. Source:
Kafka's LogCleanerManager, LogToClean.
"""

from bisect import bisect_right
from typing import NamedTuple

from headrace.limits import INT64_MAX
from headrace.log.partition_log import PartitionLog
from headrace.log.segment.segment import Segment


class Cleanable(NamedTuple):
    """The cleanable part of one log.

    The dirty part has the offsets from `first_dirty` to `first_uncleanable` (exclusive), a segment's base offset.
    """

    log: PartitionLog
    first_dirty: int
    first_uncleanable: int
    clean_bytes: int
    dirty_bytes: int
    waited_ms: int
    """The time by which the oldest dirty record's age exceeds `max.compaction.lag.ms`; 0 when it does not."""

    @property
    def ratio(self) -> float:
        """The dirty share of the cleanable bytes, from 0 to 1."""
        return self.dirty_bytes / (self.clean_bytes + self.dirty_bytes)

    @property
    def is_due(self) -> bool:
        """Whether the log should be cleaned now."""
        return self.dirty_bytes > 0 and (self.waited_ms > 0 or self.ratio > self.log.config.min_cleanable_dirty_ratio)


def cleanable(log: PartitionLog, now_ms: int, flushed_to: int) -> Cleanable | None:
    """The part of a log below `flushed_to` (exclusive) that can be cleaned.

    None when the closed segments have no records to clean. Raises OSError.
    """
    closed = log.segments.closed
    if not closed or not any(segment.size for segment in closed):
        return None
    first_dirty = first_dirty_offset(log)
    limit = min(log.active.base_offset, log.last_stable_offset(log.high_watermark), flushed_to)
    bases = [segment.base_offset for segment in closed]
    dirty_from = max(0, bisect_right(bases, first_dirty) - 1)
    if log.config.min_compaction_lag_ms > 0:
        youngest_ms = now_ms - log.config.min_compaction_lag_ms
        young = (s.base_offset for s in closed[dirty_from:] if _newest_ms(s) > youngest_ms)
        limit = min(limit, next(young, limit))
    # Only whole segments are cleaned, not the segment that holds the limit.
    cleanable_count = len(closed) if limit >= log.active.base_offset else max(0, bisect_right(bases, limit) - 1)
    first_uncleanable = log.segments[cleanable_count].base_offset
    clean_bytes = sum(segment.size for segment in closed if segment.base_offset < first_dirty)
    dirty = [segment for segment in closed[:cleanable_count] if segment.base_offset >= first_dirty]
    if dirty_from < cleanable_count and bases[dirty_from] < first_dirty < first_uncleanable:
        dirty.insert(0, closed[dirty_from])  # its end is dirty: the offset map became full inside it
        clean_bytes -= closed[dirty_from].size
    dirty_bytes = sum(segment.size for segment in dirty)
    if clean_bytes + dirty_bytes == 0:
        return None
    return Cleanable(log, first_dirty, first_uncleanable, clean_bytes, dirty_bytes, _waited_ms(log, dirty_from, now_ms))


def first_dirty_offset(log: PartitionLog) -> int:
    """The end offset of the last cleaning, or the log start offset when that end is outside the log."""
    if log.log_start_offset <= log.cleaned_to <= log.log_end_offset:
        return log.cleaned_to
    return log.log_start_offset


def _newest_ms(segment: Segment) -> int:
    largest_ms = segment.largest.timestamp_ms
    return largest_ms if largest_ms >= 0 else segment.created_ms


def _waited_ms(log: PartitionLog, dirty_from: int, now_ms: int) -> int:
    lag_max_ms = log.config.max_compaction_lag_ms
    if lag_max_ms == INT64_MAX:
        return 0
    times = [segment.first_timestamp_ms for segment in log.segments.closed[dirty_from:] if segment.size]
    oldest_ms = min((each for each in times if each > 0), default=now_ms)
    return max(0, now_ms - lag_max_ms - oldest_ms)
