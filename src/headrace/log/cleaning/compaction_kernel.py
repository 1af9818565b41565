# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: annotation_typing=False, binding=False
"""The compiled loops of compaction over single records.

    index    puts the newest offset of each key into a table
    mark     marks the records of a batch that stay
    copy     copies the records that stay

    table    uint64[3 * slots]: hash, low half | hash, high half | offset + 1 (0: empty)

A key is identified by its 128-bit SipHash-2-4, with a random hash key for each run. Kafka uses MD5. With either, two
keys with the same hash count as one; the random hash key prevents clients from constructing such keys. A search of the
table begins at slot `hash mod slots` and ends at the first empty slot; the caller keeps some slots empty.

This is plain Python. Cython compiles it with the C types in `compaction_kernel.pxd`; uncompiled, it runs slowly. Each
index is compared with the length of its buffer before it is used. Source: Kafka's SkimpyOffsetMap, Cleaner,
DefaultRecord; Aumasson and Bernstein's SipHash.
"""

from __future__ import annotations

from array import array
from typing import TypeAlias

try:
    import cython
except ImportError:
    from headrace import uncompiled as cython

if cython.compiled:
    from cython.cimports.libc.string import memcpy

COMPILED: bool = cython.compiled
"""Whether this is the C version."""

Buffer: TypeAlias = "bytes | bytearray | memoryview"
Out: TypeAlias = "bytearray | memoryview"
Table: TypeAlias = "array[int] | memoryview"

FIELDS = 3
"""Numbers of a table per slot."""

BROKEN = -2
"""What `index` reaches, and `mark` and `copy` answer, when the bytes are no records."""

OUT_OF_RANGE = -3
"""What `copy` answers when a timestamp would leave 64 bits."""

GROWTH_BYTES_MAX = 20
"""How much longer a record can get in `copy`: two numbers of ten bytes."""

_MASK = 0xFFFFFFFFFFFFFFFF
_INT64_MAX = 0x7FFFFFFFFFFFFFFF
_INT64_MIN = -0x7FFFFFFFFFFFFFFF - 1


def _number(buf: Buffer, pos: int, end: int) -> tuple[int, int]:
    """A zigzag number of up to 64 bits and the position behind it; position -1 if it is cut off or wider."""
    folded = 0
    shift = 0
    while pos < end and shift < 70:
        byte = buf[pos]
        pos += 1
        if shift == 63 and byte > 1:
            return 0, -1
        folded |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (folded >> 1) ^ -(folded & 1), pos
        shift += 7
    return 0, -1


def _number_size(value: int) -> int:
    """The encoded size of a zigzag number."""
    folded = ((value << 1) ^ (value >> 63)) & _MASK
    size = 1
    while folded >= 0x80:
        folded >>= 7
        size += 1
    return size


def _put_number(out: Out, pos: int, value: int) -> int:
    """Write a zigzag number; returns the position behind it. The caller has checked the size."""
    folded = ((value << 1) ^ (value >> 63)) & _MASK
    while folded >= 0x80:
        out[pos] = (folded & 0x7F) | 0x80
        pos += 1
        folded >>= 7
    out[pos] = folded & 0xFF
    return pos + 1


def _record(buf: Buffer, pos: int, end: int) -> tuple[int, int, int, int, int, int, int, int]:
    """One record: where it ends (-1: nowhere), its attributes' place, timestamp delta and the place behind that,
    offset delta, key start, key length (-1: null), value length (-1: null)."""
    length, pos = _number(buf, pos, end)
    if pos < 0 or length < 1 or length > end - pos:
        return -1, 0, 0, 0, 0, 0, 0, 0
    end = pos + length
    attributes = pos
    timestamp, pos = _number(buf, pos + 1, end)
    if pos < 0:
        return -1, 0, 0, 0, 0, 0, 0, 0
    behind = pos
    offset, pos = _number(buf, pos, end)
    if pos < 0 or offset < 0:
        return -1, 0, 0, 0, 0, 0, 0, 0
    key_length, pos = _number(buf, pos, end)
    if pos < 0 or key_length < -1 or key_length > end - pos:
        return -1, 0, 0, 0, 0, 0, 0, 0
    key = pos
    if key_length > 0:
        pos += key_length
    value_length, pos = _number(buf, pos, end)
    if pos < 0 or value_length < -1 or value_length > end - pos:
        return -1, 0, 0, 0, 0, 0, 0, 0
    return end, attributes, timestamp, behind, offset, key, key_length, value_length


