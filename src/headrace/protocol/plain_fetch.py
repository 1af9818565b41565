# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: annotation_typing=False, binding=False
"""The plain Fetch of a consumer or a follower: its fields in arrays of integers, and the parts of its answer.

    request  client id in ASCII; no replica id, rack, forgotten topic or tagged field; topics in ASCII, or ids
             of a follower from version 15 on: one tagged field, its id and broker epoch
    answer   begin_fetch_answer | { put_topic | { put_partition | records | end_topic } end_topic } end_topic

No object is made: the request stays in the buffer of received bytes, and the arrays have the places of its parts. Any
other request gives -1, also one that is malformed. The module also runs uncompiled.
"""

from __future__ import annotations

from array import array
from typing import TypeAlias

from headrace.octets import Buffer

try:
    import cython
except ImportError:
    from headrace import uncompiled as cython

if not cython.compiled:
    from headrace.octets import int16_at, int32_at, int64_at, is_ascii, length_at, put16, put32, put64, put_length

Ints: TypeAlias = "array[int] | memoryview"

VERSION_MIN, VERSION_MAX = 4, 18

(
    API_VERSION, CORRELATION_ID, MAX_WAIT_MS, MIN_BYTES, MAX_BYTES, IS_COMMITTED_ONLY, SESSION_ID, SESSION_EPOCH,
    REPLICA_ID, REPLICA_EPOCH, REQUEST_FIELDS,
) = range(11)  # fmt: skip
"""The places of a request's fields in the first array, and their number. Only a follower's has the last two."""

(
    TOPIC_AT, TOPIC_END, INDEX, LEADER_EPOCH, OFFSET, LAST_EPOCH, LOG_START, PARTITION_MAX_BYTES, ROW_FIELDS,
) = range(9)  # fmt: skip
"""The places of a partition's fields in its row of the second array, and their number. Before version 13 the topic is a
name, in ASCII, from then on an id."""

PARTITIONS_MAX = 64
"""The number of rows: a request for more partitions is not plain."""

HEAD_BYTES, TOPIC_BYTES, PARTITION_BYTES = 32, 16, 64
"""The largest sizes of an answer's beginning, of a topic without its name, and of a partition without its records."""

NOT_PLAIN = -1

_VERSION, _CORRELATION, _MAX_WAIT, _MIN_BYTES, _MAX_BYTES, _COMMITTED, _SESSION_ID, _SESSION_EPOCH = range(8)
_TOPIC_AT, _TOPIC_END, _INDEX, _LEADER_EPOCH, _OFFSET, _LAST_EPOCH, _LOG_START, _PARTITION_MAX = range(8)
_ROW_FIELDS, _ROWS_MAX = 8, PARTITIONS_MAX
_MIN, _MAX, _NOT_PLAIN = VERSION_MIN, VERSION_MAX, -1
_LOG_START_FROM, _SESSIONS_FROM, _LEADER_EPOCHS_FROM, _RACK_FROM, _FLEXIBLE_FROM, _IDS_FROM = 5, 7, 9, 11, 12, 13
_NO_REPLICA_FROM = 15
_REQUEST_BYTES_MIN, _UUID_BYTES, _FETCH = 31, 16, 1
_REPLICA_ID, _REPLICA_EPOCH = 8, 9
_REPLICA_BYTES, _REPLICA_TAG, _REPLICA_STATE_BYTES = 16, 1, 13


def read_plain_fetch(buf: Buffer, pos: int, end: int, found: Ints, rows: Ints) -> int:
    """The number of partitions in the plain Fetch `buf[pos:end]` of a consumer, or `NOT_PLAIN`.

    Fills `found` (see `API_VERSION` and those behind), and for each partition a row of `rows` (see `TOPIC_AT`)."""
    return _read_fetch(cython.address(buf[0]) if cython.compiled else buf, pos, end, False, found, rows)


def is_of_follower(buf: Buffer, pos: int, end: int) -> bool:
    """Whether the Fetch `buf[pos:end]` ends as a follower's does. One of a consumer may do so too."""
    at = end - _REPLICA_BYTES
    return (
        at - pos >= _REQUEST_BYTES_MIN
        and buf[at] == 1  # tagged field
        and buf[at + 1] == _REPLICA_TAG
        and buf[at + 2] == _REPLICA_STATE_BYTES
        and not buf[end - 1]
        and not buf[pos + 2]
        and buf[pos + 3] >= _NO_REPLICA_FROM
    )


