"""What a Fetch brought for one partition, decoded: as columns, or as one Python object per record. Does no IO."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from headrace.client.fetching import FETCH_SIZES, READ_UNCOMMITTED, Fetched, FetchSizes
from headrace.client.isolation import aborted_filter
from headrace.errors import CorruptMessage
from headrace.records.batch import Headers, decode_records
from headrace.records.columns import CREATE_TIME, LOG_APPEND_TIME, RecordColumns, scan_batches
from headrace.records.header import crc_is_valid, iter_headers
from headrace.types import Offset, TopicPartition

BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Which columns to decode, how many rows at a time, and how much to ask for."""

    batch_rows: int = BATCH_ROWS
    keys: bool = True
    values: bool = True
    headers: bool = False
    isolation_level: int = READ_UNCOMMITTED
    sizes: FetchSizes = FETCH_SIZES


READ_OPTIONS = ReadOptions()


class ConsumerRecord(NamedTuple):
    """One record with its place; `timestamp_type` is 0 for the producer's time, 1 for the broker's."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def columns_of(
    answer: Fetched, position: Offset, end: Offset | None = None, options: ReadOptions = READ_OPTIONS
) -> Iterator[RecordColumns]:
    """The records in [position, end), in chunks of about `batch_rows`: whole batches, no empty chunk."""
    skip = aborted_filter(answer.aborted) if options.isolation_level else None
    rest, offset = answer.records, int(position)
    while len(rest):
        columns = scan_batches(
            rest,
            from_offset=offset,
            to_offset=end,
            keys=options.keys,
            values=options.values,
            headers=options.headers,
            max_records=options.batch_rows,
            skip=skip,
        )
        if columns.count:
            yield columns
        if columns.bytes_consumed == 0 or (end is not None and columns.next_offset >= end):
            return
        rest, offset = rest[columns.bytes_consumed :], columns.next_offset


def records_of(
    partition: TopicPartition, answer: Fetched, position: Offset, isolation_level: int
) -> Iterator[ConsumerRecord]:
    """The records from `position` on. CorruptMessage names the partition and the batch."""
    topic, index = partition
    skip = aborted_filter(answer.aborted) if isolation_level else None
    for pos, header in iter_headers(answer.records):
        batch = answer.records[pos : pos + header.size_bytes]
        if skip is not None and skip(header, batch):
            continue
        if header.is_control or header.last_offset < position:
            continue
        if not crc_is_valid(batch, 0, header):
            raise CorruptMessage(f"{partition}: the batch at offset {header.base_offset} does not match its CRC")
        kind = LOG_APPEND_TIME if header.is_log_append_time else CREATE_TIME
        for offset, timestamp_ms, key, value, headers in decode_records(batch, header):
            if offset >= position:
                yield ConsumerRecord(topic, index, offset, timestamp_ms, kind, key, value, headers)
