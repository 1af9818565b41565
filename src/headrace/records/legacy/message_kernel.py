# distutils: define_macros="CYTHON_INLINE=__inline__ __attribute__((always_inline))"
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: annotation_typing=False, binding=False
"""The compiled loops over single messages of formats 0 and 1, with the same rules as `format2.kernel`.

    entry:    offset int64 | size int32 | message
    message:  crc uint32 | magic int8 | attributes int8 | timestamp int64 (format 1 only)
              | key_length int32 (-1: null) | key | value_length int32 (-1: null) | value

This is plain Python. Cython compiles it with the C types in `message_kernel.pxd`. Uncompiled, it is the slow reference
of itself. So it uses only constructs with the same meaning in both: numbers that fit 64 bits, no exceptions, and no
slices except in `_copy` and `_crc32`. Each index is compared with the length of its buffer before it is used, since
compiled code does not check bounds.

Reading takes two passes: `survey` counts the messages, so that the columns can be allocated, and `fill` copies them.
Writing does too: `measure`, then `build`. A broker checks a produced set with `check` and assigns offsets with `place`.

CRC-32 (the polynomial of zlib) is computed from sixteen tables, sixteen bytes at a time, and on most processors of
x86-64 by carry-less multiplication before that (see `crc_folding.pxd`, the one piece of C). Source: Kafka's
LegacyRecord; Arrow's binary layout for the columns; Kounavis and Berry, "A Systematic Approach to Building High
Performance, Software-based, CRC Generators", Intel 2005.
"""

from __future__ import annotations

from array import array
from typing import TypeAlias
from zlib import crc32

try:
    import cython
except ImportError:
    from headrace import uncompiled as cython

if cython.compiled:
    from cython.cimports.cpython.bytearray import PyByteArray_FromStringAndSize
    from cython.cimports.headrace.records.codecs.crc_folding import crc_can_fold, crc_fold
    from cython.cimports.libc.string import memcpy

COMPILED: bool = cython.compiled
"""Whether this is the C version."""

Buffer: TypeAlias = "bytes | bytearray | memoryview"
Out: TypeAlias = "bytearray | memoryview"
Ints: TypeAlias = "array[int] | memoryview"

PROBLEMS = (
    "no problem",
    "it is incomplete, or its size is smaller than that of the smallest message",
    "its key and value are longer or shorter than its size",
    "its format differs from that of its message set",
    "it is a wrapper inside a wrapper",
    "its offset is not greater than that of the message before it",
    "it has no key, which messages of a compacted topic must have",
    "it does not match its CRC",
    "its timestamp is negative; only -1 (no timestamp) is allowed",
    "its timestamp type is LogAppendTime, which only a broker may set",
    "the set has more messages than were counted",
    "it is larger than max.message.bytes",
)
_CUT_OFF = 1
_BAD_FIELD = 2
_BAD_MAGIC = 3
_NESTED = 4
_BAD_OFFSET = 5
_NO_KEY = 6
_BAD_CRC = 7
_BAD_TIMESTAMP = 8
_BAD_TYPE = 9
_TOO_MANY = 10
_TOO_LARGE = 11

NESTED = 4
BAD_CRC = 7
BAD_TIMESTAMP = 8
BAD_TYPE = 9
TOO_LARGE = 11

AT_WRAPPER = -1
AT_OFFSET = -3
"""Why `survey` stopped, where that is no problem: before a wrapper, or at `to_offset`. Its other
reasons, which nobody asks about: 0 at the end or a cut-off entry, -2 before format 2, -4 at `max_rows` or
`stop_pos`."""
_AT_WRAPPER = -1
_AT_OTHER_FORMAT = -2
_AT_OFFSET = -3
_AT_LIMIT = -4

_INT32_MAX = 0x7FFFFFFF
_INT64_MAX = 0x7FFFFFFFFFFFFFFF
_UINT32_MAX = 0xFFFFFFFF
_UINT64_MAX = 0xFFFFFFFFFFFFFFFF
_CRC_POLYNOMIAL = 0xEDB88320  # reflected

