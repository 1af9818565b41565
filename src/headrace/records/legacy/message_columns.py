"""Reads message sets of formats 0 and 1 into columns in Arrow's layout, and writes them, without an object per message.

Reading takes two passes of the kernel. The first counts every run of messages, plain or in a wrapper; then the columns
are allocated, and the second pass copies each run. Writing measures first too. Source: Kafka's
AbstractLegacyRecordBatch and MemoryRecordsBuilder.
"""

from __future__ import annotations

from array import array
from struct import Struct
from typing import NamedTuple

from headrace.errors import CorruptMessage, InvalidTimestamp
from headrace.limits import DECOMPRESSED_BATCH_BYTES_MAX, INT32_MAX, INT64_MAX
from headrace.records.binary import (
    BinaryColumn,
    Buffer,
    HeadersColumn,
    as_bytes,
    as_int32s,
    as_int64s,
    column_of,
    int32s,
    int64s,
)
from headrace.records.codecs.compression import Bytes, Codec
from headrace.records.format2.columns import BATCHES_BYTES_MAX, RecordColumns
from headrace.records.format2.header import LOG_APPEND_TIME_BIT, LOG_OVERHEAD_BYTES, NO_TIMESTAMP
from headrace.records.legacy import message_kernel
from headrace.records.legacy.message import (
    MESSAGE_OVERHEAD_BYTES,
    Message,
    TimestampType,
    check_magic,
    check_timestamp,
    crc_matches,
    parse_message,
    value_of,
)
from headrace.records.legacy.message_codecs import check_codec, decompress_messages
from headrace.records.legacy.message_set import wrap

_entry = Struct(">qi")
_NO_INTS = memoryview(array("i"))
_NO_LONGS = memoryview(array("q"))
_NO_BYTES = memoryview(b"")


class _Run(NamedTuple):
    """Consecutive uncompressed messages: a part of a set, or the content of a wrapper."""

    data: Bytes
    start: int
    end: int
    base_offset: int
    wrapper: Message | None
    rows: int
    key_bytes: int
    null_keys: int
    value_bytes: int
    null_values: int


def scan_message_set(
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
) -> RecordColumns:
    """The messages with offsets in [from_offset, to_offset) of the complete entries in a set; none has headers.

    Stops before an entry that is incomplete or of format 2, before one that would exceed `max_records` rows, and after
    `max_bytes` of decompressed messages, but reads at least the first entry. `check_crcs` checks the CRCs of entries;
    a wrapper's CRC covers its inner messages. Raises CorruptMessage when the first entry is damaged (see
    `message_set.iter_messages`), or its offsets do not rise. A damaged entry after good ones ends the scan before it,
    so that the good ones are delivered.
    """
    scan = _Scan(
        memoryview(buf)[:INT32_MAX], max(0, from_offset), INT64_MAX if to_offset is None else to_offset,
        max_records, min(max_bytes, max(1, INT32_MAX - max_batch_bytes)), max_batch_bytes, check_crcs,
    )  # fmt: skip
    try:
        while scan.step():
            pass
    except CorruptMessage:
        if scan.pos == 0:
            raise
    return scan.columns(keys, values, headers)


