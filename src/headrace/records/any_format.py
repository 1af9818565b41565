"""Batches of any message format: reads the header fields that all formats share, and scans mixed logs.

Every format has an offset at byte 0, the length of the rest at byte 8, and the magic at byte 16. So a log with several
formats can be scanned without further knowledge of them. A `BatchHeader` of a message of format 0 or 1 has

    base_offset   the entry's offset, which for a wrapper is that of its last inner message, as in the file
    batch_length  message_size;  crc, attributes (codec, and in format 1 the log append time bit) as in the message
    base_timestamp, max_timestamp   the message's, -1 in format 0
    record_count  1, or -1 for a wrapper: only a decompression tells
    last_offset_delta 0; leader epoch and the producer's fields -1

so that `size_bytes`, `last_offset`, `next_offset` and `codec` are right for all formats. The first offset of a wrapper
is at or below its `base_offset`, and above the last offset of the entry before.

Source: Kafka's AbstractRecords and ByteBufferLogInputStream.
"""

from array import array
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from struct import Struct

from headrace.errors import CorruptMessage
from headrace.limits import DECOMPRESSED_BATCH_BYTES_MAX, INT32_MAX
from headrace.records.binary import BinaryColumn, as_bytes, as_int32s
from headrace.records.codecs.compression import Bytes
from headrace.records.format2.columns import (
    BATCHES_BYTES_MAX,
    Piece,
    RecordColumns,
    Scanned,
    SpanTable,
    scan_batches,
    scan_spans,
)
from headrace.records.format2.concatenation import concat_columns
from headrace.records.format2.header import (
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    NO_TIMESTAMP,
    BatchHeader,
    crc_is_valid,
    read_header,
)
from headrace.records.legacy.message import CODEC_BITS, MESSAGE_OVERHEAD_BYTES, crc_matches

ANY_HEADER_BYTES_MIN = LOG_OVERHEAD_BYTES + MESSAGE_OVERHEAD_BYTES[0]
"""The smallest batch of any format: a message of format 0 with neither key nor value."""

_MAGIC_AT = 16
_ATTRIBUTES_BITS = (CODEC_BITS, CODEC_BITS | LOG_APPEND_TIME_BIT)

_heads = (Struct(">qiIbB"), Struct(">qiIbBq"))


def read_any_header(buf: Bytes, pos: int = 0) -> BatchHeader:
    """The header of the batch or message at `pos`. Its records may reach past the end of the buffer.

    Raises CorruptMessage when the header is incomplete, the magic is not 0, 1 or 2, or the length is below the format's
    minimum.
    """
    there = len(buf) - pos
    if there > _MAGIC_AT and buf[pos + _MAGIC_AT] == MAGIC:
        return read_header(buf, pos)
    if there < ANY_HEADER_BYTES_MIN:
        raise CorruptMessage(
            f"{max(0, there)} bytes are too few for a message, which has at least {ANY_HEADER_BYTES_MIN}"
        )
    magic = buf[pos + _MAGIC_AT]
    if magic > MAGIC:
        raise CorruptMessage(f"unknown magic {magic}: message formats are 0, 1 and 2")
    if magic == 1 and there < LOG_OVERHEAD_BYTES + MESSAGE_OVERHEAD_BYTES[1]:
        raise CorruptMessage(f"{there} bytes are too few for the header of a message of format 1")
    offset, size, crc, _, attributes, *stamp = _heads[magic].unpack_from(buf, pos)
    if size < MESSAGE_OVERHEAD_BYTES[magic]:
        raise CorruptMessage(f"message size {size} is less than format {magic}'s {MESSAGE_OVERHEAD_BYTES[magic]}")
    timestamp_ms = stamp[0] if stamp else NO_TIMESTAMP
    attributes &= _ATTRIBUTES_BITS[magic]  # the higher bits have a meaning only in format 2
    count = -1 if attributes & CODEC_BITS else 1
    return BatchHeader(offset, size, -1, magic, crc, attributes, 0, timestamp_ms, timestamp_ms, -1, -1, -1, count)


def any_header_bytes(buf: Bytes, pos: int = 0) -> int:
    """The number of bytes that `read_any_header` needs at `pos`; 61, enough for every format, without the magic."""
    if len(buf) - pos <= _MAGIC_AT:
        return HEADER_BYTES
    magic = buf[pos + _MAGIC_AT]
    return HEADER_BYTES if magic >= MAGIC else LOG_OVERHEAD_BYTES + MESSAGE_OVERHEAD_BYTES[magic]


