"""From times to offsets, inside one log.

A batch header has the largest timestamp of its records, so a search goes: the first segment whose largest timestamp
is late enough, the time index, the offset index, batch headers, and at last the records of one batch. Messages of
format 0 have no times, and are never found.
Before records had times, the question was which segments were last written to by then.
Source: Kafka's UnifiedLog.fetchOffsetByTimestamp, legacyFetchOffsetsBefore, FileRecords.searchForTimestamp.
"""

from collections.abc import Sequence
from typing import NamedTuple

from headrace.log.scan import records_in
from headrace.log.segment import Segment


class TimeOffset(NamedTuple):
    """A record found by time; `leader_epoch` is that of its batch."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


def offset_for_time(
    segments: Sequence[Segment], timestamp_ms: int, *, from_offset: int, end_offset: int
) -> TimeOffset | None:
    """The first record at or after a time, from `from_offset` to `end_offset` (exclusive)."""
    for segment in segments:
        if segment.base_offset >= end_offset:
            break
        if segment.largest.timestamp_ms >= timestamp_ms:
            found = _search(segment, timestamp_ms, from_offset)
            if found is not None:
                return found if found.offset < end_offset else None
    return None


def _search(segment: Segment, timestamp_ms: int, from_offset: int) -> TimeOffset | None:
    reached = segment.reached_by(timestamp_ms)
    for at, header in segment.headers_from(max(reached.offset, from_offset)):
        if header.max_timestamp < timestamp_ms or header.last_offset < from_offset:
            continue
        for record in records_in(segment.read_batch(at, header), header):
            if record.timestamp_ms >= timestamp_ms and record.offset >= from_offset:
                return TimeOffset(record.offset, record.timestamp_ms, header.leader_epoch)
    return None


def largest_timestamp(segments: Sequence[Segment]) -> TimeOffset | None:
    """The first record that has the log's largest timestamp; None in an empty log."""
    best = max(segments, key=lambda segment: segment.largest.timestamp_ms)
    largest = best.largest
    if largest.timestamp_ms < 0:
        return None
    for at, header in best.headers_from(largest.offset):
        if header.max_timestamp == largest.timestamp_ms:
            for record in records_in(best.read_batch(at, header), header):
                if record.timestamp_ms == largest.timestamp_ms:
                    return TimeOffset(record.offset, record.timestamp_ms, header.leader_epoch)
    return None


def segment_offsets(
    segments: Sequence[Segment], until_ms: int, *, log_start_offset: int, log_end_offset: int, now_ms: int
) -> list[int]:
    """Where the segments begin that were last written to by a time, newest first.

    The log's end comes before them when the time is not past and the last segment has anything. Raises OSError.
    """
    starts = [max(segment.base_offset, log_start_offset) for segment in segments]
    if segments[-1].size and now_ms <= until_ms:
        return [log_end_offset, *reversed(starts)]
    newest = len(segments) - 1
    while newest >= 0 and segments[newest].modified_ms > until_ms:
        newest -= 1
    return starts[: newest + 1][::-1]