if not cython.compiled:
    _TABLES = [0] * 4096


def _make_tables() -> None:
    """Sixteen tables of 256 entries: table k has the effect of a byte on a CRC when k more bytes follow it."""
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (_CRC_POLYNOMIAL if crc & 1 else 0)
        _TABLES[byte] = crc
    for at in range(256, 4096):
        _TABLES[at] = (_TABLES[at - 256] >> 8) ^ _TABLES[_TABLES[at - 256] & 0xFF]


def _can_fold() -> bool:
    """Whether the processor multiplies without carries, and there is a compiled form to make it."""
    if cython.compiled:
        return bool(crc_can_fold())
    return False


if cython.compiled:
    _make_tables()
_CAN_FOLD = _can_fold()


def unwritten(size: int) -> bytearray:
    """A buffer of `size` bytes, all of which the caller must write; if compiled, they are uninitialized."""
    if cython.compiled:
        room: bytearray = PyByteArray_FromStringAndSize(cython.NULL, size)
        return room
    return bytearray(size)


def _word(buf: Buffer, pos: int) -> int:
    """Four bytes, little-endian. The caller has compared `pos` with the length."""
    word = buf[pos + 3]
    word = (word << 8) | buf[pos + 2]
    word = (word << 8) | buf[pos + 1]
    return (word << 8) | buf[pos]


def _after_sixteen(one: int, two: int, three: int, four: int) -> int:
    """The CRC after sixteen bytes, of which the CRC before them was added to the first four."""
    return (
        _TABLES[3840 + (one & 0xFF)] ^ _TABLES[3584 + ((one >> 8) & 0xFF)]
        ^ _TABLES[3328 + ((one >> 16) & 0xFF)] ^ _TABLES[3072 + (one >> 24)]
        ^ _TABLES[2816 + (two & 0xFF)] ^ _TABLES[2560 + ((two >> 8) & 0xFF)]
        ^ _TABLES[2304 + ((two >> 16) & 0xFF)] ^ _TABLES[2048 + (two >> 24)]
        ^ _TABLES[1792 + (three & 0xFF)] ^ _TABLES[1536 + ((three >> 8) & 0xFF)]
        ^ _TABLES[1280 + ((three >> 16) & 0xFF)] ^ _TABLES[1024 + (three >> 24)]
        ^ _TABLES[768 + (four & 0xFF)] ^ _TABLES[512 + ((four >> 8) & 0xFF)]
        ^ _TABLES[256 + ((four >> 16) & 0xFF)] ^ _TABLES[four >> 24]
    )  # fmt: skip


def _crc32(buf: Buffer, pos: int, end: int, folding: bool) -> int:
    """CRC-32 of `buf[pos:end]`, by tables unless `folding`. The caller has compared both with the length."""
    if not cython.compiled:
        return crc32(buf[pos:end])
    crc = _UINT32_MAX
    if folding and end - pos >= 16:
        high = 0
        low = crc_fold(cython.address(buf[pos]), end - pos, crc, cython.address(high))
        crc = _after_sixteen(low & _UINT32_MAX, low >> 32, high & _UINT32_MAX, high >> 32)
        return crc ^ _UINT32_MAX
    while end - pos >= 16:
        crc = _after_sixteen(_word(buf, pos) ^ crc, _word(buf, pos + 4), _word(buf, pos + 8), _word(buf, pos + 12))
        pos += 16
    if end - pos >= 8:
        one = _word(buf, pos) ^ crc
        two = _word(buf, pos + 4)
        crc = (
            _TABLES[1792 + (one & 0xFF)] ^ _TABLES[1536 + ((one >> 8) & 0xFF)]
            ^ _TABLES[1280 + ((one >> 16) & 0xFF)] ^ _TABLES[1024 + (one >> 24)]
            ^ _TABLES[768 + (two & 0xFF)] ^ _TABLES[512 + ((two >> 8) & 0xFF)]
            ^ _TABLES[256 + ((two >> 16) & 0xFF)] ^ _TABLES[two >> 24]
        )  # fmt: skip
        pos += 8
    while pos < end:
        crc = (crc >> 8) ^ _TABLES[(crc ^ buf[pos]) & 0xFF]
        pos += 1
    return crc ^ _UINT32_MAX


