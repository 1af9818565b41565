# distutils: define_macros="CYTHON_INLINE=__inline__ __attribute__((always_inline))"
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: annotation_typing=False, binding=False
"""The compiled loops of recovery over batches of format 2. They run without the interpreter's lock.

    take               checks the batches of a window, and collects index entries, leader epochs and the positions of
                       batches with a producer id
    find_producers     collects only these positions, and checks nothing

A partition remembers the last five batches of each producer, its open transaction and its markers. After all batches
were read, `_keep_what_counts` removes the positions of older batches.

`take` stops before the first batch that has another format, is incomplete, reaches past the window or has a wrong CRC.
It returns the position that it reached. One function alone, `scan`, decides whether what follows is damage.

    state     int64[9], carried from window to window
    places    int64[2 * n], entries of the offset index: last offset, relative to the segment's base | position
    times     int64[2 * n], entries of the time index: timestamp | last offset, relative to the segment's base
    epochs    int64[2 * n]: leader epoch | first offset
    noted     int64[n]: positions of batches with a producer id
    table     int64[3 * slots], slots a power of two: producer id | batches kept | whether a transaction was begun

This is plain Python. Cython compiles it with the C types in `recovery_kernel.pxd`; uncompiled, it runs slowly. Each
index is compared with the length of its buffer before it is used.
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
    from cython.cimports.headrace.records.codecs.crc32c_words import (
        crc32c_can_fold,
        crc32c_folded,
        crc32c_folding_bits,
        crc32c_has_instruction,
        crc32c_prepare,
        crc32c_words,
    )

COMPILED: bool = cython.compiled
"""Whether this is the C version."""

Buffer: TypeAlias = "bytes | bytearray | memoryview"
Ints: TypeAlias = "array[int] | memoryview"

_BASE_OFFSET = 0
_NEXT_OFFSET = 1
_OFFSET_MAX = 2
_UNINDEXED_BYTES = 3
_INTERVAL_BYTES = 4
_LARGEST_MS = 5
_OFFSET_OF_LARGEST = 6
_INDEXED_MS = 7
_LEADER_EPOCH = 8

NEXT_OFFSET = 1
LARGEST_MS = 5
OFFSET_OF_LARGEST = 6
UNINDEXED_BYTES = 3
LEADER_EPOCH = 8
"""Of a state: the least offset that the next batch may have; the largest timestamp so far, and the last offset of the
first batch that has it; bytes since the last entry of the offset index; the newest leader epoch."""

_HEADER_BYTES = 61
_LOG_OVERHEAD = 12
_CHECKED_FROM = 21
_MAGIC = 2
_TRANSACTIONAL = 0x10
_CONTROL = 0x20
_BATCHES_KEPT = 5  # PRODUCER_BATCHES_KEPT, as a C constant
_SPREAD = 0x9E3779B97F4A7C15  # 2^64 divided by the golden ratio
_UINT64_MAX = 0xFFFFFFFFFFFFFFFF


def _has_instruction() -> bool:
    """Whether the processor computes CRC-32C, and there is a compiled form to have it do so."""
    if cython.compiled:
        crc32c_prepare()
        return bool(crc32c_has_instruction())
    return False


_BY_INSTRUCTION = _has_instruction()


def _crc(buf: Buffer, start: int, end: int, by_instruction: bool) -> int:
    """CRC-32C of `buf[start:end]`. The caller compared both."""
    if cython.compiled:
        crc: int = crc32c_words(cython.address(buf[start]), end - start, by_instruction)
        return crc
    return crc32c(buf[start:end])


def crc32c_of(buf: Buffer, by_instruction: bool) -> int:
    """CRC-32C of a buffer that is not empty, with or without the processor's help: for tests and measurements."""
    return _crc(buf, 0, len(buf), by_instruction and _BY_INSTRUCTION) if len(buf) else 0


def folding_bits() -> int:
    """The width of the registers in which long data is folded before its CRC-32C; 0: it is not folded."""
    bits: int = crc32c_folding_bits if cython.compiled else 0
    return bits


def folds_in(bits: int) -> bool:
    """Whether the processor can fold in registers of so many bits."""
    return bool(crc32c_can_fold(bits)) if cython.compiled else False


