# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: annotation_typing=False, binding=False
"""The compiled loops over single records.

    record:  length varint | attributes int8 | timestamp_delta varlong | offset_delta varint
             | key_length varint (-1: null) | key | value_length varint (-1: null) | value
             | header_count varint | (key_length varint | key | value_length varint (-1: null) | value)…

This is plain Python. Cython compiles it with the C types in `kernel.pxd`, which makes it about a thousand times faster.
Uncompiled, it is the slow reference of itself. So it uses only constructs with the same meaning in both: numbers that
fit 64 bits, no slices except in `_copy`, and no exceptions. Every function takes flat buffers and returns numbers. It
reports bad bytes as one of `PROBLEMS`. The module is long and stays in one file, because only functions that are
compiled together are inlined, and the loops are fast only when they are inlined.

Input is never trusted. Each index is compared with the length of its buffer before it is used, since compiled code does
not check bounds.

    spans    int32[6 * n], the positions of the parts of record i in their buffer
             key start | key length (-1: null) | value start | value length (-1: null) | headers start | header count
    header spans   int32[4 * n], the same for headers: key start, key length, value start, value length

Source: Kafka's DefaultRecord, ByteUtils and Utils.murmur2; Arrow's binary layout for the columns.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import TypeAlias

try:
    import cython
except ImportError:
    from headrace import uncompiled as cython

if cython.compiled:
    from cython.cimports.cpython.bytearray import PyByteArray_FromStringAndSize
    from cython.cimports.libc.string import memcpy

COMPILED: bool = cython.compiled
"""Whether this is the C version."""

Buffer: TypeAlias = "bytes | bytearray | memoryview"
Out: TypeAlias = "bytearray | memoryview"
Ints: TypeAlias = "array[int] | memoryview"

PROBLEMS = (
    "no problem",
    "its length is not a valid number, or reaches past the end of the batch",
    "its fields are longer or shorter than its length",
    "its offset delta does not match its position in the batch",
    "it has no key, which records of a compacted topic must have",
    "its timestamp does not fit 64 bits",
    "bytes follow the last record of the batch",
    "the batch has more records than its header says",
)
_BAD_LENGTH = 1
_BAD_FIELD = 2
_BAD_OFFSET = 3
_NO_KEY = 4
_BAD_TIMESTAMP = 5
_TRAILING_BYTES = 6
_TOO_MANY = 7

NO_KEY = _NO_KEY
"""The problem that is the topic's, for whoever asks."""

SPAN_FIELDS = 6
HEADER_SPAN_FIELDS = 4
RECORD_BYTES_MIN = 7
"""The smallest record: length, attributes, two deltas, two null lengths, no headers."""

_HEADER_BYTES = 61
_INT32_MAX = 0x7FFFFFFF
_INT64_MAX = 0x7FFFFFFFFFFFFFFF
_UINT32_MAX = 0xFFFFFFFF
_MURMUR_SEED = 0x9747B28C
_MURMUR_FACTOR = 0x5BD1E995


def _varint(buf: Buffer, pos: int, end: int) -> tuple[int, int]:
    """A number of 32 bits and the position behind it; position -1 if it is cut off or wider."""
    if pos >= end:
        return 0, -1
    folded = buf[pos]
    pos += 1
    if folded < 0x80:
        return (folded >> 1) ^ -(folded & 1), pos
    if pos < end and buf[pos] < 0x80:
        folded = (folded & 0x7F) | (buf[pos] << 7)
        return (folded >> 1) ^ -(folded & 1), pos + 1
    folded &= 0x7F
    shift = 7
    while pos < end and shift < 35:
        byte = buf[pos]
        pos += 1
        folded |= (byte & 0x7F) << shift
        if byte < 0x80:
            if folded >> 32:
                return 0, -1
            return (folded >> 1) ^ -(folded & 1), pos
        shift += 7
    return 0, -1


def _varlong(buf: Buffer, pos: int, end: int) -> tuple[int, int]:
    """A number of 64 bits and the position behind it; position -1 if it is cut off or wider."""
    if pos >= end:
        return 0, -1
    folded = buf[pos]
    pos += 1
    if folded < 0x80:
        return (folded >> 1) ^ -(folded & 1), pos
    folded &= 0x7F
    shift = 7
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


