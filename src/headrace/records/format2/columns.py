"""Reads record batches into columns in Arrow's layout, without a Python object per record and without Arrow.

Reading takes two passes: the kernel scans the position of each part of each record, then copies the requested parts to
their columns, whose exact sizes are known by then.

    batches ─▶ spans int32[6 * n], offsets int64[n], timestamps int64[n] ─▶ keys, values, headers (see `binary`)

`build` does the opposite, and this module exports its functions too. Source: Kafka's DefaultRecordBatch and
CompletedFetch.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import NamedTuple

from headrace.errors import CorruptMessage
from headrace.limits import DECOMPRESSED_BATCH_BYTES_MAX, INT32_MAX, INT64_MAX
from headrace.records.binary import BinaryColumn, HeadersColumn, column_of, int32s, int64s
from headrace.records.codecs.compression import Bytes
from headrace.records.codecs.crc import crc32c
from headrace.records.format2 import kernel
from headrace.records.format2.build import batch_of_rows, build_batch, fitting_rows, partitions_of, scatter
from headrace.records.format2.header import BatchHeader, crc_is_valid, iter_headers, read_header, records_of

__all__ = [
    "BATCHES_BYTES_MAX",
    "CREATE_TIME",
    "LOG_APPEND_TIME",
    "BinaryColumn",
    "HeadersColumn",
    "RecordColumns",
    "batch_of_rows",
    "build_batch",
    "column_of",
    "fitting_rows",
    "open_batch",
    "partitions_of",
    "scan_batches",
    "scatter",
]

BATCHES_BYTES_MAX = 256 << 20
"""A scan reads no further batch after this many decompressed bytes."""

CREATE_TIME = 0
LOG_APPEND_TIME = 1

_BASE_OFFSET_MAX = INT64_MAX - INT32_MAX - 1  # whatever the delta, the next offset fits 64 bits

_RUN_BATCHES_MAX = 512

_KEY = 0  # the index of a field's start in a span
_VALUE = 2


class RecordColumns(NamedTuple):
    """Records of one partition, ascending by offset. A column that was not requested is None."""

    count: int  # type: ignore[assignment]  # hides tuple.count
    offsets: array[int]
    """int64"""
    timestamps_ms: array[int]
    """int64"""
    timestamp_types: bytearray
    """int8: 0 is CreateTime, 1 LogAppendTime"""
    keys: BinaryColumn | None
    values: BinaryColumn | None
    headers: HeadersColumn | None
    next_offset: int
    """The offset to continue at: after the last batch read, or `to_offset`."""
    bytes_consumed: int
    """The bytes of the input that were read. A batch that follows is incomplete, beyond the limits, or corrupt."""


class OpenBatch(NamedTuple):
    """One batch. Its decompressed records are `data[start:end]`."""

    header: BatchHeader
    data: Bytes
    start: int
    end: int


class Scanned(NamedTuple):
    """The result of a scan: the records' positions, and its end (see `RecordColumns`)."""

    table: SpanTable
    next_offset: int
    bytes_consumed: int


class Run(NamedTuple):
    """Consecutive batches that the kernel scans at once (see its `plain_run`). They end at the position `end`."""

    bounds: array[int]
    count: int  # type: ignore[assignment]  # hides tuple.count
    records: int
    size: int
    next_offset: int
    end: int


class Piece(NamedTuple):
    """The buffer that has the rows [start, stop)."""

    data: Bytes
    start: int
    stop: int