def crc32c_folded_in(buf: Buffer, bits: int) -> int:
    """CRC-32C of a buffer, folded in registers of so many bits whatever the widest are; 0: by the
    instruction alone. For tests and measurements. Where the processor cannot, it is computed as everywhere."""
    if cython.compiled and len(buf) and _BY_INSTRUCTION and (not bits or folds_in(bits)):
        crc: int = crc32c_folded(cython.address(buf[0]), len(buf), bits)
        return crc
    return crc32c_of(buf, True)


def _uint32(buf: Buffer, pos: int) -> int:
    """Four bytes, big-endian. The caller compared `pos` with the length."""
    first = buf[pos]  # as wide a number as C needs
    return (first << 24) | (buf[pos + 1] << 16) | (buf[pos + 2] << 8) | buf[pos + 3]


def _int32(buf: Buffer, pos: int) -> int:
    value = _uint32(buf, pos)
    return value - ((value >> 31) << 32)


def _int64(buf: Buffer, pos: int) -> int:
    return (_int32(buf, pos) << 32) | _uint32(buf, pos + 4)


def _plain_size(buf: Buffer, pos: int, end: int) -> int:
    """How long the batch of format 2 at `pos` is; 0 when there is none, or not all of it."""
    if end - pos < _HEADER_BYTES or buf[pos + 16] != _MAGIC:
        return 0
    length = _int32(buf, pos + 8)
    if length < _HEADER_BYTES - _LOG_OVERHEAD or length > end - pos - _LOG_OVERHEAD:
        return 0
    return length + _LOG_OVERHEAD


def new_state(base_offset: int, offset_max: int, interval_bytes: int, leader_epoch: int) -> array[int]:
    """The state before a segment's first batch. `offset_max`: of any batch; `leader_epoch`: the newest known."""
    return array("q", (base_offset, base_offset, offset_max, 0, interval_bytes, -1, base_offset, -1, leader_epoch))


def table_size(noted: int) -> int:
    """How many numbers the table for that many noted batches has."""
    slots = 8
    while slots < 2 * noted:
        slots *= 2
    return slots * 3


def note(
    state: Ints,
    places: Ints,
    placed: int,
    times: Ints,
    timed: int,
    position: int,
    size: int,
    last_offset: int,
    max_timestamp: int,
) -> tuple[int, int]:
    """Adds one batch of `size` bytes to the indexes. Returns the number of entries that `places` and `times` have now.

    They had `placed` and `timed` entries, and need room for one more.
    """
    if max_timestamp > state[_LARGEST_MS]:
        state[_LARGEST_MS] = max_timestamp
        state[_OFFSET_OF_LARGEST] = last_offset
    if state[_UNINDEXED_BYTES] > state[_INTERVAL_BYTES]:
        state[_UNINDEXED_BYTES] = 0
        places[placed * 2] = last_offset - state[_BASE_OFFSET]
        places[placed * 2 + 1] = position
        placed += 1
        if state[_LARGEST_MS] > state[_INDEXED_MS]:
            state[_INDEXED_MS] = state[_LARGEST_MS]
            times[timed * 2] = state[_LARGEST_MS]
            times[timed * 2 + 1] = state[_OFFSET_OF_LARGEST] - state[_BASE_OFFSET]
            timed += 1
    state[_UNINDEXED_BYTES] += size
    return placed, timed


def _take(
    buf: Buffer,
    pos: int,
    end: int,
    window: int,
    state: Ints,
    places: Ints,
    times: Ints,
    epochs: Ints,
    noted: Ints,
    by_instruction: bool,
) -> tuple[int, int, int, int, int]:
    placed = timed = changes = found = 0
    places_max = min(len(places), len(times)) // 2
    epochs_max = len(epochs) // 2
    while placed < places_max and changes < epochs_max and found < len(noted):
        size = _plain_size(buf, pos, end)
        if size == 0:
            break
        base_offset = _int64(buf, pos)
        last_delta = _int32(buf, pos + 23)
        if base_offset < state[_NEXT_OFFSET] or last_delta < 0 or base_offset > state[_OFFSET_MAX] - last_delta:
            break
        if _crc(buf, pos + _CHECKED_FROM, pos + size, by_instruction) != _uint32(buf, pos + 17):
            break
        # what compaction emptied has no time
        latest = _int64(buf, pos + 35) if _int32(buf, pos + 57) != 0 else -1
        placed, timed = note(
            state, places, placed, times, timed, window + pos, size, base_offset + last_delta, latest
        )  # fmt: skip
        epoch = _int32(buf, pos + 12)
        if epoch > state[_LEADER_EPOCH]:
            state[_LEADER_EPOCH] = epoch
            epochs[changes * 2] = epoch
            epochs[changes * 2 + 1] = base_offset
            changes += 1
        if _int64(buf, pos + 43) >= 0:
            noted[found] = window + pos
            found += 1
        state[_NEXT_OFFSET] = base_offset + last_delta + 1
        pos += size
    return pos, placed, timed, changes, found


