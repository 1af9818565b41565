# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: annotation_typing=False, binding=False
"""The plain Produce as an array of integers: where its parts lie in the buffer of received bytes, and its answer.

It reads what `plain_produce` reads, in the same format, and writes the same answer, for requests of at most `ROWS_MAX`
batches. No object is made: the request stays where it was received, and the array has the places of its parts:

    head   API version | correlation id | number of topics | upper bound of the answer's size | acks | timeout in ms
           | end of the header
    rows   for each batch: start and end of its topic | number of batches of the topic, in the first one's row, else 0
           | index | start and end of the records | base offset and log start offset, which the caller fills in

Before version 13 the topic is a name, in ASCII, from then on an id. The module also runs uncompiled.
"""

from __future__ import annotations

from array import array
from typing import TypeAlias

from headrace.octets import Buffer
from headrace.protocol.plain_produce import VERSION_MAX, VERSION_MIN

try:
    import cython
except ImportError:
    from headrace import uncompiled as cython

if not cython.compiled:
    from headrace.octets import int16_at, int32_at, is_ascii, length_at, put16, put32, put64, put_length

Ints: TypeAlias = "array[int] | memoryview"

API_VERSION, CORRELATION_ID, TOPICS, ANSWER_BYTES, ACKS, TIMEOUT_MS, HEADER_END, HEAD_FIELDS = range(8)
TOPIC_AT, TOPIC_END, OF_TOPIC, INDEX, RECORDS_AT, RECORDS_END, BASE_OFFSET, LOG_START, ROW_FIELDS = range(9)
"""The places in the head and in a row, and the number of them."""

ROWS_MAX = 128
PLACES = HEAD_FIELDS + ROWS_MAX * ROW_FIELDS
"""The size of the array."""

_VERSION, _CORRELATION, _TOPICS, _ANSWER_BYTES, _ACKS, _TIMEOUT, _HEADER_END = 0, 1, 2, 3, 4, 5, 6  # as C integers
_TOPIC_AT, _TOPIC_END, _OF_TOPIC, _INDEX, _RECORDS_AT, _RECORDS_END, _BASE_OFFSET, _LOG_START = 0, 1, 2, 3, 4, 5, 6, 7
_HEAD_FIELDS, _ROW_FIELDS, _ROWS_MAX = HEAD_FIELDS, ROW_FIELDS, ROWS_MAX
_MIN, _MAX = VERSION_MIN, VERSION_MAX
_LOG_START_FROM, _MESSAGES_FROM, _FLEXIBLE_FROM, _IDS_FROM = 5, 8, 9, 13
_REQUEST_BYTES_MIN, _UUID_BYTES = 30, 16
_ANSWER_HEAD_BYTES, _ANSWER_TOPIC_BYTES, _ANSWER_ROW_BYTES = 24, 12, 40  # at most; a topic's without its name


def read_produce_places(buf: Buffer, pos: int, end: int, found: Ints) -> int:
    """Fills `found`, of `PLACES`, if `buf[pos:end]` is a plain Produce. Returns the number of its batches, else 0."""
    if cython.compiled:
        return read_places(cython.address(buf[0]), pos, end, cython.address(found[0]))
    return read_places(buf, pos, end, found)


def _read_head(buf: Buffer, pos: int, end: int, found: Ints) -> int:
    """Reads what is before the topics. Returns their position, or 0 if the request is not plain."""
    if end - pos < _REQUEST_BYTES_MIN or buf[pos] or buf[pos + 1]:
        return 0
    version = int16_at(buf, pos + 2)
    if version < _MIN or version > _MAX:
        return 0
    is_flexible = version >= _FLEXIBLE_FROM
    found[_VERSION], found[_CORRELATION] = version, int32_at(buf, pos + 4)
    length, pos = length_at(buf, pos + 8, end, 2)
    if length > 0:
        if length > end - pos or not is_ascii(buf, pos, pos + length):
            return 0
        pos += length
    elif length < -1:
        return 0
    if is_flexible:
        if pos >= end or buf[pos]:  # tagged fields of the header
            return 0
        pos += 1
    found[_HEADER_END] = pos
    length, pos = length_at(buf, pos, end, 0 if is_flexible else 2)  # the transactional id
    if pos < 0 or length != -1 or end - pos < 6:
        return 0
    acks = int16_at(buf, pos)
    if acks != 1 and acks != -1:
        return 0
    found[_ACKS], found[_TIMEOUT] = acks, int32_at(buf, pos + 2)
    return pos + 6