def read_follower_fetch(buf: Buffer, pos: int, end: int, found: Ints, rows: Ints) -> int:
    """As `read_plain_fetch`, of a follower that says its broker epoch: version 15 or later."""
    if not is_of_follower(buf, pos, end):
        return _NOT_PLAIN
    at, octets = end - _REPLICA_BYTES, cython.address(buf[0]) if cython.compiled else buf
    found[_REPLICA_ID], found[_REPLICA_EPOCH] = int32_at(octets, at + 3), int64_at(octets, at + 7)
    if found[_REPLICA_ID] < 0:
        return _NOT_PLAIN
    return _read_fetch(octets, pos, at, True, found, rows)


def _read_head(buf: Buffer, pos: int, end: int, found: Ints) -> int:
    """Reads what is before the topics. Returns their position, or `NOT_PLAIN`."""
    if end - pos < _REQUEST_BYTES_MIN or buf[pos] or buf[pos + 1] != _FETCH:
        return _NOT_PLAIN
    version = int16_at(buf, pos + 2)
    if version < _MIN or version > _MAX:
        return _NOT_PLAIN
    found[_VERSION], found[_CORRELATION] = version, int32_at(buf, pos + 4)
    length, pos = length_at(buf, pos + 8, end, 2)
    if length > 0:
        if length > end - pos or not is_ascii(buf, pos, pos + length):
            return _NOT_PLAIN
        pos += length
    elif length < -1:
        return _NOT_PLAIN
    if version >= _FLEXIBLE_FROM:
        if pos >= end or buf[pos]:  # tagged fields of the header
            return _NOT_PLAIN
        pos += 1
    fixed = 13
    if version < _NO_REPLICA_FROM:
        fixed += 4
    if version >= _SESSIONS_FROM:
        fixed += 8
    if end - pos < fixed:
        return _NOT_PLAIN
    if version < _NO_REPLICA_FROM:
        if int32_at(buf, pos) != -1:
            return _NOT_PLAIN
        pos += 4
    found[_MAX_WAIT], found[_MIN_BYTES], found[_MAX_BYTES] = (
        int32_at(buf, pos),
        int32_at(buf, pos + 4),
        int32_at(buf, pos + 8),
    )
    isolation = buf[pos + 12]
    if isolation > 1:
        return _NOT_PLAIN
    found[_COMMITTED] = isolation
    pos += 13
    found[_SESSION_ID], found[_SESSION_EPOCH] = 0, -1
    if version >= _SESSIONS_FROM:
        found[_SESSION_ID], found[_SESSION_EPOCH] = int32_at(buf, pos), int32_at(buf, pos + 4)
        pos += 8
    return pos


def _read_fetch(buf: Buffer, pos: int, end: int, is_follower: bool, found: Ints, rows: Ints) -> int:
    """The number of partitions. A follower's is read up to its tagged field."""
    pos = _read_head(buf, pos, end, found)
    if pos < 0:
        return _NOT_PLAIN
    version = found[_VERSION]
    is_flexible = version >= _FLEXIBLE_FROM
    string_width, array_width = (0, 0) if is_flexible else (2, 4)
    topics, pos = length_at(buf, pos, end, array_width)
    if pos < 0 or topics < 0 or topics > _ROWS_MAX:
        return _NOT_PLAIN
    count, row, row_bytes = 0, 0, 16
    if version >= _LOG_START_FROM:
        row_bytes += 8
    if version >= _LEADER_EPOCHS_FROM:
        row_bytes += 4
    if is_flexible:
        row_bytes += 5
    while topics:
        topics -= 1
        if version >= _IDS_FROM:
            start, pos = pos, pos + _UUID_BYTES
            if pos > end:
                return _NOT_PLAIN
        else:
            length, start = length_at(buf, pos, end, string_width)
            if start < 0 or length < 1 or length > end - start or not is_ascii(buf, start, start + length):
                return _NOT_PLAIN
            pos = start + length
        topic_end = pos
        partitions, pos = length_at(buf, pos, end, array_width)
        if pos < 0 or partitions < 1 or partitions > _ROWS_MAX - count or partitions * row_bytes > end - pos:
            return _NOT_PLAIN
        count += partitions
        while partitions:
            partitions -= 1
            rows[row + _TOPIC_AT], rows[row + _TOPIC_END], rows[row + _INDEX] = start, topic_end, int32_at(buf, pos)
            pos += 4
            rows[row + _LEADER_EPOCH] = rows[row + _LAST_EPOCH] = rows[row + _LOG_START] = -1
            if version >= _LEADER_EPOCHS_FROM:
                rows[row + _LEADER_EPOCH] = int32_at(buf, pos)
                pos += 4
            rows[row + _OFFSET] = int64_at(buf, pos)
            pos += 8
            if is_flexible:
                rows[row + _LAST_EPOCH] = int32_at(buf, pos)
                pos += 4
            if version >= _LOG_START_FROM:
                rows[row + _LOG_START] = int64_at(buf, pos)
                pos += 8
            rows[row + _PARTITION_MAX] = int32_at(buf, pos)
            pos += 4
            if is_flexible:
                if buf[pos]:
                    return _NOT_PLAIN
                pos += 1
            row += _ROW_FIELDS
        if is_flexible:
            if pos >= end or buf[pos]:
                return _NOT_PLAIN
            pos += 1
    if version >= _SESSIONS_FROM:
        length, pos = length_at(buf, pos, end, array_width)
        if pos < 0 or length:  # forgotten topics
            return _NOT_PLAIN
    if version >= _RACK_FROM:
        length, pos = length_at(buf, pos, end, string_width)
        if pos < 0 or length:
            return _NOT_PLAIN
    if is_flexible and not is_follower:
        if pos >= end or buf[pos]:
            return _NOT_PLAIN
        pos += 1
    return count if pos == end else _NOT_PLAIN