def _rotated(word: int, bits: int) -> int:
    return ((word << bits) | (word >> (64 - bits))) & _MASK


def _mixed(v0: int, v1: int, v2: int, v3: int) -> tuple[int, int, int, int]:
    """One SipRound."""
    v0 = (v0 + v1) & _MASK
    v1 = _rotated(v1, 13) ^ v0
    v0 = _rotated(v0, 32)
    v2 = (v2 + v3) & _MASK
    v3 = _rotated(v3, 16) ^ v2
    v0 = (v0 + v3) & _MASK
    v3 = _rotated(v3, 21) ^ v0
    v2 = (v2 + v1) & _MASK
    v1 = _rotated(v1, 17) ^ v2
    v2 = _rotated(v2, 32)
    return v0, v1, v2, v3


def _hash(buf: Buffer, start: int, length: int, key0: int, key1: int) -> tuple[int, int]:
    """SipHash-2-4-128 of `buf[start:start + length]`; the caller has compared that with the length."""
    v0 = key0 ^ 0x736F6D6570736575
    v1 = key1 ^ 0x646F72616E646F6D ^ 0xEE
    v2 = key0 ^ 0x6C7967656E657261
    v3 = key1 ^ 0x7465646279746573
    pos = start
    for _ in range(length // 8):
        word = 0
        for at in range(8):
            byte = buf[pos + at]
            word |= byte << (8 * at)
        pos += 8
        v3 ^= word
        v0, v1, v2, v3 = _mixed(v0, v1, v2, v3)
        v0, v1, v2, v3 = _mixed(v0, v1, v2, v3)
        v0 ^= word
    word = length & 0xFF
    word <<= 56
    for at in range(length & 7):
        byte = buf[pos + at]
        word |= byte << (8 * at)
    v3 ^= word
    v0, v1, v2, v3 = _mixed(v0, v1, v2, v3)
    v0, v1, v2, v3 = _mixed(v0, v1, v2, v3)
    v0 ^= word
    v2 ^= 0xEE
    for _ in range(4):
        v0, v1, v2, v3 = _mixed(v0, v1, v2, v3)
    low = v0 ^ v1 ^ v2 ^ v3
    v1 ^= 0xDD
    for _ in range(4):
        v0, v1, v2, v3 = _mixed(v0, v1, v2, v3)
    return low, v0 ^ v1 ^ v2 ^ v3


def siphash(data: Buffer, key0: int, key1: int) -> tuple[int, int]:
    """SipHash-2-4 of 128 bits: its low and its high half, unsigned."""
    return _hash(data, 0, len(data), key0, key1)


def _slot(table: Table, slots: int, low: int, high: int) -> int:
    """Where the hash is, or else the empty slot that it would take, as an index of the table."""
    at = 3 * (low % slots)
    while table[at + 2] != 0 and (table[at] != low or table[at + 1] != high):
        at += 3
        if at == 3 * slots:
            at = 0
    return at


def put(table: Table, slots: int, key: Buffer, offset: int, is_full: bool, key0: int, key1: int) -> int:
    """Stores the offset of one key. Returns 1 for a new key, 0 for a known one, -1 for a new one in a full table."""
    low, high = _hash(key, 0, len(key), key0, key1)
    at = _slot(table, slots, low, high)
    known = table[at + 2] != 0
    if not known and is_full:
        return -1
    table[at] = low
    table[at + 1] = high
    table[at + 2] = offset + 1
    return 0 if known else 1


def get(table: Table, slots: int, key: Buffer, key0: int, key1: int) -> int:
    """The offset of one key, -1 when it is not known."""
    low, high = _hash(key, 0, len(key), key0, key1)
    found = table[_slot(table, slots, low, high) + 2]
    return found - 1


def index(
    buf: Buffer,
    pos: int,
    end: int,
    count: int,
    base_offset: int,
    from_offset: int,
    table: Table,
    slots: int,
    entries: int,
    entries_max: int,
    key0: int,
    key1: int,
) -> tuple[int, int]:
    """Stores the newest offset of each key of a batch, from `from_offset` on.

    Returns how far it came, and the number of entries in the table. The first is -1 at the end of the batch, `BROKEN`
    if the bytes are no records, and otherwise the offset of the record whose key would have exceeded `entries_max`
    entries (`entries_max` is below `slots`).
    """
    if pos < 0 or pos > end or end > len(buf) or len(table) < 3 * slots or entries_max >= slots:
        return -2, entries
    for _ in range(count):
        (pos, _attributes, _time, _behind, delta, key, key_length, _value) = _record(buf, pos, end)
        if pos < 0:
            return -2, entries
        if key_length < 0 or base_offset + delta < from_offset:
            continue
        low, high = _hash(buf, key, key_length, key0, key1)
        at = _slot(table, slots, low, high)
        if table[at + 2] == 0:
            if entries >= entries_max:
                return base_offset + delta, entries
            entries += 1
            table[at] = low
            table[at + 1] = high
        table[at + 2] = base_offset + delta + 1
    return -1, entries


def mark(
    buf: Buffer,
    pos: int,
    end: int,
    count: int,
    base_offset: int,
    latest_offset: int,
    drop_tombstones: bool,
    table: Table,
    slots: int,
    key0: int,
    key1: int,
    keep: Out,
) -> tuple[int, int, int, int]:
    """Marks the records of a batch that stay: 1 or 0 in `keep[0:count]`.

    Records above `latest_offset` stay, because the table does not cover them. Of the others, a record stays if it has
    a key and no newer record has the same key, unless it is a tombstone and `drop_tombstones` is set. Returns the
    number of records that stay, how many of these are tombstones, the largest timestamp delta among them, and the
    number of records without a key. The first is `BROKEN` if the bytes are no records.
    """
    if pos < 0 or pos > end or end > len(buf) or count > len(keep) or len(table) < 3 * slots or slots < 1:
        return -2, 0, 0, 0
    kept = tombstones = keyless = 0
    latest = _INT64_MIN
    for row in range(count):
        (pos, _attributes, timestamp, _behind, delta, key, key_length, value_length) = _record(buf, pos, end)
        if pos < 0:
            return -2, 0, 0, 0
        stays = True
        if base_offset + delta <= latest_offset:
            if key_length < 0:
                keyless += 1
                stays = False
            elif value_length < 0 and drop_tombstones:
                stays = False
            else:
                low, high = _hash(buf, key, key_length, key0, key1)
                newest = table[_slot(table, slots, low, high) + 2]
                stays = newest < base_offset + delta + 2
        keep[row] = 1 if stays else 0
        if stays:
            kept += 1
            if value_length < 0:
                tombstones += 1
            if timestamp > latest:
                latest = timestamp
    return kept, tombstones, latest, keyless


def _copy_bytes(out: Out, at: int, buf: Buffer, start: int, size: int) -> None:
    """`out[at:at + size] = buf[start:start + size]`; the caller has compared both with their lengths."""
    if cython.compiled:
        if size > 0:
            memcpy(cython.address(out[at]), cython.address(buf[start]), size)
    else:
        out[at : at + size] = buf[start : start + size]


def copy(buf: Buffer, pos: int, end: int, count: int, keep: Buffer, shift: int, out: Out, at: int) -> int:
    """Writes the records of a batch that `keep` marks with 1, from `at` on, with `shift` added to timestamp deltas.

    Returns the position after them; `BROKEN` if the bytes are no records or do not fit `out`; or `OUT_OF_RANGE`.
    """
    if pos < 0 or pos > end or end > len(buf) or count > len(keep) or at < 0:
        return -2
    for row in range(count):
        start = pos
        (pos, attributes, timestamp, behind, _delta, _key, _key_length, _value) = _record(buf, pos, end)
        if pos < 0 or at + (pos - start) + 20 > len(out):
            return -2
        if keep[row] == 0:
            continue
        if shift == 0:
            _copy_bytes(out, at, buf, start, pos - start)
            at += pos - start
            continue
        if (shift > 0 and timestamp > _INT64_MAX - shift) or (shift < 0 and timestamp < _INT64_MIN - shift):
            return -3
        timestamp += shift
        at = _put_number(out, at, 1 + _number_size(timestamp) + (pos - behind))
        out[at] = buf[attributes]
        at = _put_number(out, at + 1, timestamp)
        _copy_bytes(out, at, buf, behind, pos - behind)
        at += pos - behind
    return at