def scan_batches(
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
    """The records with offsets in [from_offset, to_offset) of the complete batches in a Fetch response.

    Stops before an incomplete batch, before a batch that would exceed `max_records` rows, and after `max_bytes` of
    decompressed records, but reads at least the first batch. Control batches have no rows. Batches for which `skip`
    returns True have none either. `skip` is called for every batch in order, including control batches, so that it can
    drop aborted transactions. Raises CorruptMessage when the first batch is damaged, or decompresses to more than
    `max_batch_bytes`. A damaged batch after good ones ends the scan before it, so that the good ones are delivered.
    """
    found = scan_spans(
        buf,
        from_offset=from_offset,
        to_offset=to_offset,
        max_records=max_records,
        max_bytes=max_bytes,
        max_batch_bytes=max_batch_bytes,
        check_crcs=check_crcs,
        skip=skip,
    )
    return found.table.columns(keys, values, headers, found.next_offset, found.bytes_consumed)


def scan_spans(
    buf: Bytes,
    *,
    from_offset: int = 0,
    to_offset: int | None = None,
    max_records: int = INT32_MAX,
    max_bytes: int = BATCHES_BYTES_MAX,
    max_batch_bytes: int = DECOMPRESSED_BATCH_BYTES_MAX,
    check_crcs: bool = True,
    skip: Callable[[BatchHeader, memoryview], bool] | None = None,
) -> Scanned:
    """The first pass of `scan_batches`: finds the positions of the records' parts. Raises as it does."""
    stop_offset = INT64_MAX if to_offset is None else to_offset
    view = memoryview(buf)[:INT32_MAX]
    found: list[OpenBatch | Run] = []
    next_offset = from_offset
    records = size = consumed = 0
    try:
        while True:
            if skip is None:
                limits = (max_records - records, max_bytes - size, 0 if found else 1)
                run = _plain_run(view, consumed, from_offset, stop_offset, *limits, check_crcs)
                if run.count:
                    found.append(run)
                    records += run.records
                    size += run.size
                    consumed, next_offset = run.end, max(from_offset, min(run.next_offset, stop_offset))
                    continue
            pos, header = next(iter_headers(view, consumed), (consumed, None))
            if header is None:
                break
            if header.last_offset_delta < 0 or not 0 <= header.base_offset <= _BASE_OFFSET_MAX:
                raise CorruptMessage(f"a batch cannot have offsets {header.base_offset} to {header.last_offset}")
            if header.base_offset >= stop_offset:
                next_offset = max(from_offset, stop_offset)
                break
            batch = view[pos : pos + header.size_bytes]
            if header.last_offset >= from_offset:
                if found and (records + header.record_count > max_records or size >= max_bytes):
                    break
                if check_crcs and not crc_is_valid(batch, 0, header):
                    raise CorruptMessage(f"the batch at offset {header.base_offset} does not match its CRC")
                skipped = skip is not None and skip(header, batch)
                if not skipped and not header.is_control:
                    opened = open_batch(view, pos, header, max_batch_bytes)
                    found.append(opened)
                    records += header.record_count
                    size += opened.end - opened.start
                next_offset = max(from_offset, min(header.next_offset, stop_offset))
            consumed = pos + header.size_bytes
    except CorruptMessage:
        if consumed == 0:
            raise
    table = SpanTable(records)
    for each in found:
        if isinstance(each, Run):
            table.add_run(view, each, from_offset, stop_offset)
        else:
            table.add(each, from_offset, stop_offset)
    return Scanned(table, next_offset, consumed)


def _plain_run(
    view: memoryview,
    pos: int,
    from_offset: int,
    to_offset: int,
    records_max: int,
    bytes_max: int,
    least: int,
    check_crcs: bool,
) -> Run:
    """The undamaged plain batches from `pos` on; none when another kind of batch is first."""
    bounds = int64s(3 * _RUN_BATCHES_MAX)
    limits = (from_offset, to_offset, records_max, bytes_max, least)
    found = kernel.plain_run(view, pos, len(view), *limits, bounds)
    if check_crcs and found[0]:
        good = kernel.first_damaged(view, bounds, found[0], crc32c)
        if good < found[0]:
            bounds = bounds[: 3 * good]
            found = kernel.plain_run(view, pos, len(view), *limits, bounds)
    return Run(bounds, *found, bounds[3 * found[0] - 2] if found[0] else pos)


def open_batch(buf: Bytes, pos: int, header: BatchHeader, max_bytes: int = DECOMPRESSED_BATCH_BYTES_MAX) -> OpenBatch:
    """The records of the complete batch at `pos`, decompressed.

    Raises CorruptMessage when they do not decompress to at most `max_bytes`, or the header counts more records than can
    fit.
    """
    data, start, end = records_of(buf, pos, header, max_bytes)
    if not 0 <= header.record_count <= (end - start) // kernel.RECORD_BYTES_MIN:
        raise CorruptMessage(
            f"the batch at offset {header.base_offset} claims {header.record_count} records in {end - start} bytes"
        )
    return OpenBatch(header, data, start, end)


class SpanTable:
    """The positions of the parts of many records, before they are copied."""

    def __init__(self, records: int) -> None:
        """Allocate space for `records` records."""
        self.count = 0
        self.offsets = int64s(records)
        self.timestamps_ms = int64s(records)
        self.timestamp_types = bytearray(records)
        self.spans = int32s(records * kernel.SPAN_FIELDS)
        self.pieces: list[Piece] = []
        self._key_bytes = self._null_keys = self._value_bytes = self._null_values = self._headers = 0

    @property
    def value_bytes(self) -> int:
        """The size of all values together."""
        return self._value_bytes

    def add(self, batch: OpenBatch, from_offset: int = 0, to_offset: int = INT64_MAX) -> None:
        """Add the batch's records with offsets in [from_offset, to_offset).

        Raises CorruptMessage when the records do not match the header.
        """
        header, data, start, end = batch
        is_append_time = header.is_log_append_time
        base_timestamp = header.max_timestamp if is_append_time else header.base_timestamp
        problem, stop, key_bytes, null_keys, value_bytes, null_values, headers = kernel.scan(
            data, start, end, header.record_count, header.base_offset, header.last_offset_delta, base_timestamp,
            is_append_time, from_offset, to_offset, self.offsets, self.timestamps_ms, self.spans, self.count,
        )  # fmt: skip
        if problem:
            raise _lies(header, stop, problem)
        if is_append_time:
            self.timestamp_types[self.count : stop] = b"\x01" * (stop - self.count)
        self._added(data, stop, key_bytes, null_keys, value_bytes, null_values, headers)

    def add_run(self, buf: memoryview, run: Run, from_offset: int, to_offset: int) -> None:
        """As `add`, for all batches of a run in `buf`."""
        problem, stop, key_bytes, null_keys, value_bytes, null_values, headers, batch = kernel.scan_run(
            buf, run.bounds, run.count, from_offset, to_offset, self.offsets, self.timestamps_ms,
            self.timestamp_types, self.spans, self.count,
        )  # fmt: skip
        if problem:
            raise _lies(read_header(buf, run.bounds[3 * batch]), stop, problem)
        self._added(buf, stop, key_bytes, null_keys, value_bytes, null_values, headers)

    def _added(
        self, data: Bytes, stop: int, key_bytes: int, null_keys: int, value_bytes: int, null_values: int, headers: int
    ) -> None:
        self.pieces.append(Piece(data, self.count, stop))
        self.count = stop
        self._key_bytes += key_bytes
        self._null_keys += null_keys
        self._value_bytes += value_bytes
        self._null_values += null_values
        self._headers += headers

    def columns(self, keys: bool, values: bool, headers: bool, next_offset: int, consumed: int) -> RecordColumns:
        """Copy the records to the requested columns. The table cannot be used afterwards."""
        count = self.count
        del self.offsets[count:], self.timestamps_ms[count:], self.timestamp_types[count:]
        fields = kernel.SPAN_FIELDS
        return RecordColumns(
            count,
            self.offsets,
            self.timestamps_ms,
            self.timestamp_types,
            _gathered(self.pieces, self.spans, fields, _KEY, self._key_bytes, self._null_keys) if keys else None,
            _gathered(self.pieces, self.spans, fields, _VALUE, self._value_bytes, self._null_values)
            if values
            else None,
            _headers_of(self.pieces, self.spans, self._headers) if headers else None,
            next_offset,
            consumed,
        )


def _lies(header: BatchHeader, record: int, problem: int) -> CorruptMessage:
    return CorruptMessage(f"record {record} of the batch at offset {header.base_offset}: {kernel.PROBLEMS[problem]}")


def _gathered(
    rows: list[Piece], spans: array[int], stride: int, field: int, size: int, null_count: int
) -> BinaryColumn:
    """Copy one field of all rows from their buffers into a column."""
    count = rows[-1].stop if rows else 0
    offsets, data = int32s(count + 1), kernel.room(size)
    validity = bytearray((count + 7) // 8 if null_count else 0)
    for source, start, stop in rows:
        if not kernel.gather(source, spans, stride, field, start, stop, offsets, data, validity):
            raise CorruptMessage("a field of a record lies outside the batch")
    return BinaryColumn(offsets, data, validity if null_count else None, null_count)


def _headers_of(rows: list[Piece], spans: array[int], header_count: int) -> HeadersColumn:
    list_offsets = int32s(rows[-1].stop + 1 if rows else 1)
    fields = kernel.HEADER_SPAN_FIELDS
    header_spans = int32s(header_count * fields)
    for source, start, stop in rows:
        if not kernel.scan_headers(source, spans, start, stop, list_offsets, header_spans):
            raise CorruptMessage("the headers of a record lie outside the batch")
    headers = [Piece(source, list_offsets[start], list_offsets[stop]) for source, start, stop in rows]
    key_lengths, value_lengths = header_spans[1::fields], header_spans[3::fields]
    null_count = value_lengths.count(-1)
    return HeadersColumn(
        list_offsets,
        _gathered(headers, header_spans, fields, _KEY, sum(key_lengths), 0),
        _gathered(headers, header_spans, fields, _VALUE, sum(value_lengths) + null_count, null_count),
    )
