# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: annotation_typing=False, binding=False
"""The compiled loops of compaction over runs of plain batches.

    learn    puts the newest offset of each key of a run of batches into a table
    sift     copies batches whose records all stay, and drops batches whose records all go

A plain batch has format 2, records, a correct checksum and correct offsets. It is not compressed, not transactional,
and has no delete horizon. A run ends before the first batch that is not plain. `sift` also stops before a batch of
which only some records stay, that has a tombstone, or that is a producer's last one. The caller handles that batch
alone. Runs only save an object for each of many small batches; the result is the same without them.

    table     as in `compaction_kernel`
    state     as in `recovery_kernel`, of the segment that is written; places, times: its new index entries, likewise
    lasts     int64[n], ascending: the last offsets of live producers

This is plain Python. Cython compiles it with the C types in `compaction_runs.pxd`; uncompiled, it runs slowly. Each
index is compared with the length of its buffer before it is used. Source: Kafka's Cleaner.
"""

from __future__ import annotations

from array import array
from typing import TypeAlias

from headrace.records.codecs.crc import crc32c

try:
    import cython
except ImportError:
    from headrace import uncompiled as cython

if cython.compiled:
    from cython.cimports.headrace.log.cleaning.compaction_kernel import index, mark
    from cython.cimports.headrace.log.recovery.recovery_kernel import note
    from cython.cimports.headrace.records.codecs.crc32c_words import (
        crc32c_has_instruction,
        crc32c_prepare,
        crc32c_words,
    )
    from cython.cimports.libc.string import memcpy
else:
    from headrace.log.cleaning.compaction_kernel import index, mark
    from headrace.log.recovery.recovery_kernel import note

COMPILED: bool = cython.compiled
"""Whether this is the C version."""

Buffer: TypeAlias = "bytes | bytearray | memoryview"
Out: TypeAlias = "bytearray | memoryview"
Ints: TypeAlias = "array[int] | memoryview"
Table: TypeAlias = "array[int] | memoryview"

_HEADER_BYTES = 61
_LOG_OVERHEAD = 12
_CHECKED_FROM = 21
_MAGIC = 2
_NOT_PLAIN = 0x77  # codec, transactional, control, delete horizon


def _has_instruction() -> bool:
    """Whether the processor has a CRC-32C instruction and the module is compiled to use it."""
    if cython.compiled:
        crc32c_prepare()
        return bool(crc32c_has_instruction())
    return False


_BY_INSTRUCTION = _has_instruction()


def _crc(buf: Buffer, start: int, end: int) -> int:
    """CRC-32C of `buf[start:end]`. The caller has compared both with the length."""
    if cython.compiled:
        crc: int = crc32c_words(cython.address(buf[start]), end - start, _BY_INSTRUCTION)
        return crc
    return crc32c(buf[start:end])


def _uint32(buf: Buffer, pos: int) -> int:
    """Four bytes, big-endian. The caller has compared `pos` with the length."""
    first = buf[pos]  # as wide a number as C needs
    return (first << 24) | (buf[pos + 1] << 16) | (buf[pos + 2] << 8) | buf[pos + 3]


def _int32(buf: Buffer, pos: int) -> int:
    value = _uint32(buf, pos)
    return value - ((value >> 31) << 32)


def _int64(buf: Buffer, pos: int) -> int:
    return (_int32(buf, pos) << 32) | _uint32(buf, pos + 4)


def _plain_size(buf: Buffer, pos: int, end: int, expected: int, next_base: int) -> int:
    """The size of the plain batch at `pos` with offsets from `expected` to below `next_base`; 0 if there is none."""
    if end - pos < _HEADER_BYTES or buf[pos + 16] != _MAGIC or buf[pos + 22] & _NOT_PLAIN != 0:
        return 0
    length = _int32(buf, pos + 8)
    if length < _HEADER_BYTES - _LOG_OVERHEAD or length > end - pos - _LOG_OVERHEAD:
        return 0
    base_offset = _int64(buf, pos)
    last_delta = _int32(buf, pos + 23)
    if base_offset < expected or last_delta < 0 or base_offset >= next_base - last_delta or _int32(buf, pos + 57) < 1:
        return 0
    size = length + _LOG_OVERHEAD
    return size if _crc(buf, pos + _CHECKED_FROM, pos + size) == _uint32(buf, pos + 17) else 0