def crc32_of(buf: Buffer, folding: bool) -> int:
    """CRC-32 of a buffer, an unsigned number, with or without the processor's help: for tests and measurements."""
    return _crc32(buf, 0, len(buf), folding and _CAN_FOLD)


def _uint32(buf: Buffer, pos: int) -> int:
    """An unsigned number of four bytes. The caller has compared `pos` with the length."""
    word = buf[pos]
    word = (word << 8) | buf[pos + 1]
    word = (word << 8) | buf[pos + 2]
    return (word << 8) | buf[pos + 3]


def _int32(buf: Buffer, pos: int) -> int:
    """A signed number of four bytes."""
    value = _uint32(buf, pos)
    if value > _INT32_MAX:
        value -= _UINT32_MAX + 1
    return value


def _int64(buf: Buffer, pos: int) -> int:
    """A signed number of eight bytes."""
    value = _uint32(buf, pos)
    value = (value << 32) | _uint32(buf, pos + 4)
    if value >> 63 == 0:
        return value
    inverted = _UINT64_MAX - value
    return -inverted - 1


def _put_int32(out: Out, pos: int, value: int) -> None:
    """Write the low four bytes of a number. The caller has checked the size."""
    out[pos] = (value >> 24) & 0xFF
    out[pos + 1] = (value >> 16) & 0xFF
    out[pos + 2] = (value >> 8) & 0xFF
    out[pos + 3] = value & 0xFF


def _put_int64(out: Out, pos: int, value: int) -> None:
    """Write the low eight bytes of a number. The caller has checked the size."""
    _put_int32(out, pos, value >> 32)
    _put_int32(out, pos + 4, value)


def _copy(out: Out, at: int, buf: Buffer, start: int, size: int) -> None:
    """`out[at:at + size] = buf[start:start + size]`; the caller has compared both with their lengths."""
    if cython.compiled:
        if size > 0:
            memcpy(cython.address(out[at]), cython.address(buf[start]), size)
    else:
        out[at : at + size] = buf[start : start + size]


def _message(buf: Buffer, pos: int, end: int) -> tuple[int, int, int, int, int, int]:
    """The entry at `pos`: position behind it (or a problem, negated), magic, start and length of key and of value.

    For magic 2 and above, only the magic is checked.
    """
    if pos < 0 or end - pos < 26:
        return -_CUT_OFF, 0, 0, 0, 0, 0
    magic = buf[pos + 16]
    if magic > 1:
        return pos, magic, 0, 0, 0, 0
    size = _int32(buf, pos + 8)
    if size < 14 + magic * 8 or size > end - pos - 12:
        return -_CUT_OFF, magic, 0, 0, 0, 0
    end = pos + 12 + size
    key = pos + 22 + magic * 8
    key_length = _int32(buf, key - 4)
    if key_length < -1 or key_length > end - key - 4:
        return -_BAD_FIELD, magic, 0, 0, 0, 0
    value = key + 4
    if key_length > 0:
        value += key_length
    value_length = _int32(buf, value - 4)
    if value_length < -1 or (value_length if value_length > 0 else 0) != end - value:
        return -_BAD_FIELD, magic, 0, 0, 0, 0
    return end, magic, key, key_length, value, value_length