def begin_fetch_answer(fields: Ints, session_id: int, topics: int, out: memoryview, start: int) -> int:
    """Writes an answer's beginning to `out[start:]`, with a place for its size. Returns the position behind it."""
    version, to = fields[_VERSION], cython.address(out[0]) if cython.compiled else out
    pos = put32(to, start + 4, fields[_CORRELATION])
    if version >= _FLEXIBLE_FROM:
        to[pos] = 0
        pos += 1
    pos = put32(to, pos, 0)  # throttle time
    if version >= _SESSIONS_FROM:
        pos = put32(to, put16(to, pos, 0), session_id)
    return put_length(to, pos, topics, 0 if version >= _FLEXIBLE_FROM else 4)


def put_topic(fields: Ints, name: Buffer, at: int, end: int, partitions: int, out: memoryview, pos: int) -> int:
    """Writes the beginning of a topic: its name, or its id, in `name[at:end]`."""
    version, to = fields[_VERSION], cython.address(out[0]) if cython.compiled else out
    if version < _IDS_FROM:
        pos = put_length(to, pos, end - at, 0 if version >= _FLEXIBLE_FROM else 2)
    while at < end:
        to[pos] = name[at]
        at += 1
        pos += 1
    return put_length(to, pos, partitions, 0 if version >= _FLEXIBLE_FROM else 4)


def put_known_topic(fields: Ints, name: bytes, partitions: int, out: memoryview, pos: int) -> int:
    """As `put_topic`, of a name or an id that is an object of its own."""
    version, to = fields[_VERSION], cython.address(out[0]) if cython.compiled else out
    octets, at, size = name, 0, len(name)
    if version < _IDS_FROM:
        pos = put_length(to, pos, size, 0 if version >= _FLEXIBLE_FROM else 2)
    while at < size:
        to[pos] = octets[at]
        at += 1
        pos += 1
    return put_length(to, pos, partitions, 0 if version >= _FLEXIBLE_FROM else 4)


def end_topic(fields: Ints, out: memoryview, pos: int) -> int:
    """Writes the tags that end a partition, a topic or the answer."""
    if fields[_VERSION] < _FLEXIBLE_FROM:
        return pos
    out[pos] = 0
    return pos + 1


def put_partition(
    fields: Ints, index: int, high_watermark: int, stable: int, log_start: int, size: int, out: memoryview, pos: int
) -> int:
    """Writes a partition without an error, up to its `size` bytes of records. `stable`: the last stable offset."""
    version, to = fields[_VERSION], cython.address(out[0]) if cython.compiled else out
    array_width = 0 if version >= _FLEXIBLE_FROM else 4
    pos = put16(to, put32(to, pos, index), 0)
    pos = put64(to, put64(to, pos, high_watermark), stable)
    if version >= _LOG_START_FROM:
        pos = put64(to, pos, log_start)
    pos = put_length(to, pos, 0 if fields[_COMMITTED] else -1, array_width)  # aborted transactions: none, or null
    if version >= _RACK_FROM:
        pos = put32(to, pos, -1)  # no preferred replica
    return put_length(to, pos, size, array_width)


def end_fetch_answer(size: int, out: memoryview, start: int) -> None:
    """Writes the size of an answer that begins at `start`, without the size field."""
    put32(cython.address(out[0]) if cython.compiled else out, start, size)
