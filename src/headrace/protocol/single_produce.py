# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: annotation_typing=False, binding=False
"""The plain Produce of one partition: its fields in an array of integers, and its answer.

A part of what `plain_produce` reads, in the same format, for the most frequent request of all. No object is made: the
request stays in the buffer of received bytes, and the array has the places of its parts. The module also runs
uncompiled.
"""

from __future__ import annotations

from array import array
from typing import TypeAlias

from headrace.protocol.plain_produce import VERSION_MAX, VERSION_MIN

Buffer: TypeAlias = "bytes | bytearray | memoryview"
Ints: TypeAlias = "array[int] | memoryview"

API_VERSION, CORRELATION_ID, ACKS, TOPIC_AT, TOPIC_END, INDEX, RECORDS_AT, RECORDS_END, REQUEST_FIELDS = range(9)
"""The places of a request's fields in the array, and their number. Before version 13 the topic is a name, in ASCII,
from then on an id."""

_VERSION, _CORRELATION, _ACKS, _TOPIC_AT, _TOPIC_END, _INDEX, _RECORDS_AT, _RECORDS_END = 0, 1, 2, 3, 4, 5, 6, 7
_MIN, _MAX = VERSION_MIN, VERSION_MAX
_LOG_START_FROM, _MESSAGES_FROM, _FLEXIBLE_FROM, _IDS_FROM = 5, 8, 9, 13
_REQUEST_BYTES_MIN, _UUID_BYTES, _VARINT_BITS_MAX = 30, 16, 28

ANSWER_BYTES = 64
"""The largest size of an answer without the topic."""


def _int16(buf: Buffer, pos: int) -> int:
    value = buf[pos] << 8 | buf[pos + 1]
    return value - 0x10000 if value >= 0x8000 else value


def _int32(buf: Buffer, pos: int) -> int:
    first = buf[pos]
    value = first << 24 | buf[pos + 1] << 16 | buf[pos + 2] << 8 | buf[pos + 3]
    return value - 0x100000000 if value >= 0x80000000 else value


def _length_at(buf: Buffer, pos: int, end: int, width: int) -> tuple[int, int]:
    """A length of `width` bytes (0: compact) and the position behind it; position -1 if it is cut off."""
    if width:
        if end - pos < width:
            return 0, -1
        return (_int16(buf, pos) if width == 2 else _int32(buf, pos)), pos + width
    value, shift = 0, 0
    while pos < end and shift <= _VARINT_BITS_MAX:
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value - 1, pos
        shift += 7
    return 0, -1


def _is_ascii(buf: Buffer, pos: int, end: int) -> bool:
    while pos < end:
        if buf[pos] >= 0x80:
            return False
        pos += 1
    return True


def read_single_produce(buf: Buffer, pos: int, end: int, found: Ints) -> bool:
    """Whether `buf[pos:end]` is a plain Produce of one partition. Fills `found`: see `API_VERSION` and those behind."""
    if end - pos < _REQUEST_BYTES_MIN or buf[pos] or buf[pos + 1]:
        return False
    version = _int16(buf, pos + 2)
    if version < _MIN or version > _MAX:
        return False
    is_flexible = version >= _FLEXIBLE_FROM
    string_width, array_width = (0, 0) if is_flexible else (2, 4)
    found[_VERSION], found[_CORRELATION] = version, _int32(buf, pos + 4)
    length, pos = _length_at(buf, pos + 8, end, 2)
    if length > 0:
        if length > end - pos or not _is_ascii(buf, pos, pos + length):
            return False
        pos += length
    elif length < -1:
        return False
    if is_flexible:
        if pos >= end or buf[pos]:  # tagged fields of the header
            return False
        pos += 1
    length, pos = _length_at(buf, pos, end, string_width)
    if pos < 0 or length != -1 or end - pos < 6:
        return False
    acks = _int16(buf, pos)
    if acks != 1 and acks != -1:
        return False
    topics, pos = _length_at(buf, pos + 6, end, array_width)
    if pos < 0 or topics != 1:
        return False
    if version >= _IDS_FROM:
        start, pos = pos, pos + _UUID_BYTES
        if pos > end:
            return False
    else:
        length, start = _length_at(buf, pos, end, string_width)
        if start < 0 or length < 1 or length > end - start or not _is_ascii(buf, start, start + length):
            return False
        pos = start + length
    found[_ACKS], found[_TOPIC_AT], found[_TOPIC_END] = acks, start, pos
    partitions, pos = _length_at(buf, pos, end, array_width)
    if pos < 0 or partitions != 1 or end - pos < 4:
        return False
    found[_INDEX] = _int32(buf, pos)
    length, start = _length_at(buf, pos + 4, end, array_width)
    if start < 0 or length < 1 or length > end - start:
        return False
    pos = start + length
    found[_RECORDS_AT], found[_RECORDS_END] = start, pos
    if is_flexible:  # tagged fields of the partition, the topic and the request
        return end - pos == 3 and not (buf[pos] | buf[pos + 1] | buf[pos + 2])
    return pos == end


def _put16(out: memoryview, pos: int, value: int) -> int:
    out[pos] = value >> 8 & 0xFF
    out[pos + 1] = value & 0xFF
    return pos + 2


def _put32(out: memoryview, pos: int, value: int) -> int:
    out[pos] = value >> 24 & 0xFF
    out[pos + 1] = value >> 16 & 0xFF
    out[pos + 2] = value >> 8 & 0xFF
    out[pos + 3] = value & 0xFF
    return pos + 4


def _put64(out: memoryview, pos: int, value: int) -> int:
    return _put32(out, _put32(out, pos, value >> 32), value)


def write_single_answer(
    buf: Buffer, fields: Ints, base_offset: int, log_start_offset: int, out: memoryview, start: int = 0
) -> int:
    """Writes the whole frame that answers the request in `buf` with these fields, whose batch was appended.

    It goes to `out[start:]`, which has room for `ANSWER_BYTES` and the topic's. Returns the frame's end."""
    version, at, topic_end = fields[_VERSION], fields[_TOPIC_AT], fields[_TOPIC_END]
    pos = _put32(out, start + 4, fields[_CORRELATION])
    if version >= _FLEXIBLE_FROM:
        out[pos], out[pos + 1] = 0, 2  # tags; one topic
        pos += 2
        if version < _IDS_FROM:
            length = topic_end - at + 1
            if length > 0x7F:
                out[pos] = length & 0x7F | 0x80
                length >>= 7
                pos += 1
            out[pos] = length
            pos += 1
    else:
        pos = _put16(out, _put32(out, pos, 1), topic_end - at)
    while at < topic_end:
        out[pos] = buf[at]
        at += 1
        pos += 1
    if version >= _FLEXIBLE_FROM:
        out[pos] = 2  # one partition
        pos += 1
    else:
        pos = _put32(out, pos, 1)
    pos = _put16(out, _put32(out, pos, fields[_INDEX]), 0)
    pos = _put64(out, _put64(out, pos, base_offset), -1)
    if version >= _LOG_START_FROM:
        pos = _put64(out, pos, log_start_offset)
    if version >= _FLEXIBLE_FROM:  # no record errors, no message, no tags; no tags of the topic
        pos = _put32(out, pos, 0x01000000)
        out[pos + 4] = 0  # the tags behind the throttle time
        pos = _put32(out, pos, 0) + 1
    else:
        if version >= _MESSAGES_FROM:
            pos = _put16(out, _put32(out, pos, 0), -1)
        pos = _put32(out, pos, 0)
    _put32(out, start, pos - start - 4)
    return pos