def survey(
    buf: Buffer,
    pos: int,
    end: int,
    magic: int,
    base_offset: int,
    last_offset: int,
    from_offset: int,
    to_offset: int,
    max_rows: int,
    stop_pos: int,
    check_crcs: bool,
) -> tuple[int, int, int, int, int, int, int, int]:
    """Counts the messages from `pos` on whose offsets, plus `base_offset`, lie in [from_offset, to_offset).

    With magic 0 or 1, the messages are those of a wrapper: all have that format, and they reach to `end`. With -1 they
    are a set. The count then stops before a wrapper, before format 2, before an incomplete entry, and at `to_offset`.
    If it has at least one message, it also stops after `max_rows`, and before a message that starts at or after
    `stop_pos`. Offsets must rise, and begin above `last_offset`.

    Returns the problem (0 or below: the reason to stop), the position after the last message counted, the number of
    rows, the bytes of keys, the number of null keys, the bytes of values, the number of null values, and the last
    offset.
    """
    rows = key_bytes = null_keys = value_bytes = null_values = 0
    if pos < 0 or end > len(buf) or end > _INT32_MAX or base_offset < 0:
        return _CUT_OFF, pos, 0, 0, 0, 0, 0, last_offset
    problem = 0
    while pos < end:
        after, found, _key, key_length, _value, value_length = _message(buf, pos, end)
        if after < 0:
            problem = -after
            if magic < 0 and problem == _CUT_OFF:
                problem = 0
                size = _int32(buf, pos + 8) if end - pos >= 12 else _INT32_MAX
                if size < 14 or (end - pos > 16 and size < 14 + found * 8):
                    problem = _CUT_OFF
            break
        if found > 1 or buf[pos + 17] & 7 != 0:
            problem = _AT_OTHER_FORMAT if found > 1 else _AT_WRAPPER
            if magic >= 0:
                problem = _BAD_MAGIC if found != magic else _NESTED
            break
        if magic >= 0 and found != magic:
            problem = _BAD_MAGIC
            break
        offset = _int64(buf, pos)
        if offset < 0 or offset > _INT64_MAX - base_offset or base_offset + offset <= last_offset:
            problem = _BAD_OFFSET
            break
        offset += base_offset
        if magic < 0 and offset >= to_offset:
            problem = _AT_OFFSET
            break
        if magic < 0 and rows > 0 and (rows >= max_rows or pos >= stop_pos):
            problem = _AT_LIMIT
            break
        if check_crcs and _crc32(buf, pos + 16, after, _CAN_FOLD) != _uint32(buf, pos + 12):
            problem = _BAD_CRC
            break
        last_offset = offset
        pos = after
        if offset < from_offset or offset >= to_offset:
            continue
        rows += 1
        if key_length < 0:
            null_keys += 1
        else:
            key_bytes += key_length
        if value_length < 0:
            null_values += 1
        else:
            value_bytes += value_length
    return problem, pos, rows, key_bytes, null_keys, value_bytes, null_values, last_offset


def _put_row(buf: Buffer, start: int, length: int, row: int, offsets: Ints, data: Out, validity: Out) -> bool:
    """Copy a key or a value to its column. Returns whether it fitted."""
    to = offsets[row]
    if length >= 0:
        if to < 0 or length > len(data) - to:
            return False
        _copy(data, to, buf, start, length)
        to += length
        if len(validity) > 0:
            validity[row >> 3] |= 1 << (row & 7)
    offsets[row + 1] = to
    return True


def _is_short(offsets: Ints, validity: Buffer, rows: int) -> bool:
    """Whether a column that exists has no room for `rows`."""
    return len(offsets) > 0 and (rows >= len(offsets) or (len(validity) > 0 and rows > len(validity) * 8))