def _field(buf: Buffer, pos: int, end: int) -> tuple[int, int, int]:
    """Start, length (-1: null) and end of a length-prefixed field; end -1 if it does not fit."""
    length, pos = _varint(buf, pos, end)
    if pos < 0 or length < -1:
        return 0, 0, -1
    if length < 0:
        return pos, -1, pos
    if length > end - pos:
        return 0, 0, -1
    return pos, length, pos + length


def _skip_headers(buf: Buffer, pos: int, end: int, count: int) -> int:
    """The position behind the given number of headers; -1 if they do not fit or a key is null."""
    for _ in range(count):
        _start, length, pos = _field(buf, pos, end)
        if pos < 0 or length < 0:
            return -1
        _start, length, pos = _field(buf, pos, end)
        if pos < 0:
            return -1
    return pos


def _record(buf: Buffer, pos: int, end: int) -> tuple[int, int, int, int, int, int, int, int, int]:
    """One record: position behind it (or a problem, negated), timestamp delta, offset delta, then its span."""
    length, pos = _varint(buf, pos, end)
    if pos < 0 or length < 0 or length > end - pos:
        return -_BAD_LENGTH, 0, 0, 0, 0, 0, 0, 0, 0
    end = pos + length
    timestamp_delta, pos = _varlong(buf, pos + 1, end)  # behind the attributes, which mean nothing yet
    if pos < 0:
        return -_BAD_FIELD, 0, 0, 0, 0, 0, 0, 0, 0
    offset_delta, pos = _varint(buf, pos, end)
    if pos < 0:
        return -_BAD_FIELD, 0, 0, 0, 0, 0, 0, 0, 0
    key, key_length, pos = _field(buf, pos, end)
    if pos < 0:
        return -_BAD_FIELD, 0, 0, 0, 0, 0, 0, 0, 0
    value, value_length, pos = _field(buf, pos, end)
    if pos < 0:
        return -_BAD_FIELD, 0, 0, 0, 0, 0, 0, 0, 0
    header_count, pos = _varint(buf, pos, end)
    if pos < 0 or header_count < 0:
        return -_BAD_FIELD, 0, 0, 0, 0, 0, 0, 0, 0
    headers = pos
    if header_count > 0:
        pos = _skip_headers(buf, pos, end, header_count)
    if pos != end:
        return -_BAD_FIELD, 0, 0, 0, 0, 0, 0, 0, 0
    return end, timestamp_delta, offset_delta, key, key_length, value, value_length, headers, header_count


def _overflows(base: int, delta: int) -> bool:
    """Whether the sum of two 64-bit numbers does not fit 64 bits."""
    if delta >= 0:
        return base > _INT64_MAX - delta
    return base < -_INT64_MAX - 1 - delta


def _difference_overflows(one: int, other: int) -> bool:
    """Whether the difference of two 64-bit numbers does not fit 64 bits."""
    if other >= 0:
        return one < -_INT64_MAX - 1 + other
    return one > _INT64_MAX + other


def walk(buf: Buffer, pos: int, end: int, count: int, base_timestamp: int, keys_required: bool) -> tuple[int, int, int]:
    """Checks the records of a produced batch: `count` of them between `pos` and `end`, with offset deltas 0, 1, 2…

    Returns the problem (0: none), the record that has it, and the largest timestamp.
    """
    if pos < 0 or end > len(buf) or pos > end:
        return _BAD_LENGTH, 0, 0
    max_timestamp = -_INT64_MAX - 1
    index = 0
    while index < count:
        pos, timestamp, offset, _key, key_length, _value, _length, _headers, _header_count = _record(buf, pos, end)
        if pos < 0:
            return -pos, index, 0
        if offset != index:
            return _BAD_OFFSET, index, 0
        if keys_required and key_length < 0:
            return _NO_KEY, index, 0
        if _overflows(base_timestamp, timestamp):
            return _BAD_TIMESTAMP, index, 0
        if base_timestamp + timestamp > max_timestamp:
            max_timestamp = base_timestamp + timestamp
        index += 1
    if pos != end:
        return _TRAILING_BYTES, index, 0
    return 0, index, max_timestamp


