"""Time look-up: finds the first offset of a log at or after a timestamp.

A batch header has the largest timestamp of its records, so a search goes: the first segment whose largest timestamp
is late enough, the time index, the offset index, batch headers, and at last the records of one batch. Messages of
format 0 have no times, and are never found.

    searches_from(segments, …)   the log's owner: chooses the segments, and the positions where the searches begin
    TimeSearch.run()             any thread: reads headers, and decompresses a batch
    TimeSearch.run_if_small()    on the event loop; raises TakesLong for a long search

Old ListOffsets requests, from before records had timestamps, ask for segments by their modification time.
Source: Kafka's UnifiedLog.fetchOffsetByTimestamp, legacyFetchOffsetsBefore, FileRecords.searchForTimestamp.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headrace.errors import CorruptMessage
from headrace.limits import (
    DECOMPRESSED_BATCH_BYTES_MAX,
    INLINE_DECOMPRESS_BYTES_MAX,
    INLINE_DECOMPRESSED_BYTES_MAX,
    INT32_MAX,
)
from headrace.log.files import LogFile
from headrace.log.segment.batch_scan import read_headers
from headrace.log.segment.segment import Segment
from headrace.records.time_search import first_record_from

INLINE_HEADERS_MAX = 256
"""The most batch headers that one search reads on the event loop. With an index entry every 4 KiB, most need few."""


class TimeOffset(NamedTuple):
    """A record found by time. `leader_epoch` is that of its batch."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class TakesLong(Exception):
    """A search takes too long for the event loop."""


class TimeSearch(NamedTuple):
    """A search in one segment for the first record at or after `timestamp_ms`, and at or after `from_offset`.

    It reads the file from `position` to `end` (exclusive, in bytes). The file stays readable after its segment is
    deleted.
    """

    file: LogFile
    position: int
    end: int
    timestamp_ms: int
    from_offset: int

    def run(self) -> TimeOffset | None:
        """The record, or None when there is none. Any thread. Raises CorruptMessage, OSError."""
        return self._run(INT32_MAX, INT32_MAX, DECOMPRESSED_BATCH_BYTES_MAX)

    def run_if_small(self) -> TimeOffset | None:
        """As `run`. Raises TakesLong for many headers, and for a batch that is large, compressed or decompressed."""
        try:
            return self._run(INLINE_HEADERS_MAX, INLINE_DECOMPRESS_BYTES_MAX, INLINE_DECOMPRESSED_BYTES_MAX)
        except CorruptMessage as error:  # damaged, or too large when decompressed: a thread tells which
            raise TakesLong from error

    def _run(self, headers_max: int, batch_bytes_max: int, decompressed_bytes_max: int) -> TimeOffset | None:
        for count, (at, header) in enumerate(read_headers(self.file, self.position, self.end)):
            if count == headers_max:
                raise TakesLong
            if header.max_timestamp < self.timestamp_ms or header.last_offset < self.from_offset:
                continue
            if header.size_bytes > batch_bytes_max:
                raise TakesLong
            found = first_record_from(
                self.file.read(header.size_bytes, at),
                header,
                from_offset=self.from_offset,
                from_timestamp_ms=self.timestamp_ms,
                max_bytes=decompressed_bytes_max,
            )
            if found is not None:
                return TimeOffset(found.offset, found.timestamp_ms, header.leader_epoch)
            if headers_max < INT32_MAX:  # no record of the batch has its max timestamp; more batches may be so
                raise TakesLong
        return None


def searches_from(
    segments: Sequence[Segment], timestamp_ms: int, *, from_offset: int, end_offset: int
) -> Iterator[TimeSearch | None]:
    """The searches for the first record at or after a time, from `from_offset` (inclusive) on, in order.

    The first search that finds a record has the result. Covers the segments that begin below `end_offset`. Yields None
    before a segment whose indexes have to be read from the disk. Raises OSError.
    """
    for segment in segments:
        if segment.base_offset >= end_offset:
            break
        if not segment.indexes.is_loaded:
            yield None
        if segment.largest.timestamp_ms >= timestamp_ms:
            reached = segment.indexes.reached_by(timestamp_ms)
            search = _search(segment, max(reached.offset, from_offset), timestamp_ms, from_offset)
            if search is not None:
                yield search


def searches_for_largest(segments: Sequence[Segment]) -> Iterator[TimeSearch | None]:
    """The search for the first record with the largest timestamp; no search in an empty log.

    Yields None before a segment whose indexes have to be read from the disk. Raises OSError.
    """
    for segment in segments:
        if not segment.indexes.is_loaded:
            yield None
    best = max(segments, key=lambda segment: segment.largest.timestamp_ms)
    if best.largest.timestamp_ms >= 0:
        search = _search(best, best.largest.offset, best.largest.timestamp_ms, best.base_offset)
        if search is not None:
            yield search


def _search(segment: Segment, begin: int, timestamp_ms: int, from_offset: int) -> TimeSearch | None:
    first = next(segment.indexes.headers_from(begin), None)
    return None if first is None else TimeSearch(segment.file, first[0], segment.size, timestamp_ms, from_offset)


def segment_offsets(
    segments: Sequence[Segment], until_ms: int, *, log_start_offset: int, log_end_offset: int, now_ms: int
) -> list[int]:
    """The start offsets of the segments that were last modified at or before `until_ms`, newest first.

    The log end offset comes first when `until_ms` is not in the past and the last segment has records. Raises OSError.
    """
    starts = [max(segment.base_offset, log_start_offset) for segment in segments]
    if segments[-1].size and now_ms <= until_ms:
        return [log_end_offset, *reversed(starts)]
    newest = len(segments) - 1
    while newest >= 0 and segments[newest].records.modified_ms > until_ms:
        newest -= 1
    return starts[: newest + 1][::-1]