def fill(
    buf: Buffer,
    pos: int,
    end: int,
    base_offset: int,
    from_offset: int,
    to_offset: int,
    is_wrapped: bool,
    wrapper_is_append_time: bool,
    wrapper_timestamp: int,
    row: int,
    stop: int,
    offsets: Ints,
    timestamps: Ints,
    timestamp_types: Out,
    key_offsets: Ints,
    keys: Out,
    key_validity: Out,
    value_offsets: Ints,
    values: Out,
    value_validity: Out,
) -> tuple[int, int]:
    """Copies the messages that `survey` counted to the rows [row, stop) of columns.

    Columns with empty offsets are left out. Continues from `key_offsets[row]` and `value_offsets[row]`. Returns the
    problem (0: none) and the row after the last one.
    """
    if pos < 0 or end > len(buf) or row < 0 or stop < row:
        return _CUT_OFF, row
    if stop > len(offsets) or stop > len(timestamps) or stop > len(timestamp_types):
        return _TOO_MANY, row
    if _is_short(key_offsets, key_validity, stop) or _is_short(value_offsets, value_validity, stop):
        return _TOO_MANY, row
    has_keys = len(key_offsets) > 0
    has_values = len(value_offsets) > 0
    while pos < end:
        after, magic, key, key_length, value, value_length = _message(buf, pos, end)
        if after <= pos:
            return _CUT_OFF, row
        offset = _int64(buf, pos)
        if offset < 0 or offset > _INT64_MAX - base_offset:
            return _BAD_OFFSET, row
        offset += base_offset
        if offset >= from_offset and offset < to_offset:
            if row >= stop:
                return _TOO_MANY, row
            offsets[row] = offset
            if magic == 0:
                timestamps[row] = -1
            elif is_wrapped and wrapper_is_append_time:
                timestamps[row] = wrapper_timestamp
                timestamp_types[row] = 1
            else:
                timestamps[row] = _int64(buf, pos + 18)
                if not is_wrapped and buf[pos + 17] & 8 != 0:
                    timestamp_types[row] = 1
            if has_keys and not _put_row(buf, key, key_length, row, key_offsets, keys, key_validity):
                return _TOO_MANY, row
            if has_values and not _put_row(buf, value, value_length, row, value_offsets, values, value_validity):
                return _TOO_MANY, row
            row += 1
        pos = after
    return 0, row


def find_time(
    buf: Buffer,
    pos: int,
    end: int,
    magic: int,
    base_offset: int,
    last_offset: int,
    is_append_time: bool,
    append_time: int,
    from_offset: int,
    from_timestamp: int,
    messages_max: int,
) -> tuple[int, int, int, int, int]:
    """Finds the first of at most `messages_max` messages of a wrapper from `pos` on whose offset, plus `base_offset`,
    and timestamp are at or above the given ones. Offsets must rise, and begin above `last_offset`.

    With `is_append_time` all messages have that timestamp. Returns the problem (0: none), the position after the last
    message examined, its offset, and the offset (-1: not found) and timestamp found.
    """
    if pos < 0 or end > len(buf) or base_offset < 0:
        return _CUT_OFF, pos, last_offset, -1, 0
    while pos < end and messages_max > 0:
        after, found, _key, _key_length, _value, _value_length = _message(buf, pos, end)
        if after < 0:
            return -after, pos, last_offset, -1, 0
        if found != magic:
            return _BAD_MAGIC, pos, last_offset, -1, 0
        if buf[pos + 17] & 7 != 0:
            return _NESTED, pos, last_offset, -1, 0
        offset = _int64(buf, pos)
        if offset < 0 or offset > _INT64_MAX - base_offset or base_offset + offset <= last_offset:
            return _BAD_OFFSET, pos, last_offset, -1, 0
        last_offset = base_offset + offset
        timestamp = -1
        if magic > 0:
            timestamp = append_time if is_append_time else _int64(buf, pos + 18)
        pos = after
        if last_offset >= from_offset and timestamp >= from_timestamp:
            return 0, pos, last_offset, last_offset, timestamp
        messages_max -= 1
    return 0, pos, last_offset, -1, 0


