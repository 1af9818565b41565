"""Batches of every format in one log: what can be known of each from its first bytes.

Every format has an offset at byte 0, the length of what follows at byte 8, and the magic at byte 16; so a log of many
formats can be walked without knowing them. A `BatchHeader` of a message of format 0 or 1 holds

    base_offset   the entry's offset, which for a wrapper is that of its last inner message, as in the file
    batch_length  message_size;  crc, attributes (codec, and in format 1 the log append time bit) as in the message
    base_timestamp, max_timestamp   the message's, -1 in format 0
    record_count  1, or -1 for a wrapper: nobody knows without opening it
    last_offset_delta 0; leader epoch and the producer's fields -1

so that `size_bytes`, `last_offset`, `next_offset` and `codec` are right for all. A wrapper's first offset is below its
`base_offset` by up to the messages it holds: it lies behind the last offset of the entry before.

Source: Kafka's AbstractRecords and ByteBufferLogInputStream.
"""

from array import array
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from struct import Struct

from headrace.errors import CorruptMessage
from headrace.limits import DECOMPRESSED_BATCH_BYTES_MAX, INT32_MAX
from headrace.records.batch import Record, decode_records
from headrace.records.binary import BinaryColumn, as_bytes, as_int32s
from headrace.records.columns import (
    BATCHES_BYTES_MAX,
    Piece,
    RecordColumns,
    Scanned,
    SpanTable,
    scan_batches,
    scan_spans,
)
from headrace.records.compression import Bytes
from headrace.records.concatenation import concat_columns
from headrace.records.header import (
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    NO_TIMESTAMP,
    BatchHeader,
    crc_is_valid,
    read_header,
)
from headrace.records.message import CODEC_BITS, MESSAGE_OVERHEAD_BYTES, crc_matches
from headrace.records.message_columns import scan_message_set
from headrace.records.message_set import decode_message_set

ANY_HEADER_BYTES_MIN = LOG_OVERHEAD_BYTES + MESSAGE_OVERHEAD_BYTES[0]
"""The smallest batch of any format: a message of format 0 with neither key nor value."""

_MAGIC_AT = 16
_ATTRIBUTES_BITS = (CODEC_BITS, CODEC_BITS | LOG_APPEND_TIME_BIT)

_heads = (Struct(">qiIbB"), Struct(">qiIbBq"))


def read_any_header(buf: Bytes, pos: int = 0) -> BatchHeader:
    """The header of the batch or message at `pos`, which itself may reach past the buffer.

    CorruptMessage when not all of its header is there, the magic is none of 0, 1 and 2, or the length is shorter than
    that format's smallest.
    """
    there = len(buf) - pos
    if there > _MAGIC_AT and buf[pos + _MAGIC_AT] == MAGIC:
        return read_header(buf, pos)
    if there < ANY_HEADER_BYTES_MIN:
        raise CorruptMessage(f"the smallest message is {ANY_HEADER_BYTES_MIN} bytes, {max(0, there)} are there")
    magic = buf[pos + _MAGIC_AT]
    if magic > MAGIC:
        raise CorruptMessage(f"magic {magic} where a batch of format 0, 1 or 2 should be")
    if magic == 1 and there < LOG_OVERHEAD_BYTES + MESSAGE_OVERHEAD_BYTES[1]:
        raise CorruptMessage(f"a message of format 1 with {there} bytes there, in which its head does not fit")
    offset, size, crc, _, attributes, *stamp = _heads[magic].unpack_from(buf, pos)
    if size < MESSAGE_OVERHEAD_BYTES[magic]:
        raise CorruptMessage(f"message size {size} is less than format {magic}'s {MESSAGE_OVERHEAD_BYTES[magic]}")
    timestamp_ms = stamp[0] if stamp else NO_TIMESTAMP
    attributes &= _ATTRIBUTES_BITS[magic]  # the bits above mean nothing here, and something in format 2
    count = -1 if attributes & CODEC_BITS else 1
    return BatchHeader(offset, size, -1, magic, crc, attributes, 0, timestamp_ms, timestamp_ms, -1, -1, -1, count)


def any_header_bytes(buf: Bytes, pos: int = 0) -> int:
    """How many bytes `read_any_header` needs at `pos`; 61, every format's, while the magic is not there yet."""
    if len(buf) - pos <= _MAGIC_AT:
        return HEADER_BYTES
    magic = buf[pos + _MAGIC_AT]
    return HEADER_BYTES if magic >= MAGIC else LOG_OVERHEAD_BYTES + MESSAGE_OVERHEAD_BYTES[magic]


def iter_any_headers(buf: Bytes, pos: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each complete batch or message from `pos` to `end` (exclusive; None: the buffer's end).

    Stops before one that is cut off. CorruptMessage as `read_any_header`.
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


def decode_any(
    buf: Bytes, *, check_crcs: bool = True, max_batch_bytes: int = DECOMPRESSED_BATCH_BYTES_MAX
) -> list[Record]:
    """The records of all complete batches, whatever their formats, control batches left out.

    CorruptMessage when one is damaged, or decompresses to over `max_batch_bytes`.
    """
    records: list[Record] = []
    view = memoryview(buf)
    for pos, header in iter_any_headers(buf):
        batch = view[pos : pos + header.size_bytes]
        if header.magic < MAGIC:
            records += decode_message_set(batch, check_crcs=check_crcs, max_bytes=max_batch_bytes)
            continue
        if check_crcs and not crc_is_valid(batch, 0, header):
            raise CorruptMessage(f"the batch at offset {header.base_offset} does not match its CRC")
        if not header.is_control:
            records += decode_records(batch, header, max_batch_bytes)
    return records


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
    """As `scan_batches` (and `scan_message_set`), over batches and messages of every format in one buffer, in order.

    `skip` is asked about batches of format 2 only. Where formats change inside the buffer, which a topic's log does
    once, the parts are put together with one more copy.
    """
    view = memoryview(buf)[:INT32_MAX]
    scan_set = partial(
        scan_message_set, to_offset=to_offset, keys=keys, values=values, headers=headers,
        max_batch_bytes=max_batch_bytes, check_crcs=check_crcs,
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
            break  # the scan of this format had its reason to stop here
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
    """As `scan_spans`, over what follows in one kind of format: messages, or batches of format 2."""
    if len(buf) <= _MAGIC_AT or buf[_MAGIC_AT] >= MAGIC:
        return scan_spans(buf, from_offset=from_offset, max_records=max_records, skip=skip)
    found = scan_message_set(buf, from_offset=from_offset, max_records=max_records)
    return Scanned(_span_table(found), found.next_offset, found.bytes_consumed)


def _span_table(columns: RecordColumns) -> SpanTable:
    """Keys and values as they are, one behind the other in one piece."""
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
    """Start and length of each row; -1 for null."""
    valid = None if column.validity is None else as_bytes(column.validity)
    for row, (start, end) in enumerate(pairwise(as_int32s(column.offsets))):
        is_null = valid is not None and not valid[row >> 3] >> (row & 7) & 1
        yield start, -1 if is_null else end - start
