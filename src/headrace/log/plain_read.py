# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: annotation_typing=False, binding=False
"""The range of a log's file for a read with which nothing is special.

`read_plain` finds what `PartitionLog.read` does, for an offset in a segment whose file is open and a file of the real
disk, whose indexes are loaded, and whose batches at the offset have format 2. It gives None where anything else is to
be done: an offset out of range, a gap at a segment's end, an index entry that names no batch, a file to be opened.
`PartitionLog.read` is then called with the same arguments. Compiled; it also runs uncompiled.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_right
from typing import TYPE_CHECKING, Any, TypeAlias

try:
    import cython
except ImportError:
    from headrace import uncompiled as cython

if cython.compiled:
    from cython.cimports.posix.unistd import pread
else:
    from headrace.octets import int32_at, int64_at

if TYPE_CHECKING:
    from headrace.log.append_state import LogEnd, SegmentEnd
    from headrace.log.segment.index_columns import IndexColumns

Ints: TypeAlias = "array[int] | memoryview"

POSITION, SIZE, PLACE_FIELDS = range(3)
"""The places of a range's fields in the array, and their number."""

_POSITION, _SIZE = 0, 1
_HEADER_BYTES, _MAGIC_AT, _MAGIC, _LENGTH_AT, _DELTA_AT, _PREFIX_BYTES = 61, 16, 2, 8, 23, 12
_CHUNK_BYTES, _INT32_MAX = 4096, 0x7FFFFFFF
_chunk = memoryview(bytearray(_CHUNK_BYTES))
"""Compiled code reads and looks without letting another thread run. Uncompiled code takes a buffer of its own."""


def read_plain(log: LogEnd, offset: int, max_bytes: int, end_offset: int, at_least_one: bool, place: Ints) -> Any:
    """The open file of the range that `PartitionLog.read` gives for these arguments, with its position and size in
    `place`. None if that has to be asked. Without records the size is 0, and the result has no meaning but not to be
    None."""
    log_end_offset = log.log_end_offset
    if offset < log.log_start_offset or offset > log_end_offset:
        return None
    segment, segment_end = log.active, log_end_offset
    if offset >= end_offset:
        place[_POSITION] = place[_SIZE] = 0
        return segment
    if offset < segment.base_offset:
        segments: Any = log.segments
        number = segments.number_of(offset)
        segment, segment_end = segments[number], segments.end_of(number, log_end_offset)
    file = segment.records._file
    if file is None or not _find(log, segment, offset, place):
        return None
    position, batch_bytes = place[_POSITION], place[_SIZE]
    end = segment.records.size
    if end_offset < segment_end:
        if not _find(log, segment, end_offset, place):
            return None
        end = place[_POSITION]
    size = end - position
    if size <= 0:
        return None
    if size > max_bytes:
        size = max_bytes
        if batch_bytes > max_bytes:
            size = batch_bytes if at_least_one else 0
    place[_POSITION], place[_SIZE] = position, size
    return file


def _find(log: LogEnd, segment: SegmentEnd, offset: int, place: Ints) -> bool:
    """Puts the position and the size of the first batch that ends at or after `offset` into `place`, if there is one.
    Whether it was found."""
    if segment is log.active:
        recent = log.segments.recent
        offsets: Any = recent.offsets
        positions: Any = recent.positions
        slot, count = _bisected_int64(offsets, offset), len(offsets)
        if slot:
            position = _int64_in(positions, slot - 1)
            following = _int64_in(positions, slot) if slot < count else segment.records.size
            place[_POSITION], place[_SIZE] = position, following - position
            return True
    return _locate(segment, offset, place)


def _locate(segment: SegmentEnd, offset: int, place: Ints) -> bool:
    """As `_find`, by the segment's index and the headers behind its entry."""
    records, loaded = segment.records, segment.indexes._loaded
    if records.plain_fd < 0 or loaded is None:
        return False
    base, fd, end = segment.base_offset, records.plain_fd, records.size
    index: IndexColumns = loaded[0]
    keys: Any = index.keys
    values: Any = index.values
    slot = _bisected_int32(keys, min(offset - base, _INT32_MAX))
    position, ends_at = 0, -1  # without an entry
    if slot:
        position, ends_at = _int32_in(values, slot - 1), base + _int32_in(keys, slot - 1)
    chunk: Any = cython.address(_chunk[0]) if cython.compiled else memoryview(bytearray(_CHUNK_BYTES))
    chunk_start, filled = position, 0
    while position + _HEADER_BYTES <= end:
        at = position - chunk_start
        if at + _HEADER_BYTES > filled:
            filled = _read(fd, chunk, min(_CHUNK_BYTES, end - position), position)
            chunk_start, at = position, 0
            if filled < _HEADER_BYTES:
                return False
        first, length, delta = int64_at(chunk, at), int32_at(chunk, at + _LENGTH_AT), int32_at(chunk, at + _DELTA_AT)
        if chunk[at + _MAGIC_AT] != _MAGIC or length < _HEADER_BYTES - _PREFIX_BYTES or delta < 0 or first < base:
            return False
        if ends_at >= 0 and first + delta > ends_at:
            return False  # the entry names another batch
        ends_at = -1
        size = length + _PREFIX_BYTES
        if position + size > end:
            return False
        if first + delta >= offset:
            place[_POSITION], place[_SIZE] = position, size
            return True
        position += size
    return False


def _read(fd: int, chunk: memoryview, size: int, position: int) -> int:
    """The number of bytes read to the beginning of `chunk`; negative after a failure."""
    if cython.compiled:
        got: int = pread(fd, chunk, size, position)
        return got
    try:
        return os.preadv(fd, [chunk[:size]], position)
    except OSError:
        return -1


def _bisected_int64(column: Any, value: int) -> int:
    """`bisect_right` of an array of int64."""
    if not cython.compiled:
        return bisect_right(column, value)
    low, high = 0, len(column)
    while low < high:
        middle = (low + high) // 2
        if value < column.data.as_longlongs[middle]:
            high = middle
        else:
            low = middle + 1
    return low


def _bisected_int32(column: Any, value: int) -> int:
    """`bisect_right` of an array of int32."""
    if not cython.compiled:
        return bisect_right(column, value)
    low, high = 0, len(column)
    while low < high:
        middle = (low + high) // 2
        if value < column.data.as_ints[middle]:
            high = middle
        else:
            low = middle + 1
    return low


def _int64_in(column: Any, at: int) -> int:
    found: int = column.data.as_longlongs[at] if cython.compiled else column[at]
    return found


def _int32_in(column: Any, at: int) -> int:
    found: int = column.data.as_ints[at] if cython.compiled else column[at]
    return found
