# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: annotation_typing=False, binding=False
"""A follower's next Fetch in its session, written from integers, and the plain answer, read into an array of them.

    request  begin_request | { put_topic | { put_partition } end_topic } end_request
    answer   no error, no diverging epoch, no aborted transaction, no other tagged field; each partition in a row

Versions 15 to 18, in which both have one layout. No object is made: the answer stays in the buffer of received bytes,
and the rows have the places of its parts. Any other answer gives -1, also one that is malformed. The module also runs
uncompiled. `plain_fetch` is the leader's side.
"""

from __future__ import annotations

from array import array
from typing import Any, TypeAlias

try:
    import cython
except ImportError:
    from headrace import uncompiled as cython

if not cython.compiled:
    from headrace.octets import int32_at, int64_at, length_at, put32, put64, put_varint

Buffer: TypeAlias = "bytes | bytearray | memoryview"
Ints: TypeAlias = "array[int] | memoryview"

VERSION_MIN, VERSION_MAX = 15, 18

TOPIC_AT, INDEX, HIGH_WATERMARK, LOG_START, RECORDS_AT, RECORDS_END, ROW_FIELDS = range(7)
"""The places of a partition's fields in its row, and their number."""

PARTITIONS_MAX = 64
"""The number of rows: an answer with more partitions is not plain."""

HEAD_BYTES, TOPIC_BYTES, PARTITION_BYTES, END_BYTES = 64, 24, 33, 20
"""The largest sizes of a request's beginning without the client id, of a topic, of a partition and of the end."""

NOT_PLAIN = -1

_TOPIC_AT, _INDEX, _HIGH, _LOG_START, _RECORDS_AT, _RECORDS_END, _ROW_FIELDS = range(7)
_ROWS_MAX, _NOT_PLAIN = PARTITIONS_MAX, -1
_FETCH, _UUID_BYTES, _HEAD_BYTES, _FIXED_BYTES, _COMPACT = 1, 16, 15, 30, 0
_REPLICA_TAG, _REPLICA_STATE_BYTES = 1, 13


def read_answer(buf: Buffer, pos: int, end: int, session_id: int, rows: Ints) -> int:
    """The number of partitions in the plain answer `buf[pos:end]` of this session, or `NOT_PLAIN`. Fills a row for
    each."""
    octets: Any = cython.address(buf[0]) if cython.compiled else buf
    if end - pos < _HEAD_BYTES + 2 or buf[pos + 4] or buf[pos + 9] or buf[pos + 10]:  # tagged fields, error
        return _NOT_PLAIN
    if int32_at(octets, pos + 11) != session_id:
        return _NOT_PLAIN
    topics, pos = length_at(octets, pos + _HEAD_BYTES, end, _COMPACT)
    if pos < 0 or topics < 0 or topics > _ROWS_MAX:
        return _NOT_PLAIN
    count, row = 0, 0
    while topics:
        topics -= 1
        topic_at = pos
        pos += _UUID_BYTES
        if pos > end:
            return _NOT_PLAIN
        partitions, pos = length_at(octets, pos, end, _COMPACT)
        if pos < 0 or partitions < 1 or partitions > _ROWS_MAX - count:
            return _NOT_PLAIN
        count += partitions
        while partitions:
            partitions -= 1
            if end - pos < _FIXED_BYTES or buf[pos + 4] or buf[pos + 5]:  # error
                return _NOT_PLAIN
            rows[row + _TOPIC_AT], rows[row + _INDEX] = topic_at, int32_at(octets, pos)
            rows[row + _HIGH], rows[row + _LOG_START] = int64_at(octets, pos + 6), int64_at(octets, pos + 22)
            aborted, pos = length_at(octets, pos + _FIXED_BYTES, end, _COMPACT)
            if pos < 0 or aborted > 0:
                return _NOT_PLAIN
            size, pos = length_at(octets, pos + 4, end, _COMPACT)  # behind the preferred read replica
            if pos < 0 or pos >= end or size >= end - pos:
                return _NOT_PLAIN
            rows[row + _RECORDS_AT] = pos
            if size > 0:
                pos += size
            rows[row + _RECORDS_END] = pos
            if buf[pos]:  # tagged fields: a diverging epoch, another leader
                return _NOT_PLAIN
            pos += 1
            row += _ROW_FIELDS
        if pos >= end or buf[pos]:
            return _NOT_PLAIN
        pos += 1
    return count if end - pos == 1 and not buf[pos] else _NOT_PLAIN


def _put_bytes(out: memoryview, pos: int, octets: bytes) -> int:
    at = 0
    while at < len(octets):
        out[pos + at] = octets[at]
        at += 1
    return pos + at


def begin_request(
    version: int,
    correlation_id: int,
    client_id: bytes,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    session_id: int,
    session_epoch: int,
    topics: int,
    out: memoryview,
) -> int:
    """Writes a request's beginning to `out`, with a place for its size. Returns the position behind it."""
    to: Any = cython.address(out[0]) if cython.compiled else out
    out[4], out[5], out[6], out[7] = 0, _FETCH, 0, version
    pos = put32(to, 8, correlation_id)
    out[pos], out[pos + 1] = len(client_id) >> 8 & 0xFF, len(client_id) & 0xFF
    pos = _put_bytes(out, pos + 2, client_id)
    out[pos] = 0  # tagged fields of the header
    pos = put32(to, put32(to, put32(to, pos + 1, max_wait_ms), min_bytes), max_bytes)
    out[pos] = 0  # read uncommitted
    pos = put32(to, put32(to, pos + 1, session_id), session_epoch)
    return put_varint(to, pos, topics + 1)


def put_topic(topic_id: bytes, partitions: int, out: memoryview, pos: int) -> int:
    """Writes the beginning of a topic."""
    to: Any = cython.address(out[0]) if cython.compiled else out
    return put_varint(to, _put_bytes(out, pos, topic_id), partitions + 1)


def put_partition(
    index: int,
    leader_epoch: int,
    fetch_offset: int,
    last_epoch: int,
    log_start: int,
    max_bytes: int,
    out: memoryview,
    pos: int,
) -> int:
    """Writes a partition."""
    to: Any = cython.address(out[0]) if cython.compiled else out
    pos = put64(to, put32(to, put32(to, pos, index), leader_epoch), fetch_offset)
    pos = put32(to, put64(to, put32(to, pos, last_epoch), log_start), max_bytes)
    out[pos] = 0
    return pos + 1


def end_topic(out: memoryview, pos: int) -> int:
    """Writes the tagged fields that end a topic."""
    out[pos] = 0
    return pos + 1


def end_request(replica_id: int, replica_epoch: int, out: memoryview, pos: int) -> int:
    """Writes the end, and the size of the request. Returns the end."""
    to: Any = cython.address(out[0]) if cython.compiled else out
    out[pos], out[pos + 1] = 1, 1  # no forgotten topic, no rack
    out[pos + 2], out[pos + 3], out[pos + 4] = 1, _REPLICA_TAG, _REPLICA_STATE_BYTES
    pos = put64(to, put32(to, pos + 5, replica_id), replica_epoch)
    out[pos] = 0
    put32(to, 0, pos - 3)
    return pos + 1
