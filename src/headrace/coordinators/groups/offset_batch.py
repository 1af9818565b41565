# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: annotation_typing=False, binding=False
"""The batch of a plain OffsetCommit, written from the request's bytes without an object for a key or a value.

    batch    header, see `records.format2.header` | records
    record   length | 0 | 0 | offset delta | key length | key | value length | value | 0         lengths: zigzag varints
    key      1 int16 | group | topic | partition int32                                           texts: int16 | bytes
    value    3 int16 | offset int64 | leader epoch int32 | metadata | commit time int64          before version 10
             4 int16 | offset int64 | leader epoch int32 | metadata (compact) | commit time int64 | 1, 0, 16 | topic id

The bytes are those of `records.write_offset_key`, `records.write_offset` and `records.format2.batch.encode_batch`; a
test compares them. Compiled; it also runs uncompiled.
"""

from __future__ import annotations

from array import array
from typing import TypeAlias

from headrace.octets import Buffer
from headrace.protocol.plain_groups import ROW_FIELDS
from headrace.records.codecs.crc import crc32c

try:
    import cython
except ImportError:
    from headrace import uncompiled as cython

if cython.compiled:
    from cython.cimports.headrace.records.codecs.crc32c_words import (
        crc32c_has_instruction,
        crc32c_prepare,
        crc32c_words,
    )
else:
    from headrace.octets import put16, put32, put64, put_length, put_varint

Ints: TypeAlias = "array[int] | memoryview"

_VERSION, _GROUP, _IDS_FROM = 0, 4, 10
_TOPIC_AT, _OF_TOPIC, _INDEX, _OFFSET, _LEADER_EPOCH, _METADATA_AT, _METADATA_END = 0, 2, 3, 4, 5, 6, 7
_ROW_FIELDS = ROW_FIELDS
_HEADER_BYTES, _CRC_AT, _CHECKED_FROM, _MAGIC, _LOG_OVERHEAD = 61, 17, 21, 2, 12
_KEY_VERSION, _VALUE_VERSION, _VALUE_VERSION_WITH_ID, _UUID_BYTES = 1, 3, 4, 16


def _has_instruction() -> bool:
    """Whether the processor computes CRC-32C, and there is a compiled form to have it do so."""
    if cython.compiled:
        crc32c_prepare()
        return bool(crc32c_has_instruction())
    return False


_BY_INSTRUCTION = _has_instruction()


def write_offset_batch(
    buf: Buffer, found: Ints, rows: Ints, count: int, topics: list[bytes], now_ms: int, out: memoryview
) -> int:
    """Writes the batch of the commit of so many partitions in `buf`, which `read_plain_commit` has read. `topics` are
    their names, in the order of the request. Returns the batch's size; 0 if `out` has no room for it."""
    to = cython.address(out[0]) if cython.compiled else out
    octets = cython.address(buf[0]) if cython.compiled else buf
    has_ids = found[_VERSION] >= _IDS_FROM
    group_at, group_bytes = found[_GROUP], found[_GROUP + 1] - found[_GROUP]
    pos, room = _HEADER_BYTES, len(out)
    topic, topic_bytes, topic_number, row, number = b"", 0, 0, 0, 0
    while number < count:
        if rows[row + _OF_TOPIC]:
            topic = topics[topic_number]
            topic_bytes = len(topic)
            topic_number += 1
        metadata_at = rows[row + _METADATA_AT]
        metadata_bytes = rows[row + _METADATA_END] - metadata_at
        key_bytes = 10 + group_bytes + topic_bytes
        value_bytes = 24 + metadata_bytes
        if has_ids:
            value_bytes = 22 + _varint_bytes(metadata_bytes + 1) + metadata_bytes + 3 + _UUID_BYTES
        size = 3 + _varint_bytes(2 * number) + _varint_bytes(2 * key_bytes) + key_bytes
        size += _varint_bytes(2 * value_bytes) + value_bytes
        if room - pos < _varint_bytes(2 * size) + size:
            return 0
        pos = put_varint(to, pos, 2 * size)
        to[pos] = to[pos + 1] = 0  # attributes, time
        pos = put_varint(to, put_varint(to, pos + 2, 2 * number), 2 * key_bytes)
        pos = put16(to, put16(to, pos, _KEY_VERSION), group_bytes)
        pos = _put(octets, group_at, group_bytes, to, pos)
        pos = _put(topic, 0, topic_bytes, to, put16(to, pos, topic_bytes))
        pos = put_varint(to, put32(to, pos, rows[row + _INDEX]), 2 * value_bytes)
        pos = put16(to, pos, _VALUE_VERSION_WITH_ID if has_ids else _VALUE_VERSION)
        pos = put32(to, put64(to, pos, rows[row + _OFFSET]), rows[row + _LEADER_EPOCH])
        pos = put_length(to, pos, metadata_bytes, 0 if has_ids else 2)
        pos = put64(to, _put(octets, metadata_at, metadata_bytes, to, pos), now_ms)
        if has_ids:
            to[pos], to[pos + 1], to[pos + 2] = 1, 0, _UUID_BYTES  # one tagged field, its number, its size
            pos = _put(octets, rows[row + _TOPIC_AT], _UUID_BYTES, to, pos + 3)
        to[pos] = 0  # headers
        pos += 1
        row += _ROW_FIELDS
        number += 1
    _put_header(to, pos, count, now_ms)
    return pos


def _put_header(to: memoryview, size: int, count: int, now_ms: int) -> None:
    pos = put32(to, put32(to, put64(to, 0, 0), size - _LOG_OVERHEAD), -1)  # base offset, length, leader epoch
    to[pos] = _MAGIC
    pos = put32(to, put16(to, _CHECKED_FROM, 0), count - 1)  # attributes, last offset delta
    pos = put64(to, put64(to, pos, now_ms), now_ms)
    pos = put32(to, put16(to, put64(to, pos, -1), -1), -1)  # no producer
    put32(to, pos, count)
    if cython.compiled:
        put32(to, _CRC_AT, crc32c_words(cython.address(to[_CHECKED_FROM]), size - _CHECKED_FROM, _BY_INSTRUCTION))
    else:
        put32(to, _CRC_AT, crc32c(to[_CHECKED_FROM:size]))


def _varint_bytes(value: int) -> int:
    size = 1
    while value > 0x7F:
        value >>= 7
        size += 1
    return size


def _put(buf: Buffer, start: int, size: int, out: memoryview, pos: int) -> int:
    """Copies bytes; returns the position behind them."""
    while size:
        out[pos] = buf[start]
        pos += 1
        start += 1
        size -= 1
    return pos
