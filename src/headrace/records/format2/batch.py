"""Record batches of format 2 as lists of Python records.

For code that handles few records, such as coordinators, commands and simple consumers. Code that handles many uses
`columns`, which makes no object per record. A broker reads headers only.

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
from headrace.records.binary import HeadersColumn, column_of, int32s
from headrace.records.codecs.compression import Bytes, Codec
from headrace.records.format2 import kernel
from headrace.records.format2.build import build_batch
from headrace.records.format2.columns import SpanTable, open_batch
from headrace.records.format2.header import (
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
    """One record. `encode_batch` assigns the offset, and ignores the one here."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def decode_records(
    batch: Bytes, header: BatchHeader | None = None, max_bytes: int = DECOMPRESSED_BATCH_BYTES_MAX
) -> list[Record]:
    """The records of the batch at the start of `batch`, with absolute offsets and timestamps.

    The caller checks the CRC. Invalid UTF-8 in the names of headers becomes U+FFFD, as in Java. Raises CorruptMessage
    when the batch is incomplete, does not decompress to at most `max_bytes`, or its records do not match its header.
    """
    if header is None:
        header = read_header(batch)
    if header.size_bytes > len(batch):
        raise CorruptMessage(f"the batch has only {len(batch)} of its {header.size_bytes} bytes")
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
    """The `count` headers of a record at `pos`, whose positions come from a scan. Raises CorruptMessage."""
    view = memoryview(data)
    span = array("i", (0, -1, 0, -1, pos, count))
    parts = int32s(count * kernel.HEADER_SPAN_FIELDS)
    if not kernel.scan_headers(view, span, 0, 1, int32s(2), parts):
        raise CorruptMessage("the headers of a record lie outside the batch")
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
    """Encode the records as one batch, the first at `base_offset`. Raises ValueError without records."""
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