def iter_any_headers(buf: Bytes, pos: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each complete batch or message from `pos` to `end` (exclusive; None: the buffer's end).

    Stops before an incomplete one. Raises CorruptMessage as `read_any_header`.
    """
    if end is None:
        end = len(buf)
    while end - pos >= ANY_HEADER_BYTES_MIN:
        if end - pos < any_header_bytes(buf, pos):
            return
        header = read_any_header(buf, pos)
        after = pos + header.size_bytes
        if after > end:
            return
        yield pos, header
        pos = after


def any_crc_is_valid(buf: Bytes, pos: int, header: BatchHeader) -> bool:
    """Whether the complete batch or message at `pos` matches its checksum: CRC-32C in format 2, CRC-32 before."""
    if header.magic == MAGIC:
        return crc_is_valid(buf, pos, header)
    return crc_matches(buf, pos + LOG_OVERHEAD_BYTES, pos + header.size_bytes)


def _scan_message_set() -> Callable[..., RecordColumns]:
    """The scan of old formats, imported when there is something in one: clients that see none start sooner."""
    from headrace.records.legacy.message_columns import scan_message_set

    return scan_message_set


def scan_any(
    buf: Bytes,
    *,
    from_offset: int = 0,
    to_offset: int | None = None,
    keys: bool = True,
    values: bool = True,
    headers: bool = False,
    max_records: int = INT32_MAX,
    max_bytes: int = BATCHES_BYTES_MAX,
    max_batch_bytes: int = DECOMPRESSED_BATCH_BYTES_MAX,
    check_crcs: bool = True,
    skip: Callable[[BatchHeader, memoryview], bool] | None = None,
) -> RecordColumns:
    """As `scan_batches` and `scan_message_set`, for a buffer with batches and messages of all formats, in order.

    `skip` is called for batches of format 2 only. If the format changes inside the buffer, which happens once in a
    topic's log, the parts are concatenated with one more copy. Raises CorruptMessage as they do.
    """
    view = memoryview(buf)[:INT32_MAX]

    def scan_set(rest: memoryview, *, from_offset: int, max_records: int, max_bytes: int) -> RecordColumns:
        return _scan_message_set()(
            rest, from_offset=from_offset, to_offset=to_offset, keys=keys, values=values, headers=headers,
            max_records=max_records, max_bytes=max_bytes, max_batch_bytes=max_batch_bytes, check_crcs=check_crcs,
        )  # fmt: skip

    scan_v2 = partial(
        scan_batches, to_offset=to_offset, keys=keys, values=values, headers=headers,
        max_batch_bytes=max_batch_bytes, check_crcs=check_crcs, skip=skip,
    )  # fmt: skip
    parts: list[RecordColumns] = []
    pos = count = 0
    next_offset = from_offset
    was_set: bool | None = None
    while not parts or (len(view) - pos > _MAGIC_AT and count < max_records and pos < max_bytes):
        is_set = len(view) - pos > _MAGIC_AT and view[pos + _MAGIC_AT] < MAGIC
        if is_set == was_set:
            break  # the scan of this format stopped here for a reason
        was_set = is_set
        scan = scan_set if is_set else scan_v2
        try:
            part = scan(view[pos:], from_offset=next_offset, max_records=max_records - count, max_bytes=max_bytes - pos)
        except CorruptMessage:
            if not parts:
                raise
            break
        if parts and (part.bytes_consumed == 0 or count + part.count > max_records):
            break
        parts.append(part)
        pos += part.bytes_consumed
        count += part.count
        next_offset = part.next_offset
    return parts[0] if len(parts) == 1 else concat_columns(parts, next_offset, pos)


def scan_any_spans(
    buf: Bytes,
    *,
    from_offset: int = 0,
    max_records: int = INT32_MAX,
    skip: Callable[[BatchHeader, memoryview], bool] | None = None,
) -> Scanned:
    """As `scan_spans`, for the first part of the buffer that has only messages, or only batches of format 2."""
    if len(buf) <= _MAGIC_AT or buf[_MAGIC_AT] >= MAGIC:
        return scan_spans(buf, from_offset=from_offset, max_records=max_records, skip=skip)
    found = _scan_message_set()(buf, from_offset=from_offset, max_records=max_records)
    return Scanned(_span_table(found), found.next_offset, found.bytes_consumed)


def _span_table(columns: RecordColumns) -> SpanTable:
    """A span table of columns, with the keys and the values in one piece."""
    keys, values = columns.keys, columns.values
    assert keys is not None
    assert values is not None
    data = bytes(keys.data) + bytes(values.data)
    table = SpanTable(0)
    table.count, table.offsets, table.timestamps_ms = columns.count, columns.offsets, columns.timestamps_ms
    table.timestamp_types = columns.timestamp_types
    table.spans = array("i")
    for key, value in zip(_lengths(keys), _lengths(values), strict=True):
        table.spans.extend((*key, len(keys.data) + value[0], value[1], 0, 0))
    table.pieces.append(Piece(data, 0, table.count))
    return table


def _lengths(column: BinaryColumn) -> Iterator[tuple[int, int]]:
    """The start and the length of each row. The length is -1 for null."""
    valid = None if column.validity is None else as_bytes(column.validity)
    for row, (start, end) in enumerate(pairwise(as_int32s(column.offsets))):
        is_null = valid is not None and not valid[row >> 3] >> (row & 7) & 1
        yield start, -1 if is_null else end - start
