"""Batches of one message format as those of another: down for old clients, up from old producers and old files.

    stored         asked for   becomes
    2, no codec    0, 1        a message for each record
    2, a codec     0, 1        a wrapper for each batch, of the same codec
    0, 1           1, 0        likewise, message by message and wrapper by wrapper
    0, 1           2           batches: of neighbouring messages up to `batch_bytes`; one for each wrapper
    the same       the same    the same bytes

Kept: offsets, keys, values, the codec and, where the target has them, timestamps and their type. Lost on the way down:
headers, the producer's fields, control batches (old formats have no word for them), and in format 0 timestamps. A
timestamp that the old formats cannot say (below -1) becomes -1. zstd came with format 2: a batch of it is not converted
down, UnsupportedCompressionType. On the way up a gap in the offsets, which compaction leaves, ends a batch: the kernel
builds batches without gaps.

Where a read begins inside an uncompressed batch, its records before that offset are left out, on which old readers
rely; a wrapper always stays whole, and the reader passes over what it did not ask for. Memory is that of a step (1 MiB
of the source) or, where that is larger, of one decompressed batch. Source: Kafka's RecordsUtil.downConvert,
LazyDownConversionRecords (KIP-283) and LogValidator.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from struct import Struct
from typing import NamedTuple

from headrace.errors import CorruptMessage, InvalidTimestamp, UnsupportedCompressionType
from headrace.limits import DECOMPRESSED_BATCH_BYTES_MAX, INT32_MAX, INT64_MAX
from headrace.records import message_kernel
from headrace.records.any_format import iter_any_headers, read_any_header
from headrace.records.build import build_batch, fitting_rows
from headrace.records.columns import LOG_APPEND_TIME, RecordColumns, scan_batches
from headrace.records.compression import Bytes, Codec
from headrace.records.header import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    NO_TIMESTAMP,
    BatchHeader,
    read_header,
    set_log_append_time,
)
from headrace.records.message import MESSAGE_OVERHEAD_BYTES
from headrace.records.message_columns import build_message_set, scan_message_set

STEP_BYTES = 1 << 20
"""How much of the source is converted at a time."""

BATCH_BYTES = 128 << 10
"""Up to how many uncompressed bytes messages without a wrapper go into one batch of format 2."""

_LEVELS = {Codec.GZIP: 1}
"""On the way down: what is made for one answer need not be the smallest, and gzip is five times faster so."""

_LENGTH_AT, _MAGIC_AT = 8, 16  # in every format
_SIZES_MIN = (*(LOG_OVERHEAD_BYTES + each for each in MESSAGE_OVERHEAD_BYTES), HEADER_BYTES)
_length = Struct(">i")


class Converted(NamedTuple):
    """Batches in another format."""

    data: bytearray
    """Whole batches or messages only; empty when nothing was left of what was looked at."""
    records: int
    """How many records were converted: those copied as they were do not count."""
    next_offset: int
    """From where to go on reading."""
    bytes_consumed: int
    """How much of the source is done with: what follows is cut off, corrupt, zstd, or over `max_bytes`."""


@dataclass(slots=True)
class ConversionCounts:
    """What conversions cost, for the metrics of whoever asked for them."""

    records: int = 0
    source_bytes: int = 0
    converted_bytes: int = 0
    elapsed_ns: int = 0


class _Run(NamedTuple):
    """Batches of the source, [start, stop) of it, that are converted together."""

    start: int
    stop: int
    header: BatchHeader
    """The first one's."""
    codec: Codec
    copied_to: int | None
    """The offset behind them if they are only copied; None when they are converted."""