def refused_records(
    buf: Buffer,
    pos: int,
    end: int,
    count: int,
    base_timestamp: int,
    keys_required: bool,
    earliest: int,
    latest: int,
    found: Ints,
) -> tuple[int, int, int]:
    """Finds the records that a topic refuses: those without a key, or with a timestamp outside `earliest` to `latest`.

    A timestamp of -1 is absent and never refused. `found` receives pairs of index and timestamp, with -1 for a record
    without a key, until it is full. Returns the problem (0: none), the number of refused records, and how many of
    these are refused for their timestamp.
    """
    if pos < 0 or end > len(buf) or pos > end:
        return _BAD_LENGTH, 0, 0
    capacity = len(found) // 2
    refused = 0
    untimely = 0
    index = 0
    while index < count:
        pos, timestamp, _offset, _key, key_length, _value, _length, _headers, _header_count = _record(buf, pos, end)
        if pos < 0:
            return -pos, refused, untimely
        if _overflows(base_timestamp, timestamp):
            return _BAD_TIMESTAMP, refused, untimely
        timestamp += base_timestamp
        if keys_required and key_length < 0:
            timestamp = -1
        elif timestamp == -1 or (earliest <= timestamp and timestamp <= latest):
            index += 1
            continue
        else:
            untimely += 1
        if refused < capacity:
            found[2 * refused] = index
            found[2 * refused + 1] = timestamp
        refused += 1
        index += 1
    return 0, refused, untimely