class _Scan:
    """The progress of a scan, and the runs that it has found."""

    def __init__(
        self,
        view: memoryview,
        from_offset: int,
        to_offset: int,
        max_records: int,
        max_bytes: int,
        max_batch_bytes: int,
        check_crcs: bool,
    ) -> None:
        self.view = view
        self.from_offset = self.next_offset = from_offset
        self.to_offset = to_offset
        self.max_records = max_records
        self.max_bytes = max_bytes
        self.max_batch_bytes = max_batch_bytes
        self.check_crcs = check_crcs
        self.pos = self.rows = self.size = 0
        self.last_offset = -1
        self.runs: list[_Run] = []

    def step(self) -> bool:
        """Scan one run of plain messages and the wrapper after it. Returns whether there may be more."""
        if self._is_full():
            return False
        room = max(1, self.max_records - self.rows)
        stop_pos = self.pos + max(1, self.max_bytes - self.size)
        reason, after, *counts, last_offset = message_kernel.survey(
            self.view, self.pos, len(self.view), -1, 0, self.last_offset, self.from_offset, self.to_offset,
            room, stop_pos, self.check_crcs,
        )  # fmt: skip
        if after > self.pos:
            self._take(_Run(self.view, self.pos, after, 0, None, *counts), after, last_offset)
        if reason > 0:
            raise CorruptMessage(f"the message at byte {after} of a set: {message_kernel.PROBLEMS[reason]}")
        if reason == message_kernel.AT_OFFSET:
            self.next_offset = max(self.from_offset, self.to_offset)
        return reason == message_kernel.AT_WRAPPER and self._take_wrapper()

    def _is_full(self) -> bool:
        return bool(self.runs) and (self.rows >= self.max_records or self.size >= self.max_bytes)

    def _take(self, run: _Run, after: int, last_offset: int) -> None:
        if run.rows:
            self.runs.append(run)
            self.rows += run.rows
            self.size += run.end - run.start
        self.pos = after
        self.last_offset = last_offset
        self.next_offset = max(self.next_offset, min(last_offset + 1, self.to_offset))

    def _take_wrapper(self) -> bool:
        """Scan the wrapper at `pos`, which the kernel found complete. Returns whether the scan continues after it."""
        offset, size = _entry.unpack_from(self.view, self.pos)
        start, end = self.pos + LOG_OVERHEAD_BYTES, self.pos + LOG_OVERHEAD_BYTES + size
        if self._is_full():
            return False
        if self.last_offset < offset < self.from_offset:
            self.pos, self.last_offset = end, offset
            return True
        if self.check_crcs and not crc_matches(self.view, start, end):
            raise CorruptMessage(f"the message at offset {offset} does not match its CRC")
        wrapper = parse_message(self.view, start, end, with_value=False)
        run, first_offset, last_offset = self._open(offset, wrapper, value_of(self.view, start, end))
        if first_offset >= self.to_offset:
            self.next_offset = max(self.from_offset, self.to_offset)
            return False
        if self.runs and self.rows + run.rows > self.max_records:
            return False
        self._take(run, end, max(offset, last_offset))
        return last_offset < self.to_offset

    def _open(self, offset: int, wrapper: Message, value: memoryview | None) -> tuple[_Run, int, int]:
        """The content of a wrapper, its first offset and its last."""
        where = f"the wrapper at offset {offset}"
        if value is None:
            raise CorruptMessage(f"{where} has no value")
        data = decompress_messages(wrapper.codec, wrapper.magic, value, self.max_batch_bytes)
        if not data:
            raise CorruptMessage(f"{where} has no messages")
        last = self._survey(data, wrapper.magic, 0, -1, 0, INT64_MAX, where)[-1]
        if wrapper.magic == 1 and 0 < offset < last:
            raise CorruptMessage(f"{where} ends with relative offset {last}")
        base = offset - last if wrapper.magic == 1 and offset > 0 else 0
        *counts, last = self._survey(
            data, wrapper.magic, base, self.last_offset, self.from_offset, self.to_offset, where
        )
        first: int = base + _entry.unpack_from(data, 0)[0]
        return _Run(data, 0, len(data), base, wrapper, *counts), first, last

    def _survey(
        self, data: Bytes, magic: int, base: int, last: int, from_offset: int, to_offset: int, where: str
    ) -> list[int]:
        """Rows, bytes of keys, null keys, bytes of values, null values and last offset of a wrapper's messages."""
        problem, after, *counts = message_kernel.survey(
            data, 0, len(data), magic, base, last, from_offset, to_offset, INT32_MAX, INT32_MAX, False
        )
        if problem:
            raise CorruptMessage(f"{where}, the message at byte {after} in it: {message_kernel.PROBLEMS[problem]}")
        return counts

    def columns(self, keys: bool, values: bool, headers: bool) -> RecordColumns:
        """Copy the runs into the requested columns."""
        rows = self.rows
        offsets, timestamps, types = int64s(rows), int64s(rows), bytearray(rows)
        key_column = _empty_column(rows, [run[6:8] for run in self.runs]) if keys else _NO_COLUMN
        value_column = _empty_column(rows, [run[8:10] for run in self.runs]) if values else _NO_COLUMN
        row = 0
        for run in self.runs:
            wrapper = run.wrapper
            stamped = wrapper is not None and wrapper.timestamp_type is TimestampType.LOG_APPEND_TIME
            problem, row = message_kernel.fill(
                run.data, run.start, run.end, run.base_offset, self.from_offset, self.to_offset, wrapper is not None,
                stamped, NO_TIMESTAMP if wrapper is None else wrapper.timestamp_ms, row, row + run.rows,
                offsets, timestamps, types, *key_column, *value_column,
            )  # fmt: skip
            if problem:
                raise CorruptMessage("a message set changed while it was read")
        for column in (key_column, value_column):
            if column.offsets and column.offsets[rows] != len(column.data):
                raise CorruptMessage("a message set changed while it was read")
        return RecordColumns(
            rows,
            offsets,
            timestamps,
            types,
            _column_from(key_column, sum(run.null_keys for run in self.runs)) if keys else None,
            _column_from(value_column, sum(run.null_values for run in self.runs)) if values else None,
            HeadersColumn(int32s(rows + 1), column_of([]), column_of([])) if headers else None,
            self.next_offset,
            self.pos,
        )


