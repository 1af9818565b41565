"""Record batches of format 2 as Python objects: the front door of this package.

For whoever handles records one at a time: the coordinator's own topics, a command, a simple consumer. Whoever handles
many goes through `columns`, which makes no object per record; a broker looks at headers only.

    batch:   header (61 bytes, see `header`) | records, compressed together
    record:  length varint | attributes int8 | timestamp_delta varlong | offset_delta varint
             | key_length varint | key | value_length varint | value | header_count varint | headers…

Source: Kafka's DefaultRecordBatch and DefaultRecord; KIP-98, KIP-82.
"""

from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from headrace.errors import CorruptMessage
from headrace.limits import DECOMPRESSED_BATCH_BYTES_MAX
from headrace.records import kernel
from headrace.records.binary import HeadersColumn, column_of, int32s
from headrace.records.build import build_batch
from headrace.records.columns import SpanTable, open_batch
from headrace.records.compression import Bytes, Codec
from headrace.records.header import (
    HEADER_BYTES,
    MAGIC,
    NO_TIMESTAMP,
    BatchHeader,
    crc_is_valid,
    iter_headers,
    read_header,
    records_of,
    set_base_offset,
    set_log_append_time,
    set_max_timestamp,
)

__all__ = [
    "HEADER_BYTES",
    "MAGIC",
    "NO_TIMESTAMP",
    "BatchHeader",
    "Headers",
    "Record",
    "crc_is_valid",
    "decode_records",
    "encode_batch",
    "iter_headers",
    "read_header",
    "records_of",
    "set_base_offset",
    "set_log_append_time",
    "set_max_timestamp",
]

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """One record; `encode_batch` gives it its offset, so one to be written may say anything there."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def decode_records(
    batch: Bytes, header: BatchHeader | None = None, max_bytes: int = DECOMPRESSED_BATCH_BYTES_MAX
) -> list[Record]:
    """The records of the batch that `batch` starts with, their offsets and timestamps absolute.

    The CRC is the caller's to check. CorruptMessage when the batch is cut off, does not decompress to at most
    `max_bytes`, or its records are not what its header says. Names of headers that are no UTF-8 are read with U+FFFD,
    as Java reads them.
    """
    if header is None:
        header = read_header(batch)
    if header.size_bytes > len(batch):
        raise CorruptMessage(f"a batch of {header.size_bytes} bytes, of which {len(batch)} are there")
    opened = open_batch(batch, 0, header, max_bytes)
    table = SpanTable(header.record_count)
    table.add(opened)
    view = memoryview(opened.data)
    fields = iter(table.spans)
    return [
        Record(
            offset,
            timestamp,
            _part(view, key, key_length),
            _part(view, value, value_length),
            headers_at(view, at, header_count) if header_count else (),
        )
        for offset, timestamp, key, key_length, value, value_length, at, header_count in zip(
            table.offsets, table.timestamps_ms, fields, fields, fields, fields, fields, fields, strict=True
        )
    ]


def _part(view: memoryview, start: int, length: int) -> bytes | None:
    return None if length < 0 else bytes(view[start : start + length])


def headers_at(data: Bytes, pos: int, count: int) -> Headers:
    """The headers of a record, which a scan found to be there."""
    view = memoryview(data)
    span = array("i", (0, -1, 0, -1, pos, count))
    parts = int32s(count * kernel.HEADER_SPAN_FIELDS)
    if not kernel.scan_headers(view, span, 0, 1, int32s(2), parts):
        raise CorruptMessage("a record's headers lie outside its batch")
    return tuple(
        (str(view[parts[i] : parts[i] + parts[i + 1]], "utf-8", "replace"), _part(view, parts[i + 2], parts[i + 3]))
        for i in range(0, len(parts), kernel.HEADER_SPAN_FIELDS)
    )


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytearray:
    """One batch of the records, the first at `base_offset`. ValueError when there is none."""
    headers = None
    if any(record.headers for record in records):
        flat = [header for record in records for header in record.headers]
        headers = HeadersColumn(
            array("i", accumulate((len(record.headers) for record in records), initial=0)),
            column_of([name.encode() for name, _ in flat]),
            column_of([value for _, value in flat]),
        )
    return build_batch(
        column_of([record.key for record in records]),
        column_of([record.value for record in records]),
        0,
        len(records),
        array("q", (record.timestamp_ms for record in records)),
        headers,
        codec=codec,
        level=level,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
        is_control=is_control,
    )
