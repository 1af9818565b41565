# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: annotation_typing=False, binding=False
"""The plain requests of a group's member: their fields in arrays of integers, and their answers.

    Heartbeat                0-4    all texts in ASCII, no tagged fields
    ConsumerGroupHeartbeat   0-1    nothing but the group, the member, its instance and its epoch
    ShareGroupHeartbeat      1      nothing but the group, the member and its epoch
    OffsetCommit             2-10   no retention time; at most `PARTITIONS_MAX` partitions, by names in ASCII or by ids

No object is made: the request stays in the buffer of received bytes, and the arrays have the places of its parts. Any
other request is not plain, also one that is malformed. The module also runs uncompiled.
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
    from headrace.octets import int16_at, int32_at, int64_at, is_ascii, length_at, put16, put32, put_length

Ints: TypeAlias = "array[int] | memoryview"

(
    API_VERSION, CORRELATION_ID, CLIENT_AT, CLIENT_END, GROUP_AT, GROUP_END, EPOCH, MEMBER_AT, MEMBER_END, INSTANCE_AT,
    INSTANCE_END, REQUEST_FIELDS,
) = range(12)  # fmt: skip
"""The places of a request's fields in the first array, and their number. The client and the instance begin at -1 where
they are null. The epoch is the generation of a classic member."""

(
    TOPIC_AT, TOPIC_END, OF_TOPIC, INDEX, OFFSET, LEADER_EPOCH, METADATA_AT, METADATA_END, ROW_FIELDS,
) = range(9)  # fmt: skip
"""The places of a partition's fields in its row of the second array, and their number. The topic is a name, in ASCII,
or an id from version 10 on. Its first row has the number of its partitions, the others 0."""

PARTITIONS_MAX = 128
"""The number of rows: a commit of more partitions is not plain."""

NOT_PLAIN = -1

_VERSION, _CORRELATION, _CLIENT, _GROUP, _EPOCH, _MEMBER, _INSTANCE = 0, 1, 2, 4, 6, 7, 9
_TOPIC_AT, _TOPIC_END, _OF_TOPIC, _INDEX, _OFFSET, _LEADER_EPOCH, _METADATA_AT, _METADATA_END = range(8)
_ROW_FIELDS, _ROWS_MAX, _NOT_PLAIN = ROW_FIELDS, PARTITIONS_MAX, NOT_PLAIN
_HEARTBEAT, _CONSUMER_HEARTBEAT, _SHARE_HEARTBEAT, _COMMIT, _HEADER_BYTES, _UUID_BYTES = 12, 68, 76, 8, 10, 16
_HEARTBEAT_FLEXIBLE_FROM, _HEARTBEAT_INSTANCES_FROM, _HEARTBEAT_MAX = 4, 3, 4
_CONSUMER_REGEX_FROM, _CONSUMER_MAX, _SHARE_VERSION = 1, 1, 1
_COMMIT_MIN, _COMMIT_MAX, _COMMIT_RETENTION_TO, _COMMIT_EPOCHS_FROM, _COMMIT_INSTANCES_FROM = 2, 10, 4, 6, 7
_COMMIT_FLEXIBLE_FROM, _COMMIT_IDS_FROM, _COMMIT_THROTTLE_FROM = 8, 10, 3


def _text_at(buf: Buffer, pos: int, end: int, width: int) -> tuple[int, int]:
    """The place of a text whose length has `width` bytes: from -1 if it is null, to -1 if it is not plain."""
    length, pos = length_at(buf, pos, end, width)
    if pos < 0 or length < -1 or length > end - pos:
        return 0, -1
    if length < 0:
        return -1, pos
    if not is_ascii(buf, pos, pos + length):
        return 0, -1
    return pos, pos + length


def _read_header(buf: Buffer, pos: int, end: int, key: int, flexible_from: int, found: Ints) -> int:
    """The position behind the header of a request; -1 if it is not plain. The caller knows the versions."""
    if end - pos < _HEADER_BYTES or buf[pos] or buf[pos + 1] != key:
        return -1
    version = int16_at(buf, pos + 2)
    found[_VERSION], found[_CORRELATION] = version, int32_at(buf, pos + 4)
    start, pos = _text_at(buf, pos + 8, end, 2)
    found[_CLIENT], found[_CLIENT + 1] = start, pos
    if pos >= 0 and version >= flexible_from:
        if pos >= end or buf[pos]:  # tagged fields
            return -1
        pos += 1
    return pos


def _read_member(buf: Buffer, pos: int, end: int, is_flexible: bool, is_epoch_last: bool, found: Ints) -> int:
    """The position behind the group, the member and its epoch; -1 if they are not plain."""
    width = 0 if is_flexible else 2
    start, pos = _text_at(buf, pos, end, width)
    if start < 0 or pos < 0:
        return -1
    found[_GROUP], found[_GROUP + 1] = start, pos
    if not is_epoch_last:
        if end - pos < 4:
            return -1
        found[_EPOCH] = int32_at(buf, pos)
        pos += 4
    start, pos = _text_at(buf, pos, end, width)
    if start < 0 or pos < 0:
        return -1
    found[_MEMBER], found[_MEMBER + 1] = start, pos
    if is_epoch_last:
        if end - pos < 4:
            return -1
        found[_EPOCH] = int32_at(buf, pos)
        pos += 4
    return pos


def read_plain_heartbeat(buf: Buffer, pos: int, end: int, found: Ints) -> bool:
    """Whether `buf[pos:end]` is a plain Heartbeat. Fills `found` (see `API_VERSION` and those behind)."""
    return _read_heartbeat(cython.address(buf[0]) if cython.compiled else buf, pos, end, found)


def _read_heartbeat(buf: Buffer, pos: int, end: int, found: Ints) -> bool:
    pos = _read_header(buf, pos, end, _HEARTBEAT, _HEARTBEAT_FLEXIBLE_FROM, found)
    if pos < 0 or found[_VERSION] < 0 or found[_VERSION] > _HEARTBEAT_MAX:
        return False
    is_flexible = found[_VERSION] >= _HEARTBEAT_FLEXIBLE_FROM
    pos = _read_member(buf, pos, end, is_flexible, False, found)
    if pos < 0:
        return False
    found[_INSTANCE] = found[_INSTANCE + 1] = -1
    if found[_VERSION] >= _HEARTBEAT_INSTANCES_FROM:
        start, pos = _text_at(buf, pos, end, 0 if is_flexible else 2)
        if pos < 0:
            return False
        found[_INSTANCE], found[_INSTANCE + 1] = start, pos
    if is_flexible:
        return end - pos == 1 and not buf[pos]
    return pos == end


def read_plain_consumer_heartbeat(buf: Buffer, pos: int, end: int, found: Ints) -> bool:
    """As `read_plain_heartbeat`, of a ConsumerGroupHeartbeat."""
    return _read_consumer_heartbeat(cython.address(buf[0]) if cython.compiled else buf, pos, end, found)


def _read_consumer_heartbeat(buf: Buffer, pos: int, end: int, found: Ints) -> bool:
    pos = _read_header(buf, pos, end, _CONSUMER_HEARTBEAT, 0, found)
    if pos < 0 or found[_VERSION] < 0 or found[_VERSION] > _CONSUMER_MAX:
        return False
    pos = _read_member(buf, pos, end, True, True, found)
    if pos < 0:
        return False
    start, pos = _text_at(buf, pos, end, 0)
    found[_INSTANCE], found[_INSTANCE + 1] = start, pos
    nulls = 5 if found[_VERSION] >= _CONSUMER_REGEX_FROM else 4
    if pos < 0 or end - pos != 5 + nulls:
        return False
    if buf[pos] or int32_at(buf, pos + 1) != -1:  # rack, rebalance timeout
        return False
    return _has_nothing_else(buf, pos + 5, end)  # topics, regular expression, assignor, partitions, and tagged fields


def _has_nothing_else(buf: Buffer, pos: int, end: int) -> bool:
    """Whether all that follows is null, and without tagged fields."""
    while pos < end:
        if buf[pos]:
            return False
        pos += 1
    return True


def read_plain_share_heartbeat(buf: Buffer, pos: int, end: int, found: Ints) -> bool:
    """As `read_plain_heartbeat`, of a ShareGroupHeartbeat."""
    return _read_share_heartbeat(cython.address(buf[0]) if cython.compiled else buf, pos, end, found)


def _read_share_heartbeat(buf: Buffer, pos: int, end: int, found: Ints) -> bool:
    pos = _read_header(buf, pos, end, _SHARE_HEARTBEAT, 0, found)
    if pos < 0 or found[_VERSION] != _SHARE_VERSION:
        return False
    pos = _read_member(buf, pos, end, True, True, found)
    found[_INSTANCE] = found[_INSTANCE + 1] = -1
    return pos >= 0 and end - pos == 3 and _has_nothing_else(buf, pos, end)  # rack, topics, and tagged fields


def read_plain_commit(buf: Buffer, pos: int, end: int, found: Ints, rows: Ints) -> int:
    """The number of partitions in the plain OffsetCommit `buf[pos:end]`, or `NOT_PLAIN`.

    Fills `found` (see `API_VERSION` and those behind), and for each partition a row of `rows` (see `TOPIC_AT`). Null
    metadata is empty metadata."""
    return _read_commit(cython.address(buf[0]) if cython.compiled else buf, pos, end, found, rows)


def _read_commit(buf: Buffer, pos: int, end: int, found: Ints, rows: Ints) -> int:
    pos = _read_header(buf, pos, end, _COMMIT, _COMMIT_FLEXIBLE_FROM, found)
    version = found[_VERSION]
    if pos < 0 or version < _COMMIT_MIN or version > _COMMIT_MAX:
        return _NOT_PLAIN
    is_flexible = version >= _COMMIT_FLEXIBLE_FROM
    text_width, array_width = (0, 0) if is_flexible else (2, 4)
    pos = _read_member(buf, pos, end, is_flexible, False, found)
    if pos < 0:
        return _NOT_PLAIN
    found[_INSTANCE] = found[_INSTANCE + 1] = -1
    if version >= _COMMIT_INSTANCES_FROM:
        start, pos = _text_at(buf, pos, end, text_width)
        if pos < 0:
            return _NOT_PLAIN
        found[_INSTANCE], found[_INSTANCE + 1] = start, pos
    if version <= _COMMIT_RETENTION_TO:
        if end - pos < 8 or int64_at(buf, pos) != -1:
            return _NOT_PLAIN
        pos += 8
    topics, pos = length_at(buf, pos, end, array_width)
    if pos < 0 or topics < 1 or topics > _ROWS_MAX:
        return _NOT_PLAIN
    row_bytes = 16 if version >= _COMMIT_EPOCHS_FROM else 12
    count, row = 0, 0
    while topics:
        topics -= 1
        if version >= _COMMIT_IDS_FROM:
            start, pos = pos, pos + _UUID_BYTES
            if pos > end:
                return _NOT_PLAIN
        else:
            start, pos = _text_at(buf, pos, end, text_width)
            if start < 0 or pos < 0:
                return _NOT_PLAIN
        topic_end = pos
        partitions, pos = length_at(buf, pos, end, array_width)
        if pos < 0 or partitions < 1 or partitions > _ROWS_MAX - count:
            return _NOT_PLAIN
        count += partitions
        rows[row + _OF_TOPIC] = partitions
        while partitions:
            partitions -= 1
            if end - pos < row_bytes:
                return _NOT_PLAIN
            rows[row + _TOPIC_AT], rows[row + _TOPIC_END], rows[row + _INDEX] = start, topic_end, int32_at(buf, pos)
            rows[row + _OFFSET], rows[row + _LEADER_EPOCH] = int64_at(buf, pos + 4), -1
            if version >= _COMMIT_EPOCHS_FROM:
                rows[row + _LEADER_EPOCH] = int32_at(buf, pos + 12)
            at, pos = _text_at(buf, pos + row_bytes, end, text_width)
            if pos < 0:
                return _NOT_PLAIN
            rows[row + _METADATA_AT], rows[row + _METADATA_END] = pos if at < 0 else at, pos
            if is_flexible:
                if pos >= end or buf[pos]:
                    return _NOT_PLAIN
                pos += 1
            row += _ROW_FIELDS
            if partitions:
                rows[row + _OF_TOPIC] = 0
        if is_flexible:
            if pos >= end or buf[pos]:
                return _NOT_PLAIN
            pos += 1
    if is_flexible:
        if pos >= end or buf[pos]:
            return _NOT_PLAIN
        pos += 1
    return count if pos == end else _NOT_PLAIN


def write_heartbeat_answer(found: Ints, out: memoryview, at: int) -> int:
    """Writes the whole answer to a Heartbeat, without an error, to `out[at:]`. Returns its end."""
    to = cython.address(out[0]) if cython.compiled else out
    version, is_flexible = found[_VERSION], found[_VERSION] >= _HEARTBEAT_FLEXIBLE_FROM
    pos = put32(to, at + 4, found[_CORRELATION])
    if is_flexible:
        to[pos] = 0
        pos += 1
    if version >= 1:
        pos = put32(to, pos, 0)  # throttle time
    pos = put16(to, pos, 0)
    if is_flexible:
        to[pos] = 0
        pos += 1
    put32(to, at, pos - at - 4)
    return pos


def consumer_heartbeat_answer_bytes(found: Ints) -> int:
    """The most bytes that `write_consumer_heartbeat_answer` writes."""
    return 40 + found[_MEMBER + 1] - found[_MEMBER]


def write_consumer_heartbeat_answer(found: Ints, interval_ms: int, buf: Buffer, out: memoryview, at: int) -> int:
    """Writes the whole answer to the ConsumerGroupHeartbeat or ShareGroupHeartbeat in `buf`, of a member that has
    nothing to learn, to `out[at:]`. Returns its end."""
    to, start, end = cython.address(out[0]) if cython.compiled else out, found[_MEMBER], found[_MEMBER + 1]
    pos = put32(to, at + 4, found[_CORRELATION])
    to[pos] = 0
    pos = put16(to, put32(to, pos + 1, 0), 0)  # throttle time, error
    to[pos] = 0  # its text
    pos = put_length(to, pos + 1, end - start, 0)
    while start < end:
        to[pos] = buf[start]
        start += 1
        pos += 1
    pos = put32(to, put32(to, pos, found[_EPOCH]), interval_ms)
    to[pos], to[pos + 1] = 0xFF, 0  # no assignment
    put32(to, at, pos + 2 - at - 4)
    return pos + 2


def commit_answer_bytes(rows: Ints, count: int) -> int:
    """The most bytes that `write_commit_answer` writes."""
    size, row = 32, 0
    while count:
        size += 7
        if rows[row + _OF_TOPIC]:
            size += 12 + rows[row + _TOPIC_END] - rows[row + _TOPIC_AT]
        row += _ROW_FIELDS
        count -= 1
    return size


def write_commit_answer(found: Ints, rows: Ints, count: int, buf: Buffer, out: memoryview, at: int) -> int:
    """Writes the whole answer to the OffsetCommit in `buf`, of so many partitions and without an error, to `out[at:]`.
    Returns its end."""
    to, version = cython.address(out[0]) if cython.compiled else out, found[_VERSION]
    is_flexible, topics, left, row, number = version >= _COMMIT_FLEXIBLE_FROM, 0, 0, 0, 0
    while number < count:
        if rows[row + _OF_TOPIC]:
            topics += 1
        row += _ROW_FIELDS
        number += 1
    pos = put32(to, at + 4, found[_CORRELATION])
    if is_flexible:
        to[pos] = 0
        pos += 1
    if version >= _COMMIT_THROTTLE_FROM:
        pos = put32(to, pos, 0)
    pos = put_length(to, pos, topics, 0 if is_flexible else 4)
    row = 0
    while count:
        if rows[row + _OF_TOPIC]:
            start, end, left = rows[row + _TOPIC_AT], rows[row + _TOPIC_END], rows[row + _OF_TOPIC]
            if version < _COMMIT_IDS_FROM:
                pos = put_length(to, pos, end - start, 0 if is_flexible else 2)
            while start < end:
                to[pos] = buf[start]
                start += 1
                pos += 1
            pos = put_length(to, pos, left, 0 if is_flexible else 4)
        pos = put16(to, put32(to, pos, rows[row + _INDEX]), 0)
        left -= 1
        if is_flexible:
            to[pos] = 0
            pos += 1
            if not left:  # of the topic
                to[pos] = 0
                pos += 1
        row += _ROW_FIELDS
        count -= 1
    if is_flexible:
        to[pos] = 0
        pos += 1
    put32(to, at, pos - at - 4)
    return pos
