"""The batches of a range of the log, by their headers: what an acquisition has to know of what it fetches.

Headers are read on the event loop if they are in the page cache, and else on a thread. They are read as far as an
acquisition can reach, whatever the size of the range.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from headrace.coordinators.share_partitions.acquisition import LogBatch
from headrace.log.files import LogFile
from headrace.log.segment.batch_scan import read_headers
from headrace.log.segment.txn_index import AbortedTransaction
from headrace.log.segment_list import SegmentRange

_RWF_NOWAIT = getattr(os, "RWF_NOWAIT", 0)


class _CachedFile:
    """A file of which only what is in the page cache can be read."""

    __slots__ = ("_file",)

    def __init__(self, file: LogFile) -> None:
        self._file = file

    def read(self, size: int, position: int) -> bytes:
        """Reads bytes. Raises BlockingIOError if they are not in the page cache, and OSError."""
        if not _RWF_NOWAIT:
            return self._file.read(size, position)
        buffer = bytearray(size)
        try:
            count = os.preadv(self._file.fd, [buffer], position, _RWF_NOWAIT)
        except BlockingIOError:
            raise
        except OSError:  # a file system without RWF_NOWAIT, or an error that the plain read reports
            return self._file.read(size, position)
        if count < size:
            raise BlockingIOError
        return bytes(buffer)


class LogBatches(NamedTuple):
    """The complete batches at the beginning of a range."""

    batches: list[LogBatch]
    positions: list[int]
    """Where each begins in the file."""
    end: int
    """Where the last one ends."""
    transactional: list[tuple[int, LogBatch]]
    """The producer ids and offsets of those that hold records of transactions."""

    def slice(self, found: SegmentRange, first_offset: int, last_offset: int) -> SegmentRange:
        """The part of the range with the batches that hold offsets `first_offset` to `last_offset` (inclusive)."""
        bases = [each.base_offset for each in self.batches]
        first = max(0, bisect_right(bases, first_offset) - 1)
        after = bisect_left(bases, last_offset + 1)
        end = self.positions[after] if after < len(self.positions) else self.end
        return SegmentRange(found.file, self.positions[first], end - self.positions[first])

    def aborted(self, transactions: Iterable[AbortedTransaction]) -> list[LogBatch]:
        """The batches that belong to these aborted transactions."""
        ranges: dict[int, list[tuple[int, int]]] = {}
        for each in transactions:
            ranges.setdefault(each.producer_id, []).append((each.first_offset, each.last_offset))
        for of_producer in ranges.values():
            of_producer.sort()
        result = []
        for producer_id, batch in self.transactional:
            of_producer = ranges.get(producer_id, [])
            number = bisect_right(of_producer, batch.base_offset, key=lambda each: each[0])
            if number and of_producer[number - 1][1] >= batch.last_offset:
                result.append(batch)
        return result


def read_batches(found: SegmentRange, reach: int, *, only_cached: bool) -> LogBatches:
    """Reads the headers of a range, of batches that begin at or below the offset `reach`, and of the first in any case.

    Raises BlockingIOError if some are not in the page cache and `only_cached` is true; OSError and CorruptMessage.
    """
    batches: list[LogBatch] = []
    positions: list[int] = []
    transactional: list[tuple[int, LogBatch]] = []
    end = found.position
    file = _CachedFile(found.file) if only_cached else found.file
    for position, header in read_headers(file, found.position, found.position + found.size):
        if batches and header.base_offset > reach:
            break
        batch = LogBatch(header.base_offset, header.last_offset)
        batches.append(batch)
        positions.append(position)
        if header.is_transactional and not header.is_control:
            transactional.append((header.producer_id, batch))
        end = position + header.size_bytes
    return LogBatches(batches, positions, end, transactional)