class _Fillable(NamedTuple):
    """The buffers of a column that the kernel fills."""

    offsets: array[int] | memoryview
    data: bytearray
    validity: bytearray


_NO_COLUMN = _Fillable(_NO_INTS, bytearray(), bytearray())


def _empty_column(rows: int, counts: list[tuple[int, ...]]) -> _Fillable:
    """Allocate a column for `rows` rows. `counts` has the bytes and nulls of each run."""
    nulls = sum(null_count for _, null_count in counts)
    return _Fillable(
        int32s(rows + 1),
        message_kernel.unwritten(sum(size for size, _ in counts)),
        bytearray((rows + 7) // 8 if nulls else 0),
    )


def _column_from(filled: _Fillable, null_count: int) -> BinaryColumn:
    return BinaryColumn(filled.offsets, filled.data, filled.validity if null_count else None, null_count)


def build_message_set(
    keys: BinaryColumn | None,
    values: BinaryColumn | None,
    start: int,
    stop: int,
    timestamps_ms: Buffer | None = None,
    *,
    magic: int,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    base_offset: int = 0,
    offsets: Buffer | None = None,
    log_append_time_ms: int | None = None,
) -> bytearray:
    """Build a message set of format `magic` from the rows [start, stop): plain messages, or all in one wrapper.

    The first message is at `base_offset`, and the others follow, unless `offsets` (int64, rising) has the offset of
    each row. A column that is None is null in every row. `log_append_time_ms` is the timestamp of all messages; format
    0 has no timestamps. Raises ValueError without rows, for columns that do not have these rows, for offsets that do
    not rise, and for 2 GiB or more; InvalidTimestamp; UnsupportedCompressionType for zstd.
    """
    check_magic(magic)
    check_codec(codec, magic)
    if stop <= start:
        raise ValueError("a message set needs at least one message")
    stamped = magic == 1 and log_append_time_ms is not None
    stamp = TimestampType.LOG_APPEND_TIME if stamped else TimestampType.CREATE_TIME
    if stamped and log_append_time_ms is not None:
        check_timestamp(magic, log_append_time_ms, stamp)
    columns = (*_flat_column(keys), *_flat_column(values))
    overhead = LOG_OVERHEAD_BYTES + MESSAGE_OVERHEAD_BYTES[magic]
    reached, size = message_kernel.measure(*columns, start, stop, overhead, INT32_MAX)
    if reached != stop or size > INT32_MAX:
        raise ValueError(
            f"row {size} does not lie in its columns" if reached < 0 else "the rows do not fit a message set of 2 GiB"
        )
    placed = _NO_LONGS if offsets is None else as_int64s(offsets)
    is_relative = magic == 1 and codec is not Codec.NONE
    base = 0 if is_relative or offsets is not None else base_offset
    if is_relative and offsets is not None and start < len(placed):
        base = placed[start]
    body = message_kernel.unwritten(size)
    problem, row, latest = message_kernel.build(
        *columns, _NO_LONGS if timestamps_ms is None else as_int64s(timestamps_ms), placed, start, stop, magic,
        LOG_APPEND_TIME_BIT if stamped else 0, base, stamped, log_append_time_ms or 0, body, 0,
    )  # fmt: skip
    if problem == message_kernel.BAD_TIMESTAMP:
        check_timestamp(magic, as_int64s(timestamps_ms or _NO_LONGS)[row], stamp)
        raise InvalidTimestamp(f"row {row}: {message_kernel.PROBLEMS[problem]}")
    if problem:
        raise ValueError(f"row {row} of a message set: {message_kernel.PROBLEMS[problem]}")
    if row != size:
        raise ValueError("the columns changed while a message set was built from them")
    if codec is Codec.NONE:
        return body
    last_offset = base_offset + stop - start - 1 if offsets is None else placed[stop - 1]
    return wrap(body, last_offset, magic, codec, latest if magic else NO_TIMESTAMP, stamp, level)


def _flat_column(column: BinaryColumn | None) -> tuple[memoryview, memoryview, memoryview]:
    if column is None:
        return _NO_INTS, _NO_BYTES, _NO_BYTES
    validity = None if column.null_count == 0 else column.validity
    return as_int32s(column.offsets), as_bytes(column.data), _NO_BYTES if validity is None else as_bytes(validity)