def check(
    buf: Buffer, pos: int, end: int, magic: int, is_wrapped: bool, keys_required: bool, bytes_max: int
) -> tuple[int, int, int, int, int, int, bool]:
    """Checks the messages of a produced set or of a wrapper: all have format `magic`, none is compressed, and no entry
    is larger than `bytes_max`.

    Returns the problem (0: none), the number of messages (with a problem: the message that has it), the largest
    timestamp (-1: none) and the index of the first message that has it, the smallest timestamp other than -1 (-1:
    none), the last offset, and whether the offsets are 0, 1, 2…
    """
    count = 0
    max_timestamp = min_timestamp = max_at = last_offset = -1
    consecutive = True
    if pos < 0 or end > len(buf) or pos > end:
        return _CUT_OFF, 0, 0, 0, 0, 0, False
    while pos < end:
        after, found, _key, key_length, _value, _value_length = _message(buf, pos, end)
        if after < 0:
            return -after, count, 0, 0, 0, 0, False
        if found != magic:
            return _BAD_MAGIC, count, 0, 0, 0, 0, False
        attributes = buf[pos + 17]
        if attributes & 7 != 0:
            return _NESTED, count, 0, 0, 0, 0, False
        if after - pos > bytes_max:
            return _TOO_LARGE, count, 0, 0, 0, 0, False
        if _crc32(buf, pos + 16, after, _CAN_FOLD) != _uint32(buf, pos + 12):
            return _BAD_CRC, count, 0, 0, 0, 0, False
        if keys_required and key_length < 0:
            return _NO_KEY, count, 0, 0, 0, 0, False
        if attributes & 8 != 0 and not is_wrapped:
            return _BAD_TYPE, count, 0, 0, 0, 0, False
        if magic > 0:
            timestamp = _int64(buf, pos + 18)
            if timestamp < -1:
                return _BAD_TIMESTAMP, count, 0, 0, 0, 0, False
            if timestamp > max_timestamp:
                max_timestamp = timestamp
                max_at = count
            if timestamp >= 0 and (min_timestamp < 0 or timestamp < min_timestamp):
                min_timestamp = timestamp
        last_offset = _int64(buf, pos)
        if last_offset != count:
            consecutive = False
        count += 1
        pos = after
    return 0, count, max_timestamp, max_at, min_timestamp, last_offset, consecutive


def place(
    out: Out, pos: int, end: int, base_offset: int, attributes: int, is_append_time: bool, append_time: int
) -> tuple[int, int]:
    """Gives the messages between `pos` and `end` offsets from `base_offset` on and the given attributes, in place.

    With `is_append_time`, messages of format 1 also get that timestamp. A CRC is computed anew if its bytes have
    changed. Returns the problem (0: none) and the number of messages.
    """
    count = 0
    if pos < 0 or end > len(out) or pos > end:
        return _CUT_OFF, 0
    while pos < end:
        after, magic, _key, _key_length, _value, _value_length = _message(out, pos, end)
        if after <= pos:
            return _CUT_OFF, count
        _put_int64(out, pos, base_offset + count)
        changed = out[pos + 17] != attributes
        out[pos + 17] = attributes
        if magic > 0 and is_append_time and _int64(out, pos + 18) != append_time:
            _put_int64(out, pos + 18, append_time)
            changed = True
        if changed:
            _put_int32(out, pos + 12, _crc32(out, pos + 16, after, _CAN_FOLD))
        count += 1
        pos = after
    return 0, count


def _length_at(offsets: Ints, size: int, validity: Buffer, row: int) -> int:
    """Length of a column's value, -1: null, -2: its offsets do not lie in its data. The caller compared `row`."""
    if len(offsets) == 0 or (len(validity) > 0 and (validity[row >> 3] >> (row & 7)) & 1 == 0):
        return -1
    start = offsets[row]
    length = offsets[row + 1] - start
    if start < 0 or length < 0 or length > size - start:
        return -2
    return length