class _Part(NamedTuple):
    """What a run became, or the part of it before its first damaged batch."""

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
    """The complete batches in `buf`, of whatever formats, in format `to_magic`.

    With `upwards` False batches of an older format than asked for are copied, as a fetch wants it: whoever reads a
    format reads the older ones. Stops before what would bring the result over `max_bytes`, but never before the first
    batch or, of an uncompressed one on its way to messages, its first message: `next_offset` may lie inside a batch.
    What `is_stored` and not only sent is compressed with the codec's default effort, on the way down too.
    CorruptMessage when the first batch is damaged, or decompresses to over `max_batch_bytes`;
    UnsupportedCompressionType when it is zstd on its way down. Behind good ones both end the conversion.
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


def iter_converted(
    chunks: Iterable[Bytes],
    to_magic: int,
    *,
    from_offset: int = 0,
    upwards: bool = True,
    batch_bytes: int = BATCH_BYTES,
    max_batch_bytes: int = DECOMPRESSED_BATCH_BYTES_MAX,
    counts: ConversionCounts | None = None,
    clock_ns: Callable[[], int] | None = None,
) -> Iterator[Converted]:
    """The same of a source that comes in chunks, cut anywhere: a step at a time, leaving out what became nothing.

    A batch that is cut off at the very end is left out. `counts` is kept up to date, its time by `clock_ns`. Errors as
    `convert_batches`, once everything before was yielded.
    """
    converter = _Converter(to_magic, from_offset, upwards, batch_bytes, max_batch_bytes, is_stored=False)
    rest = bytearray()
    for chunk in _pieces(chunks):
        rest += chunk
        consumed = 0
        with memoryview(rest) as view:
            while True:
                started = clock_ns() if clock_ns else 0
                run = converter.next_run(view, consumed, STEP_BYTES)
                if run is None:
                    break
                part = converter.convert(view, run)
                if counts is not None:
                    counts.records += part.records
                    counts.source_bytes += part.stop - consumed
                    counts.converted_bytes += len(part.data)
                    counts.elapsed_ns += clock_ns() - started if clock_ns else 0
                if part.data:
                    yield Converted(part.data, part.records, part.next_offset, part.stop - consumed)
                consumed = part.stop
        del rest[:consumed]


def _pieces(chunks: Iterable[Bytes]) -> Iterator[memoryview]:
    """Chunks of a step at most."""
    for chunk in chunks:
        view = memoryview(chunk)
        for start in range(0, len(view), STEP_BYTES):
            yield view[start : start + STEP_BYTES]


def _fitting(part: _Part, max_bytes: int, *, is_first: bool) -> _Part:
    """As many whole batches or messages of a part as fit `max_bytes`; one at least of the first part."""
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
    """Batches to one format, a run at a time."""

    def __init__(
        self, to_magic: int, from_offset: int, upwards: bool, batch_bytes: int, max_batch_bytes: int, is_stored: bool
    ) -> None:
        """ValueError when there is no such format."""
        if not 0 <= to_magic <= MAGIC:
            raise ValueError(f"there are message formats 0 to {MAGIC}, not {to_magic}")
        self._magic = to_magic
        self._from_offset = from_offset
        self._upwards = upwards
        self._batch_bytes = batch_bytes
        self._max_batch_bytes = max_batch_bytes
        self._is_stored = is_stored

    def next_run(self, view: memoryview, start: int, max_bytes: int) -> _Run | None:
        """The batches from `start` on that go together, up to `max_bytes` of them but one in any case.

        None when no complete batch is there. CorruptMessage or UnsupportedCompressionType for the first one.
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
                f"the batch at offset {header.base_offset} is zstd, which format {self._magic} does not have"
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
        """Where, from `pos` to `end`, the complete batches end that are copied, and where the last one starts."""
        while end - pos >= _SIZES_MIN[0] and self._is_copied(magic := view[pos + _MAGIC_AT]):
            size = LOG_OVERHEAD_BYTES + _length.unpack_from(view, pos + _LENGTH_AT)[0]
            if not _SIZES_MIN[magic] <= size <= end - pos:
                break
            last, pos = pos, pos + size
        return pos, last

    def convert(self, view: memoryview, run: _Run) -> _Part:
        """The run in the other format. CorruptMessage when its first batch is damaged; a later one ends it before."""
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
        """Append batches of format 2: a wrapper is one, messages are up to `batch_bytes` of them; none has a gap."""
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
    """Where, from `pos` to `end`, the batches of format 2 end that are not compressed, or markers, and rise."""
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
    """Where, from `start` to `end`, the messages of formats 0 and 1 end that lie in no wrapper."""
    window = view[start:end]
    size = len(window)
    return start + message_kernel.survey(window, 0, size, -1, 0, -1, 0, INT64_MAX, INT32_MAX, size, False)[1]


def _messages_of(
    rows: RecordColumns, start: int, stop: int, magic: int, codec: Codec, level: int | None, append_time_ms: int | None
) -> bytearray:
    """The rows [start, stop) as messages of format 0 or 1, in one wrapper when there is a codec."""
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
    """The rows in pieces that are all CreateTime (None), or all LogAppendTime with one and the same time."""
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
    """The rows [start, stop), of rising offsets, in pieces in which each offset is the one before plus one."""
    while start < stop:
        first = offsets[start] - start
        end = start + bisect_right(range(start, stop), first, key=lambda row: offsets[row] - row)
        yield start, end
        start = end