def scan(
    buf: Buffer,
    pos: int,
    end: int,
    count: int,
    base_offset: int,
    last_offset_delta: int,
    base_timestamp: int,
    is_append_time: bool,
    from_offset: int,
    to_offset: int,
    offsets: Ints,
    timestamps: Ints,
    spans: Ints,
    at: int,
) -> tuple[int, int, int, int, int, int, int]:
    """Finds the parts of a batch's records with offsets in [from_offset, to_offset), and writes them from row `at` on.

    Offset deltas must rise up to the last one; compaction may have left gaps. With `is_append_time` all records have
    the base timestamp. Returns the problem (0: none), the row after the last one written (with a problem: the record
    that has it), the bytes of keys, the number of null keys, the bytes of values, the number of null values, and the
    number of headers.
    """
    if pos < 0 or end > len(buf) or pos > end or end > _INT32_MAX:
        return _BAD_LENGTH, 0, 0, 0, 0, 0, 0
    if base_offset < 0 or base_offset > _INT64_MAX - _INT32_MAX - 1:
        return _BAD_OFFSET, 0, 0, 0, 0, 0, 0
    capacity = min(len(offsets), len(timestamps), len(spans) // 6)
    key_bytes = value_bytes = null_keys = null_values = headers_found = 0
    last_delta = -1
    row = at
    for index in range(count):
        (pos, timestamp, delta, key, key_length, value, value_length, headers, header_count) = _record(buf, pos, end)
        if pos < 0:
            return -pos, index, 0, 0, 0, 0, 0
        if delta <= last_delta or delta > last_offset_delta:
            return _BAD_OFFSET, index, 0, 0, 0, 0, 0
        last_delta = delta
        if base_offset + delta < from_offset or base_offset + delta >= to_offset:
            continue
        if is_append_time:
            timestamp = 0
        if _overflows(base_timestamp, timestamp):
            return _BAD_TIMESTAMP, index, 0, 0, 0, 0, 0
        if row < 0 or row >= capacity:
            return _TOO_MANY, index, 0, 0, 0, 0, 0
        offsets[row] = base_offset + delta
        timestamps[row] = base_timestamp + timestamp
        span = row * 6
        spans[span] = key
        spans[span + 1] = key_length
        spans[span + 2] = value
        spans[span + 3] = value_length
        spans[span + 4] = headers
        spans[span + 5] = header_count
        if key_length < 0:
            null_keys += 1
        else:
            key_bytes += key_length
        if value_length < 0:
            null_values += 1
        else:
            value_bytes += value_length
        headers_found += header_count
        row += 1
    if pos != end:
        return _TRAILING_BYTES, count, 0, 0, 0, 0, 0
    return 0, row, key_bytes, null_keys, value_bytes, null_values, headers_found


def find_time(
    buf: Buffer,
    pos: int,
    end: int,
    count: int,
    base_offset: int,
    base_timestamp: int,
    is_append_time: bool,
    from_offset: int,
    from_timestamp: int,
) -> tuple[int, int, int, int, int]:
    """Finds the first of `count` records from `pos` on whose offset and timestamp are at or above the given ones.

    With `is_append_time` all records have the base timestamp. Returns the problem (0: none), the record that has it or
    the number of records examined, the position after the last of them, and the offset (-1: not found) and timestamp
    found.
    """
    if pos < 0 or end > len(buf) or pos > end:
        return _BAD_LENGTH, 0, 0, -1, 0
    if base_offset < 0 or base_offset > _INT64_MAX - _INT32_MAX - 1:
        return _BAD_OFFSET, 0, 0, -1, 0
    for index in range(count):
        (pos, timestamp, delta, _key, _key_length, _value, _length, _headers, _header_count) = _record(buf, pos, end)
        if pos < 0:
            return -pos, index, 0, -1, 0
        if is_append_time:
            timestamp = 0
        if _overflows(base_timestamp, timestamp):
            return _BAD_TIMESTAMP, index, 0, -1, 0
        if base_timestamp + timestamp >= from_timestamp and base_offset + delta >= from_offset:
            return 0, index + 1, pos, base_offset + delta, base_timestamp + timestamp
    return 0, count, pos, -1, 0


def _uint32_at(buf: Buffer, pos: int) -> int:
    """Four bytes, big-endian. The caller has compared `pos` with the length."""
    first = buf[pos]  # as wide a number as C needs
    return (first << 24) | (buf[pos + 1] << 16) | (buf[pos + 2] << 8) | buf[pos + 3]


def _int32_at(buf: Buffer, pos: int) -> int:
    value = _uint32_at(buf, pos)
    return value - (value >> 31 << 32)  # a literal of more than 31 bits would be a Python object in C


def _int64_at(buf: Buffer, pos: int) -> int:
    return _int32_at(buf, pos) << 32 | _uint32_at(buf, pos + 4)


def plain_run(
    buf: Buffer,
    pos: int,
    end: int,
    from_offset: int,
    to_offset: int,
    records_max: int,
    bytes_max: int,
    least: int,
    run: Ints,
) -> tuple[int, int, int, int]:
    """Counts the batches from `pos` on that are plain, so that `scan_run` can scan them together.

    A plain batch is complete, has format 2, is neither compressed nor a control batch, and has a valid header and
    offsets that can lie in [from_offset, to_offset). The run ends before the batch that would exceed `records_max`. It
    also ends when its bytes have reached `bytes_max`, but not before it has `least` batches, and when `run` is full.
    `run` receives three numbers for each batch: its start, its end and its CRC. Returns the numbers of batches,
    records and bytes of records, and the offset after them.
    """
    found = records = size = following = 0
    if pos < 0 or end > len(buf):
        return 0, 0, 0, 0
    while found < len(run) // 3 and end - pos >= _HEADER_BYTES and (size < bytes_max or found < least):
        length = _int32_at(buf, pos + 8)
        if buf[pos + 16] != 2 or length < _HEADER_BYTES - 12 or length > end - pos - 12 or buf[pos + 22] & 0x27:
            break
        base_offset = _int64_at(buf, pos)
        last_delta = _int32_at(buf, pos + 23)
        count = _int32_at(buf, pos + 57)
        if base_offset < 0 or base_offset > _INT64_MAX - _INT32_MAX - 1 or last_delta < 0 or count < 0:
            break
        if base_offset >= to_offset or base_offset + last_delta < from_offset:
            break
        held = length - (_HEADER_BYTES - 12)
        if count > held // RECORD_BYTES_MIN or (count > records_max - records and found >= least):
            break
        run[found * 3] = pos
        run[found * 3 + 1] = pos + 12 + length
        run[found * 3 + 2] = _uint32_at(buf, pos + 17)
        found += 1
        records += count
        size += held
        following = base_offset + last_delta + 1
        pos += 12 + length
    return found, records, size, following


def scan_run(
    buf: Buffer,
    run: Ints,
    count: int,
    from_offset: int,
    to_offset: int,
    offsets: Ints,
    timestamps: Ints,
    timestamp_types: Out,
    spans: Ints,
    at: int,
) -> tuple[int, int, int, int, int, int, int, int]:
    """Scans the first `count` batches of a run that `plain_run` found in the same buffer.

    Returns the sums of the results of `scan`, and the batch that has the problem. A timestamp's type is 1 if the
    broker set it.
    """
    key_bytes = null_keys = value_bytes = null_values = headers = 0
    row = at
    if count < 0 or count > len(run) // 3 or at < 0:
        return _BAD_LENGTH, 0, 0, 0, 0, 0, 0, 0
    for index in range(count):
        pos, end = run[index * 3], run[index * 3 + 1]
        if pos < 0 or end > len(buf) or end - pos < _HEADER_BYTES:
            return _BAD_LENGTH, 0, 0, 0, 0, 0, 0, index
        is_append_time = buf[pos + 22] & 0x08 != 0
        problem, stop, more_key_bytes, more_null_keys, more_value_bytes, more_null_values, more_headers = scan(
            buf, pos + _HEADER_BYTES, end, _int32_at(buf, pos + 57), _int64_at(buf, pos), _int32_at(buf, pos + 23),
            _int64_at(buf, pos + 35 if is_append_time else pos + 27), is_append_time, from_offset, to_offset, offsets,
            timestamps, spans, row,
        )  # fmt: skip
        if problem != 0:
            return problem, stop, 0, 0, 0, 0, 0, index
        if is_append_time:
            if stop > len(timestamp_types):
                return _TOO_MANY, 0, 0, 0, 0, 0, 0, index
            while row < stop:
                timestamp_types[row] = 1
                row += 1
        row = stop
        key_bytes += more_key_bytes
        null_keys += more_null_keys
        value_bytes += more_value_bytes
        null_values += more_null_values
        headers += more_headers
    return 0, row, key_bytes, null_keys, value_bytes, null_values, headers, count


def first_damaged(buf: memoryview, run: Ints, count: int, crc32c: Callable[[memoryview], int]) -> int:
    """The first batch of a run that does not match its CRC; `count` if all match."""
    for index in range(count):
        if crc32c(buf[run[index * 3] + 21 : run[index * 3 + 1]]) != run[index * 3 + 2]:
            return index
    return count


def scan_headers(
    buf: Buffer,
    spans: Ints,
    start: int,
    stop: int,
    list_offsets: Ints,
    header_spans: Ints,
) -> bool:
    """Finds the headers of the rows [start, stop), which `scan` found in the same buffer.

    Fills `list_offsets[start + 1:stop + 1]`, continuing from `list_offsets[start]`, and the spans of those headers.
    Returns whether every header lies within the buffer.
    """
    if start < 0 or stop > len(spans) // 6 or stop >= len(list_offsets):
        return False
    end = len(buf)
    capacity = len(header_spans) // 4
    header = list_offsets[start] if start < len(list_offsets) else -1
    for row in range(start, stop):
        pos = spans[row * 6 + 4]
        count = spans[row * 6 + 5]
        if header < 0 or pos < 0 or count < 0 or count > capacity - header:
            return False
        for _ in range(count):
            key, key_length, pos = _field(buf, pos, end)
            if pos < 0 or key_length < 0:
                return False
            value, value_length, pos = _field(buf, pos, end)
            if pos < 0:
                return False
            header_spans[header * 4] = key
            header_spans[header * 4 + 1] = key_length
            header_spans[header * 4 + 2] = value
            header_spans[header * 4 + 3] = value_length
            header += 1
        list_offsets[row + 1] = header
    return True


def _copy(out: Out, at: int, buf: Buffer, start: int, size: int) -> None:
    """`out[at:at + size] = buf[start:start + size]`; the caller has compared both with their lengths."""
    if cython.compiled:
        if size > 0:
            memcpy(cython.address(out[at]), cython.address(buf[start]), size)
    else:
        out[at : at + size] = buf[start : start + size]


def gather(
    buf: Buffer,
    spans: Ints,
    stride: int,
    field: int,
    start: int,
    stop: int,
    offsets: Ints,
    data: Out,
    validity: Out,
) -> bool:
    """Copies one field of the rows [start, stop) to an Arrow binary column.

    A row has `stride` numbers in `spans`; `field` is the index of the field's start, and its length follows. Fills
    `offsets[start + 1:stop + 1]`, continuing from `offsets[start]`, and the bytes between these offsets. Unless
    `validity` is empty, sets a bit in it for each row that is not null. Returns whether everything fitted.
    """
    if start < 0 or stop >= len(offsets) or stride < field + 2 or field < 0 or stop > len(spans) // stride:
        return False
    has_validity = len(validity) > 0
    if has_validity and stop > len(validity) * 8:
        return False
    to = offsets[start] if start < len(offsets) else -1
    size = len(data)
    end = len(buf)
    for row in range(start, stop):
        at = spans[row * stride + field]
        length = spans[row * stride + field + 1]
        if length >= 0:
            if at < 0 or length > end - at or to < 0 or length > size - to:
                return False
            _copy(data, to, buf, at, length)
            to += length
            if has_validity:
                validity[row >> 3] |= 1 << (row & 7)
        offsets[row + 1] = to
    return True


def _varint_size(value: int) -> int:
    """The encoded size of a zigzag number of up to 64 bits."""
    folded = value * 2 if value >= 0 else -(value + 1) * 2 + 1
    size = 1
    while folded > 0x7F:
        folded >>= 7
        size += 1
    return size


def _put_varint(out: Out, pos: int, value: int) -> int:
    """Write a zigzag number of up to 64 bits; returns the position behind it. The caller has checked the size."""
    folded = value * 2 if value >= 0 else -(value + 1) * 2 + 1
    while folded > 0x7F:
        out[pos] = (folded & 0x7F) | 0x80
        folded >>= 7
        pos += 1
    out[pos] = folded
    return pos + 1


def _length_at(offsets: Ints, size: int, validity: Buffer, row: int) -> int:
    """Length of a column's value, -1: null, -2: its offsets do not lie in its data. The caller compared `row`."""
    if len(offsets) == 0 or (len(validity) > 0 and (validity[row >> 3] >> (row & 7)) & 1 == 0):
        return -1
    start = offsets[row]
    length = offsets[row + 1] - start
    if start < 0 or length < 0 or length > size - start:
        return -2
    return length


def _is_short(offsets: Ints, validity: Buffer, stop: int) -> bool:
    """Whether a column that exists has fewer rows than `stop`."""
    return len(offsets) > 0 and (stop >= len(offsets) or (len(validity) > 0 and stop > len(validity) * 8))


def _with_field(size: int, length: int) -> int:
    """A size plus that of one more field; -1 after an invalid length."""
    if size < 0 or length < -1:
        return -1
    return size + _varint_size(length) + (length if length > 0 else 0)


def _headers_size(
    key_offsets: Ints,
    key_bytes: int,
    no_validity: Buffer,
    value_offsets: Ints,
    value_bytes: int,
    value_validity: Buffer,
    start: int,
    stop: int,
) -> int:
    """The size of a record's headers and of their count; -1 if they lie outside their columns."""
    if start < 0 or stop < start or len(key_offsets) == 0 or len(value_offsets) == 0:
        return -1
    if _is_short(key_offsets, no_validity, stop) or _is_short(value_offsets, value_validity, stop):
        return -1
    size = _varint_size(stop - start)
    for row in range(start, stop):
        size = _with_field(size, _length_at(key_offsets, key_bytes, no_validity, row))
        size = _with_field(size, _length_at(value_offsets, value_bytes, value_validity, row))
    return size


def measure(
    key_offsets: Ints,
    key_data: Buffer,
    key_validity: Buffer,
    value_offsets: Ints,
    value_data: Buffer,
    value_validity: Buffer,
    list_offsets: Ints,
    header_key_offsets: Ints,
    header_key_data: Buffer,
    header_key_validity: Buffer,
    header_value_offsets: Ints,
    header_value_data: Buffer,
    header_value_validity: Buffer,
    timestamps: Ints,
    order: Ints,
    start: int,
    stop: int,
    bytes_max: int,
    sizes: Ints,
) -> tuple[int, int]:
    """The number of bytes that the rows [start, stop) take as records; writes the size of each into `sizes`.

    With an `order`, the rows are those named by its places [start, stop). Stops before the row that would raise the
    sum above `bytes_max`, but counts at least one. A column with empty offsets is null in all rows. Returns the place
    after the last one counted and the sum; or -1 and the row that does not lie in its columns.
    """
    has_order = len(order) > 0
    rows = len(timestamps) if has_order else stop
    if start < 0 or stop < start or rows > len(timestamps) or stop - start > len(sizes):
        return -1, start
    if has_order and stop > len(order):
        return -1, start
    if _is_short(key_offsets, key_validity, rows) or _is_short(value_offsets, value_validity, rows):
        return -1, start
    has_headers = len(list_offsets) > 0
    if has_headers and (rows >= len(list_offsets) or len(header_key_validity) > 0):
        return -1, start
    total = first = 0
    for place in range(start, stop):
        row = order[place] if has_order else place
        if row < 0 or row >= rows:
            return -1, row
        if place == start:
            first = timestamps[row]
        if _difference_overflows(timestamps[row], first):
            return -1, row
        size = 1 + _varint_size(timestamps[row] - first) + _varint_size(place - start)
        size = _with_field(size, _length_at(key_offsets, len(key_data), key_validity, row))
        size = _with_field(size, _length_at(value_offsets, len(value_data), value_validity, row))
        headers = 1
        if has_headers:
            headers = _headers_size(
                header_key_offsets, len(header_key_data), header_key_validity, header_value_offsets,
                len(header_value_data), header_value_validity, list_offsets[row], list_offsets[row + 1],
            )  # fmt: skip
        if size < 0 or headers < 0 or size + headers > _INT32_MAX - 5:
            return -1, row
        size += headers
        whole = size + _varint_size(size)
        if place > start and total + whole > bytes_max:
            return place, total
        sizes[place - start] = size
        total += whole
    return stop, total


def _put_field(out: Out, pos: int, offsets: Ints, data: Buffer, validity: Buffer, row: int) -> int:
    """Write a length and, unless null, the value; returns the position behind. The caller has checked the size."""
    length = _length_at(offsets, len(data), validity, row)
    pos = _put_varint(out, pos, length)
    if length > 0:
        _copy(out, pos, data, offsets[row], length)
        pos += length
    return pos


def build(
    key_offsets: Ints,
    key_data: Buffer,
    key_validity: Buffer,
    value_offsets: Ints,
    value_data: Buffer,
    value_validity: Buffer,
    list_offsets: Ints,
    header_key_offsets: Ints,
    header_key_data: Buffer,
    header_key_validity: Buffer,
    header_value_offsets: Ints,
    header_value_data: Buffer,
    header_value_validity: Buffer,
    timestamps: Ints,
    order: Ints,
    start: int,
    stop: int,
    sizes: Ints,
    out: Out,
    pos: int,
) -> tuple[int, int]:
    """Writes the rows [start, stop), of which `measure` has found the `sizes`, as records from `pos` on.

    Returns the position after them and the largest timestamp; the position is -1 if `out` is too small or a size is
    wrong. The caller guarantees that columns and order are those that were measured. Nothing else is taken on trust.
    """
    has_order = len(order) > 0
    max_timestamp = -_INT64_MAX - 1
    base = timestamps[order[start] if has_order else start]
    for place in range(start, stop):
        row = order[place] if has_order else place
        size = sizes[place - start]
        if size < 0 or pos < 0 or size + _varint_size(size) > len(out) - pos:
            return -1, 0
        pos = _put_varint(out, pos, size)
        end = pos + size
        out[pos] = 0
        pos = _put_varint(out, pos + 1, timestamps[row] - base)
        pos = _put_varint(out, pos, place - start)
        pos = _put_field(out, pos, key_offsets, key_data, key_validity, row)
        pos = _put_field(out, pos, value_offsets, value_data, value_validity, row)
        first = last = 0
        if len(list_offsets) > 0:
            first, last = list_offsets[row], list_offsets[row + 1]
        pos = _put_varint(out, pos, last - first)
        for header in range(first, last):
            pos = _put_field(out, pos, header_key_offsets, header_key_data, header_key_validity, header)
            pos = _put_field(out, pos, header_value_offsets, header_value_data, header_value_validity, header)
        if pos != end:
            return -1, 0
        if timestamps[row] > max_timestamp:
            max_timestamp = timestamps[row]
    return pos, max_timestamp


def _murmur2(data: Buffer, start: int, length: int) -> int:
    """Kafka's 32-bit hash of `data[start:start + length]`, unsigned. The caller compared it with the length."""
    mixed = (_MURMUR_SEED ^ length) & _UINT32_MAX
    pos = start
    for _ in range(length // 4):
        word = data[pos] | (data[pos + 1] << 8) | (data[pos + 2] << 16) | (data[pos + 3] << 24)
        word = (word * _MURMUR_FACTOR) & _UINT32_MAX
        word ^= word >> 24
        word = (word * _MURMUR_FACTOR) & _UINT32_MAX
        mixed = ((mixed * _MURMUR_FACTOR) & _UINT32_MAX) ^ word
        pos += 4
    rest = length & 3
    if rest == 3:
        mixed ^= data[pos + 2] << 16
    if rest >= 2:
        mixed ^= data[pos + 1] << 8
    if rest >= 1:
        mixed = ((mixed ^ data[pos]) * _MURMUR_FACTOR) & _UINT32_MAX
    mixed ^= mixed >> 13
    mixed = (mixed * _MURMUR_FACTOR) & _UINT32_MAX
    return mixed ^ (mixed >> 15)


def murmur2(data: Buffer) -> int:
    """Kafka's hash of a key, as Java's signed int."""
    mixed = _murmur2(data, 0, len(data))
    return mixed - _UINT32_MAX - 1 if mixed > _INT32_MAX else mixed


def partitions_of(
    offsets: Ints,
    data: Buffer,
    validity: Buffer,
    start: int,
    stop: int,
    partition_count: int,
    out: Ints,
) -> int:
    """Chooses the partition of each key of the rows [start, stop) as the Java producer does; -1 for a null key.

    Fills `out[0:stop - start]`. Returns the row that does not lie in its column, or -1 if there is none.
    """
    if start < 0 or stop < start or stop - start > len(out) or partition_count < 1:
        return start
    if _is_short(offsets, validity, stop):
        return start
    size = len(data)
    for row in range(start, stop):
        length = _length_at(offsets, size, validity, row)
        if length < -1:
            return row
        if length < 0:
            out[row - start] = -1
        else:
            out[row - start] = (_murmur2(data, offsets[row], length) & 0x7FFFFFFF) % partition_count
    return -1


def scatter(partitions: Ints, first_row: int, keyless: int, order: Ints, starts: Ints) -> int:
    """Sorts rows by the partitions that `partitions_of` chose, and keeps the order of rows within a partition.

    The first element of `partitions` belongs to row `first_row`; -1 stands for the partition `keyless`. `starts` must
    be zeros, with two elements more than there are partitions. Afterwards partition p has the rows
    `order[starts[p]:starts[p + 1]]`. Returns the row whose partition does not exist or has no room, or -1 if there is
    none.
    """
    count = len(starts) - 2
    if first_row < 0 or first_row > _INT32_MAX - len(partitions):
        return 0
    if len(order) < len(partitions) or keyless < 0 or keyless >= count:
        return first_row
    for index in range(len(partitions)):
        partition = partitions[index] if partitions[index] != -1 else keyless
        if partition < 0 or partition >= count:
            return first_row + index
        starts[partition + 2] += 1
    for partition in range(2, count + 2):
        starts[partition] += starts[partition - 1]
    for index in range(len(partitions)):
        partition = partitions[index] if partitions[index] != -1 else keyless
        to = starts[partition + 1]
        if to < 0 or to >= len(order):
            return first_row + index
        order[to] = first_row + index
        starts[partition + 1] = to + 1
    return -1


def room(size: int) -> bytearray:
    """A buffer of uninitialized bytes, all of which the caller must overwrite."""
    if cython.compiled:
        unset: bytearray = PyByteArray_FromStringAndSize(cython.NULL, size)
        return unset
    return bytearray(size)