def measure(
    key_offsets: Ints,
    key_data: Buffer,
    key_validity: Buffer,
    value_offsets: Ints,
    value_data: Buffer,
    value_validity: Buffer,
    start: int,
    stop: int,
    overhead: int,
    bytes_max: int,
) -> tuple[int, int]:
    """The number of bytes that the rows [start, stop) take as entries of `overhead` bytes, a key and a value.

    Stops before the row that would raise the sum above `bytes_max`, but counts at least one. A column with empty
    offsets is null in all rows. Returns the row after the last one counted and the sum; or -1 and the row that does not
    lie in its columns.
    """
    if start < 0 or stop < start:
        return -1, start
    if _is_short(key_offsets, key_validity, stop) or _is_short(value_offsets, value_validity, stop):
        return -1, start
    total = 0
    for row in range(start, stop):
        key_length = _length_at(key_offsets, len(key_data), key_validity, row)
        value_length = _length_at(value_offsets, len(value_data), value_validity, row)
        if key_length < -1 or value_length < -1:
            return -1, row
        size = overhead
        if key_length > 0:
            size += key_length
        if value_length > 0:
            size += value_length
        if size > _INT32_MAX:
            return -1, row
        if row > start and total + size > bytes_max:
            return row, total
        total += size
    return stop, total


def _put_field(out: Out, pos: int, length: int, offsets: Ints, data: Buffer, row: int) -> int:
    """Write a length and, unless null, the value; returns the position behind. The caller has checked the size."""
    _put_int32(out, pos, length)
    pos += 4
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
    timestamps: Ints,
    offsets: Ints,
    start: int,
    stop: int,
    magic: int,
    attributes: int,
    base_offset: int,
    is_append_time: bool,
    append_time: int,
    out: Out,
    pos: int,
) -> tuple[int, int, int]:
    """Writes the rows [start, stop), which `measure` has measured, as entries of format `magic` from `pos` on.

    An entry's offset is `base_offset` plus the row's place among them, or, unless `offsets` is empty, the row's offset
    in it minus `base_offset`. With `is_append_time` all entries have that timestamp. Returns the problem (0: none), the
    position after the last entry (with a problem: the row that has it), and the largest timestamp.
    """
    max_timestamp = -1
    if pos < 0 or magic < 0 or magic > 1 or start < 0 or stop < start:
        return _BAD_MAGIC, start, 0
    if (magic > 0 and not is_append_time and stop > len(timestamps)) or (len(offsets) > 0 and stop > len(offsets)):
        return _TOO_MANY, start, 0
    if _is_short(key_offsets, key_validity, stop) or _is_short(value_offsets, value_validity, stop):
        return _TOO_MANY, start, 0
    last_offset = -1
    for row in range(start, stop):
        key_length = _length_at(key_offsets, len(key_data), key_validity, row)
        value_length = _length_at(value_offsets, len(value_data), value_validity, row)
        if key_length < -1 or value_length < -1:
            return _BAD_FIELD, row, 0
        size = 14 + magic * 8
        if key_length > 0:
            size += key_length
        if value_length > 0:
            size += value_length
        if size > len(out) - pos - 12:
            return _TOO_MANY, row, 0
        offset = base_offset + row - start
        if len(offsets) > 0:
            offset = offsets[row] - base_offset
        if offset <= last_offset:
            return _BAD_OFFSET, row, 0
        last_offset = offset
        _put_int64(out, pos, offset)
        _put_int32(out, pos + 8, size)
        at = pos + 16
        out[at] = magic
        out[at + 1] = attributes
        at += 2
        if magic > 0:
            timestamp = append_time
            if not is_append_time:
                timestamp = timestamps[row]
            if timestamp < -1:
                return _BAD_TIMESTAMP, row, 0
            if timestamp > max_timestamp:
                max_timestamp = timestamp
            _put_int64(out, at, timestamp)
            at += 8
        at = _put_field(out, at, key_length, key_offsets, key_data, row)
        at = _put_field(out, at, value_length, value_offsets, value_data, row)
        _put_int32(out, pos + 12, _crc32(out, pos + 16, at, _CAN_FOLD))
        pos = at
    return 0, pos, max_timestamp