def read_places(buf: Buffer, pos: int, end: int, found: Ints) -> int:
    """The same, for compiled callers."""
    pos = _read_head(buf, pos, end, found)
    if not pos:
        return 0
    version = found[_VERSION]
    is_flexible = version >= _FLEXIBLE_FROM
    string_width, array_width = (0, 0) if is_flexible else (2, 4)
    topics, pos = length_at(buf, pos, end, array_width)
    if pos < 0 or topics < 1 or topics > _ROWS_MAX:
        return 0
    found[_TOPICS], answer_bytes = topics, _ANSWER_HEAD_BYTES
    count, row = 0, _HEAD_FIELDS
    while topics:
        topics -= 1
        if version >= _IDS_FROM:
            topic_at, pos = pos, pos + _UUID_BYTES
            if pos > end:
                return 0
        else:
            length, topic_at = length_at(buf, pos, end, string_width)
            if topic_at < 0 or length < 1 or length > end - topic_at:
                return 0
            pos = topic_at + length
            if not is_ascii(buf, topic_at, pos):
                return 0
        topic_end = pos
        answer_bytes += topic_end - topic_at + _ANSWER_TOPIC_BYTES
        of_topic, pos = length_at(buf, pos, end, array_width)
        if pos < 0 or of_topic < 1 or of_topic > _ROWS_MAX - count:
            return 0
        count += of_topic
        answer_bytes += of_topic * _ANSWER_ROW_BYTES
        found[row + _OF_TOPIC], left = of_topic, of_topic
        while left:
            if end - pos < 4:
                return 0
            length, start = length_at(buf, pos + 4, end, array_width)
            if start < 0 or length < 1 or length > end - start:
                return 0
            found[row + _TOPIC_AT], found[row + _TOPIC_END], found[row + _INDEX] = (
                topic_at,
                topic_end,
                int32_at(buf, pos),
            )
            pos = start + length
            found[row + _RECORDS_AT], found[row + _RECORDS_END] = start, pos
            if is_flexible:
                if pos >= end or buf[pos]:
                    return 0
                pos += 1
            row += _ROW_FIELDS
            left -= 1
            if left:
                found[row + _OF_TOPIC] = 0
        if is_flexible:
            if pos >= end or buf[pos]:
                return 0
            pos += 1
    if is_flexible:
        if pos >= end or buf[pos]:
            return 0
        pos += 1
    if pos != end:
        return 0
    found[_ANSWER_BYTES] = answer_bytes
    return count


def write_placed_answer(buf: Buffer, found: Ints, count: int, out: memoryview, start: int = 0) -> int:
    """Writes the whole frame that answers the request in `buf` with these places, of which every batch was appended.

    It goes to `out[start:]`, which has room for as many bytes as the head tells. Returns the frame's end."""
    if cython.compiled:
        return write_answer(cython.address(buf[0]), cython.address(found[0]), count, cython.address(out[0]), start)
    return write_answer(buf, found, count, out, start)


def write_answer(buf: Buffer, found: Ints, count: int, out: memoryview, start: int) -> int:
    """The same, for compiled callers."""
    version = found[_VERSION]
    is_flexible = version >= _FLEXIBLE_FROM
    string_width, array_width = (0, 0) if is_flexible else (2, 4)
    pos = put32(out, start + 4, found[_CORRELATION])
    if is_flexible:
        out[pos] = 0
        pos += 1
    pos = put_length(out, pos, found[_TOPICS], array_width)
    row = _HEAD_FIELDS
    while count:
        left, at, topic_end = found[row + _OF_TOPIC], found[row + _TOPIC_AT], found[row + _TOPIC_END]
        if version < _IDS_FROM:
            pos = put_length(out, pos, topic_end - at, string_width)
        while at < topic_end:
            out[pos] = buf[at]
            at += 1
            pos += 1
        pos = put_length(out, pos, left, array_width)
        count -= left
        while left:
            pos = put16(out, put32(out, pos, found[row + _INDEX]), 0)
            pos = put64(out, put64(out, pos, found[row + _BASE_OFFSET]), -1)
            if version >= _LOG_START_FROM:
                pos = put64(out, pos, found[row + _LOG_START])
            if is_flexible:  # no record errors, no message, no tags
                out[pos], out[pos + 1], out[pos + 2] = 1, 0, 0
                pos += 3
            elif version >= _MESSAGES_FROM:
                pos = put16(out, put32(out, pos, 0), -1)
            row += _ROW_FIELDS
            left -= 1
        if is_flexible:
            out[pos] = 0
            pos += 1
    pos = put32(out, pos, 0)  # the throttle time
    if is_flexible:
        out[pos] = 0
        pos += 1
    put32(out, start, pos - start - 4)
    return pos
