"""Conversion of batches between message formats: down for old clients, up from old producers and old files.

    stored         asked for   becomes
    2, no codec    0, 1        a message for each record
    2, a codec     0, 1        a wrapper for each batch, of the same codec
    0, 1           1, 0        a message for each message, and a wrapper for each wrapper
    0, 1           2           batches: of neighbouring messages up to `batch_bytes`; one for each wrapper
    the same       the same    the same bytes

A conversion keeps offsets, keys, values, the codec and, where the target has them, timestamps and their type. A down
conversion loses headers, the producer's fields, control batches, which old formats do not have, and in format 0
timestamps. A timestamp below -1, which old formats do not allow, becomes -1. zstd came with format 2, so a down
conversion of a zstd batch raises UnsupportedCompressionType. In an up conversion a gap in the offsets, which compaction
leaves, ends a batch, because the kernel builds batches without gaps.

If a read begins inside an uncompressed batch, its records before that offset are omitted, because old readers rely on
it. A wrapper always stays whole, and the reader skips records before its offset. Memory beside the result is bounded by
a step (1 MiB of the source) or, if larger, one decompressed batch. Source: Kafka's RecordsUtil.downConvert,
LazyDownConversionRecords (KIP-283) and LogValidator.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from itertools import groupby
from struct import Struct
from typing import NamedTuple

from headrace.errors import CorruptMessage, InvalidTimestamp, UnsupportedCompressionType
from headrace.limits import DECOMPRESSED_BATCH_BYTES_MAX, INT32_MAX, INT64_MAX
from headrace.records.any_format import iter_any_headers, read_any_header
from headrace.records.codecs.compression import Bytes, Codec
from headrace.records.format2.build import build_batch, fitting_rows
from headrace.records.format2.columns import LOG_APPEND_TIME, RecordColumns, scan_batches
from headrace.records.format2.header import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    NO_TIMESTAMP,
    BatchHeader,
    read_header,
    set_log_append_time,
)
from headrace.records.legacy import message_kernel
from headrace.records.legacy.message import MESSAGE_OVERHEAD_BYTES
from headrace.records.legacy.message_columns import build_message_set, scan_message_set

STEP_BYTES = 1 << 20
"""The bytes of the source that are converted at a time."""

BATCH_BYTES = 128 << 10
"""The most uncompressed bytes of messages without a wrapper in one batch of format 2."""

_LEVELS = {Codec.GZIP: 1}
"""Levels for a down conversion. Its result serves one response, so speed matters more: gzip is five times faster."""

_LENGTH_AT, _MAGIC_AT = 8, 16  # in every format
_SIZES_MIN = (*(LOG_OVERHEAD_BYTES + each for each in MESSAGE_OVERHEAD_BYTES), HEADER_BYTES)
_length = Struct(">i")


class Converted(NamedTuple):
    """The result of a conversion."""

    data: bytearray
    """Whole batches or messages; empty when the source had no records to convert."""
    records: int
    """The number of converted records, without those that were copied unchanged."""
    next_offset: int
    """The offset to continue at."""
    bytes_consumed: int
    """The converted bytes of the source. The rest is incomplete, corrupt, zstd, or over `max_bytes`."""


class _Run(NamedTuple):
    """Batches that are converted together: the bytes [start, stop) of the source."""

    start: int
    stop: int
    header: BatchHeader
    """The header of the first batch."""
    codec: Codec
    copied_to: int | None
    """The offset after them when they are only copied; None when they are converted."""


class _Part(NamedTuple):
    """The converted run, or its part before the first damaged batch."""

    data: bytearray
    records: int
    next_offset: int
    stop: int


def convert_batches(
    buf: Bytes,
    to_magic: int,
    *,
    from_offset: int = 0,
    max_bytes: int = INT32_MAX,
    upwards: bool = True,
    batch_bytes: int = BATCH_BYTES,
    max_batch_bytes: int = DECOMPRESSED_BATCH_BYTES_MAX,
    is_stored: bool = False,
) -> Converted:
    """Convert the complete batches in `buf`, of any formats, to format `to_magic`.

    With `upwards` False, batches of an older format are copied, as a fetch needs it: a client that reads a format also
    reads the older ones. Stops before the result exceeds `max_bytes`, but converts at least the first batch, or the
    first message of an uncompressed batch. So `next_offset` may be inside a batch. With `is_stored` a down conversion
    also compresses with the codec's default level. Raises CorruptMessage when the first batch is damaged, or
    decompresses to more than `max_batch_bytes`, and UnsupportedCompressionType when it is zstd in a down conversion.
    After good batches both end the conversion.
    """
    converter = _Converter(to_magic, from_offset, upwards, batch_bytes, max_batch_bytes, is_stored)
    view = memoryview(buf)
    data = bytearray()
    records, next_offset, consumed = 0, from_offset, 0
    try:
        while not data or len(data) < max_bytes:
            run = converter.next_run(view, consumed, min(STEP_BYTES, max_bytes - len(data)))
            if run is None:
                break
            part = converter.convert(view, run)
            cut = _fitting(part, max_bytes - len(data), is_first=not data)
            data += cut.data
            records += cut.records
            next_offset = max(next_offset, cut.next_offset)
            if len(cut.data) < len(part.data):
                break
            consumed = part.stop
    except (CorruptMessage, UnsupportedCompressionType):
        if consumed == 0:
            raise
    return Converted(data, records, next_offset, consumed)


def _fitting(part: _Part, max_bytes: int, *, is_first: bool) -> _Part:
    """The whole batches or messages of a part that fit `max_bytes`; at least one of the first part."""
    if len(part.data) <= max_bytes:
        return part
    taken = records = 0
    for pos, header in iter_any_headers(part.data):
        end = pos + header.size_bytes
        if end > max_bytes and (taken or not is_first):
            return _Part(part.data[:taken], records, header.base_offset if taken else -1, part.stop)
        taken = end
        records += header.record_count
    return part  # one batch, or a wrapper, that is the first


class _Converter:
    """Converts batches to one format, a run at a time."""

    def __init__(
        self, to_magic: int, from_offset: int, upwards: bool, batch_bytes: int, max_batch_bytes: int, is_stored: bool
    ) -> None:
        """Raises ValueError for an unknown format."""
        if not 0 <= to_magic <= MAGIC:
            raise ValueError(f"unknown message format {to_magic}: formats are 0 to {MAGIC}")
        self._magic = to_magic
        self._from_offset = from_offset
        self._upwards = upwards
        self._batch_bytes = batch_bytes
        self._max_batch_bytes = max_batch_bytes
        self._is_stored = is_stored

    def next_run(self, view: memoryview, start: int, max_bytes: int) -> _Run | None:
        """The batches from `start` on that are converted together: up to `max_bytes`, and at least one.

        Returns None without a complete batch. Raises CorruptMessage or UnsupportedCompressionType for the first batch.
        """
        first = next(iter_any_headers(view, start), None)
        if first is None:
            return None
        header = first[1]
        stop = start + header.size_bytes
        end = max(stop, min(start + max_bytes, len(view)))
        if self._is_copied(header.magic):
            stop, last = self._end_of_copied(view, start, stop, end)
            return _Run(start, stop, header, Codec.NONE, read_any_header(view, last).next_offset)
        codec = Codec.NONE if header.is_control else header.codec
        if codec is Codec.ZSTD and self._magic < MAGIC:
            raise UnsupportedCompressionType(
                f"the batch at offset {header.base_offset} has codec zstd, which format {self._magic} does not support"
            )
        if codec is not Codec.NONE:
            return _Run(start, stop, header, codec, None)
        if header.magic == MAGIC:
            end = _end_of_plain_batches(view, stop, end, header.last_offset)
        else:
            end = _end_of_messages(view, start, end)
        return _Run(start, max(stop, end), header, codec, None)

    def _is_copied(self, magic: int) -> bool:
        return magic == self._magic or (magic < self._magic and not self._upwards)

    def _end_of_copied(self, view: memoryview, last: int, pos: int, end: int) -> tuple[int, int]:
        """The end of the complete batches from `pos` to `end` that are copied, and the start of the last one."""
        while end - pos >= _SIZES_MIN[0] and self._is_copied(magic := view[pos + _MAGIC_AT]):
            size = LOG_OVERHEAD_BYTES + _length.unpack_from(view, pos + _LENGTH_AT)[0]
            if not _SIZES_MIN[magic] <= size <= end - pos:
                break
            last, pos = pos, pos + size
        return pos, last

    def convert(self, view: memoryview, run: _Run) -> _Part:
        """Convert a run. Raises CorruptMessage when its first batch is damaged; a later damaged batch ends the part."""
        source = view[run.start : run.stop]
        if run.copied_to is not None:
            return _Part(bytearray(source), 0, run.copied_to, run.stop)
        from_offset = self._from_offset if run.codec is Codec.NONE else 0
        scan = scan_batches if run.header.magic == MAGIC else scan_message_set
        rows = scan(source, from_offset=from_offset, max_batch_bytes=self._max_batch_bytes)
        level = None if self._is_stored or run.header.magic < self._magic else _LEVELS.get(run.codec)
        data = bytearray()
        for start, stop, append_time_ms in _of_one_time_type(rows):
            if self._magic == MAGIC:
                self._add_batches(data, rows, start, stop, run.codec, append_time_ms)
            else:
                data += _messages_of(rows, start, stop, self._magic, run.codec, level, append_time_ms)
        return _Part(data, rows.count, rows.next_offset, run.start + rows.bytes_consumed)

    def _add_batches(
        self, data: bytearray, rows: RecordColumns, start: int, stop: int, codec: Codec, append_time_ms: int | None
    ) -> None:
        """Append batches of format 2 without gaps: one for a wrapper, several of up to `batch_bytes` for messages."""
        limit = self._batch_bytes if codec is Codec.NONE else INT32_MAX
        for first, end in _without_gaps(rows.offsets, start, stop):
            while first < end:
                after, _ = fitting_rows(rows.keys, rows.values, first, end, rows.timestamps_ms, max_batch_bytes=limit)
                batch = build_batch(
                    rows.keys, rows.values, first, after, rows.timestamps_ms, codec=codec,
                    base_offset=rows.offsets[first],
                )  # fmt: skip
                if append_time_ms is not None:
                    set_log_append_time(batch, read_header(batch), append_time_ms)
                data += batch
                first = after


def _end_of_plain_batches(view: memoryview, pos: int, end: int, last_offset: int) -> int:
    """The end of the batches of format 2 from `pos` to `end` that are uncompressed or markers, with rising offsets."""
    try:
        for _, header in iter_any_headers(view, pos, end):
            if header.magic != MAGIC or not (header.is_control or header.codec is Codec.NONE):
                break
            if header.base_offset <= last_offset:
                break
            last_offset = header.last_offset
            pos += header.size_bytes
    except (CorruptMessage, UnsupportedCompressionType):
        pass  # the next run begins with it
    return pos


def _end_of_messages(view: memoryview, start: int, end: int) -> int:
    """The end of the messages of formats 0 and 1 from `start` to `end` that are in no wrapper."""
    window = view[start:end]
    size = len(window)
    return start + message_kernel.survey(window, 0, size, -1, 0, -1, 0, INT64_MAX, INT32_MAX, size, False)[1]


def _messages_of(
    rows: RecordColumns, start: int, stop: int, magic: int, codec: Codec, level: int | None, append_time_ms: int | None
) -> bytearray:
    """The rows [start, stop) as messages of format 0 or 1, in one wrapper when they have a codec."""
    times: array[int] = rows.timestamps_ms
    while True:
        try:
            return build_message_set(
                rows.keys, rows.values, start, stop, times, magic=magic, codec=codec, level=level,
                offsets=rows.offsets, log_append_time_ms=append_time_ms,
            )  # fmt: skip
        except InvalidTimestamp:
            times = array("q", [max(NO_TIMESTAMP, each) for each in times])
            append_time_ms = None if append_time_ms is None else max(NO_TIMESTAMP, append_time_ms)


def _of_one_time_type(rows: RecordColumns) -> Iterator[tuple[int, int, int | None]]:
    """Split the rows into pieces that are all CreateTime (None), or all LogAppendTime with the same time."""
    if LOG_APPEND_TIME not in rows.timestamp_types:
        if rows.count:
            yield 0, rows.count, None
        return
    stamps = (time if kind else None for kind, time in zip(rows.timestamp_types, rows.timestamps_ms, strict=True))
    start = 0
    for append_time_ms, piece in groupby(stamps):
        stop = start + sum(1 for _ in piece)
        yield start, stop, append_time_ms
        start = stop


def _without_gaps(offsets: array[int], start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Split the rows [start, stop), with rising offsets, into pieces with consecutive offsets."""
    while start < stop:
        first = offsets[start] - start
        end = start + bisect_right(range(start, stop), first, key=lambda row: offsets[row] - row)
        yield start, end
        start = end