def _holds(ascending: Ints, number: int) -> bool:
    low = 0
    high = len(ascending)
    while low < high:
        middle = (low + high) // 2
        if ascending[middle] < number:
            low = middle + 1
        else:
            high = middle
    return low < len(ascending) and ascending[low] == number


def learn(
    buf: Buffer,
    pos: int,
    expected: int,
    next_base: int,
    from_offset: int,
    table: Table,
    slots: int,
    entries: int,
    entries_max: int,
    key0: int,
    key1: int,
) -> tuple[int, int, int, int]:
    """Stores the keys of a run of batches from `pos` on, for records from `from_offset` on.

    Returns the end of the run, the smallest offset that may follow, the number of entries in the table, and the last
    offset of the run's batches from `from_offset` on (-1: none). A batch whose keys exceed the table does not belong to
    the run, although some of its keys may have been stored: the caller handles it again.
    """
    latest = -1
    end = len(buf)
    if pos < 0:
        return pos, expected, entries, latest
    while True:
        size = _plain_size(buf, pos, end, expected, next_base)
        if size == 0:
            return pos, expected, entries, latest
        base_offset = _int64(buf, pos)
        last_offset = base_offset + _int32(buf, pos + 23)
        if last_offset >= from_offset:
            (reached, entries) = index(
                buf, pos + _HEADER_BYTES, pos + size, _int32(buf, pos + 57), base_offset, from_offset, table, slots,
                entries, entries_max, key0, key1
            )  # fmt: skip
            if reached != -1:
                return pos, expected, entries, latest
            latest = last_offset
        expected = last_offset + 1
        pos += size


def sift(
    buf: Buffer,
    pos: int,
    expected: int,
    next_base: int,
    latest_offset: int,
    table: Table,
    slots: int,
    key0: int,
    key1: int,
    keep: Out,
    lasts: Ints,
    state: Ints,
    places: Ints,
    placed: int,
    times: Ints,
    timed: int,
    written: int,
    out: Out,
    at: int,
) -> tuple[int, int, int, int, int, int, int, int]:
    """Processes a run of batches from `pos` on, and appends those that stay to `out` at `at`.

    `out[0]` is at position `written` in the file. The run also ends when `out`, `places` or `times` is full. Returns
    the end of the run, the smallest offset that may follow, the end of `out`, the number of entries that `places` and
    `times` have now, and the numbers of records that the run had, that stayed, and that had no key.
    """
    read = kept = keyless = 0
    end = len(buf)
    places_max = min(len(places), len(times)) // 2
    if pos < 0 or at < 0 or len(state) < 9:
        return pos, expected, at, placed, timed, 0, 0, 0
    while placed < places_max:
        size = _plain_size(buf, pos, end, expected, next_base)
        if size == 0 or size > len(out) - at:
            break
        base_offset = _int64(buf, pos)
        last_offset = base_offset + _int32(buf, pos + 23)
        count = _int32(buf, pos + 57)
        (stay, tombstones, _latest, without_key) = mark(
            buf, pos + _HEADER_BYTES, pos + size, count, base_offset, latest_offset, False, table, slots, key0, key1,
            keep
        )  # fmt: skip
        if stay == count and tombstones == 0:
            if cython.compiled:
                memcpy(cython.address(out[at]), cython.address(buf[pos]), size)
            else:
                out[at : at + size] = buf[pos : pos + size]
            (placed, timed) = note(
                state, places, placed, times, timed, written + at, size, last_offset, _int64(buf, pos + 35)
            )  # fmt: skip
            at += size
        elif stay != 0 or (_int64(buf, pos + 43) >= 0 and _holds(lasts, last_offset)):
            break
        read += count
        kept += stay
        keyless += without_key
        expected = last_offset + 1
        pos += size
    return pos, expected, at, placed, timed, read, kept, keyless