def take(
    buf: Buffer,
    pos: int,
    end: int,
    window: int,
    state: Ints,
    places: Ints,
    times: Ints,
    epochs: Ints,
    noted: Ints,
    table: Ints,
) -> tuple[int, int, int, int, int]:
    """Checks batches from `pos` to `end` of a buffer whose first byte is at `window` in the file.

    Returns the position that it reached, and the number of entries that `places`, `times`, `epochs` and `noted` have
    now. It stops early if one of them is full. If it stops elsewhere, no complete and correct batch of format 2
    follows. `table` needs at least two slots for each element of `noted`.
    """
    if len(state) < 9 or pos < 0 or end > len(buf) or pos > end:
        return pos, 0, 0, 0, 0
    by_instruction = _BY_INSTRUCTION
    with cython.nogil:
        stop, placed, timed, changes, found = _take(
            buf, pos, end, window, state, places, times, epochs, noted, by_instruction
        )  # fmt: skip
        found = _keep_what_counts(buf, window, noted, found, table)
    return stop, placed, timed, changes, found


def find_producers(
    buf: Buffer, pos: int, end: int, window: int, from_offset: int, to_offset: int, noted: Ints, table: Ints
) -> tuple[int, int]:
    """Reads the headers of complete batches of format 2 with base offsets below `to_offset`, without checks, and notes
    those from `from_offset` on that have a producer id. Returns the position that it reached, and the number of
    entries that `noted` has now."""
    if pos < 0 or end > len(buf) or pos > end:
        return pos, 0
    found = 0
    with cython.nogil:
        while found < len(noted):
            size = _plain_size(buf, pos, end)
            if size == 0:
                break
            base_offset = _int64(buf, pos)
            if base_offset >= to_offset:
                break
            if base_offset >= from_offset and _int64(buf, pos + 43) >= 0:
                noted[found] = window + pos
                found += 1
            pos += size
        found = _keep_what_counts(buf, window, noted, found, table)
    return pos, found


def _slot(table: Ints, slots: int, producer_id: int) -> int:
    """Where a producer is in the table, or would be: a free slot has -1 for its producer."""
    spread = (producer_id * _SPREAD) & _UINT64_MAX
    slot = (spread >> 32) & (slots - 1)
    while table[slot * 3] != -1 and table[slot * 3] != producer_id:
        slot = (slot + 1) & (slots - 1)
    return slot


def _keep_what_counts(buf: Buffer, window: int, noted: Ints, found: int, table: Ints) -> int:
    """Removes from `noted` the batches that do not affect the state of producers. Returns the number of those left.

    The last five consecutive batches of a producer count. So does each batch that begins a transaction, and each
    marker.
    """
    slots = 8
    while slots < 2 * found:
        slots *= 2
    if slots * 3 > len(table) or found < 6:
        return found
    for index in range(slots):
        table[index * 3] = -1
        table[index * 3 + 1] = 0
        table[index * 3 + 2] = 0
    for index in range(found):
        pos = noted[index] - window
        attributes = buf[pos + 22]
        producer_id = _int64(buf, pos + 43)
        slot = _slot(table, slots, producer_id)
        table[slot * 3] = producer_id
        counts = attributes & _CONTROL != 0
        if counts:
            table[slot * 3 + 2] = 0
        elif attributes & _TRANSACTIONAL != 0 and table[slot * 3 + 2] == 0:
            table[slot * 3 + 2] = 1
            counts = True
        noted[index] = pos * 2 + counts
    left = found
    index = found
    while index > 0:
        index -= 1
        pos = noted[index] >> 1
        slot = _slot(table, slots, _int64(buf, pos + 43))
        if noted[index] & 1 == 0 and table[slot * 3 + 1] >= _BATCHES_KEPT:
            continue
        if buf[pos + 22] & _CONTROL == 0:
            table[slot * 3 + 1] += 1
        left -= 1
        noted[left] = window + pos
    index = left
    while index < found:
        noted[index - left] = noted[index]
        index += 1
    return found - left
