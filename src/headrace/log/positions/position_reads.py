"""Reads a log in the form of Kafka 0.7: measures records, and encodes those from a position on.

    measure         the sizes of stretches of records, for the index
    EntryReader     skips to a position, then encodes messages of magic 1 up to a number of bytes

Both work on ranges of segment files that the log's owner found, and run on any thread. A record has neither key, nor
timestamp, nor headers in 0.7; a null value is an empty payload. The records of control batches have no form.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from headrace.errors import CorruptMessage, OffsetOutOfRange, StorageError
from headrace.log.positions.position_file import Pair
from headrace.log.positions.position_index import STEP_BYTES
from headrace.log.segment_list import SegmentRange
from headrace.records.any_format import any_header_bytes, read_any_header
from headrace.records.binary import as_int32s
from headrace.records.format2.columns import RecordColumns, scan_spans
from headrace.records.format2.header import MAGIC
from headrace.records.legacy.format_07 import OVERHEAD_BYTES, encode_rows
from headrace.records.legacy.message_columns import scan_message_set

ENTRY_OVERHEAD_BYTES = OVERHEAD_BYTES[1]
_MAGIC_AT = 16


class _Measured(NamedTuple):
    size_bytes: int
    next_offset: int
    bytes_consumed: int


class _Scanned(NamedTuple):
    columns: RecordColumns
    next_offset: int
    bytes_consumed: int


_Found = TypeVar("_Found", _Measured, _Scanned)


def measure(range_: SegmentRange, start: Pair, end_offset: int) -> list[Pair]:
    """The pairs after `start`, one for each chunk of about STEP_BYTES, up to the range's end or `end_offset`.

    The range begins with the batch that holds `start`. Raises CorruptMessage, StorageError.
    """
    pairs = []
    position = start.position
    for found in _chunks(range_, start.offset, end_offset, _measured):
        position += found.size_bytes
        pairs.append(Pair(found.next_offset, position))
    return pairs


class EntryReader:
    """Encodes up to `max_bytes` from a position on. The last message may be cut, as in 0.7."""

    def __init__(self, start: Pair, wanted: int, end_offset: int, max_bytes: int) -> None:
        """`start` is at or before the position `wanted`. Records from `end_offset` on are not read."""
        self.reached = start
        """Where the next range has to begin."""
        self.border: Pair | None = None
        """The last border between messages at or before the end of `data`."""
        self.data = bytearray()
        self._wanted, self._end_offset, self._max_bytes = wanted, end_offset, max_bytes

    @property
    def is_done(self) -> bool:
        """Whether there are `max_bytes`, or no further record."""
        return len(self.data) >= self._max_bytes or self.reached.offset >= self._end_offset

    def read(self, range_: SegmentRange) -> None:
        """Read on in a range that begins with the batch that holds `reached`.

        Raises OffsetOutOfRange when no message begins at the position; CorruptMessage, StorageError.
        """
        before = self.reached
        for found in _chunks(range_, before.offset, self._end_offset, _scanned):
            self._take(found)
            if self.is_done:
                return
        if self.reached.offset == before.offset:
            raise CorruptMessage(f"the log cannot be read at offset {before.offset}")

    def _take(self, found: _Scanned) -> None:
        columns, (_, position) = found.columns, self.reached
        assert columns.values is not None
        ends = as_int32s(columns.values.offsets)
        count = columns.count

        def size_to(row: int) -> int:
            return ENTRY_OVERHEAD_BYTES * row + int(ends[row])

        total = size_to(count)
        self.reached = Pair(found.next_offset, position + total)
        missing = self._wanted - position  # negative in chunks after the first message
        if missing > total:
            return
        first = bisect_left(range(count + 1), missing, key=size_to) if missing > 0 else 0
        if missing > 0 and size_to(first) != missing:
            raise OffsetOutOfRange(f"no message begins at position {self._wanted}")
        room = missing + self._max_bytes
        stop = min(count, bisect_left(range(count + 1), room, key=size_to))
        self.data += encode_rows(columns.values, first, stop)
        del self.data[self._max_bytes :]
        whole = stop if size_to(stop) <= room else stop - 1
        offset = found.next_offset if whole == count else columns.offsets[whole]
        self.border = Pair(offset, position + size_to(whole))


def _chunks(
    range_: SegmentRange, offset: int, end_offset: int, scan: Callable[[bytes, int, int], _Found]
) -> Iterator[_Found]:
    position, end = range_.position, range_.position + range_.size
    while position < end and offset < end_offset:
        try:
            chunk = range_.file.read(min(STEP_BYTES, end - position), position)
            if len(chunk) < any_header_bytes(chunk):  # the range ends inside a batch
                return
            size = read_any_header(chunk).size_bytes
            if size > len(chunk):
                if position + size > end:
                    return
                chunk = range_.file.read(size, position)
        except OSError as error:
            raise StorageError(f"the log could not be read: {error}") from error
        found = scan(chunk, offset, end_offset)
        if found.next_offset <= offset:
            return
        yield found
        position += found.bytes_consumed
        offset = found.next_offset


def _measured(chunk: bytes, offset: int, end_offset: int) -> _Measured:
    if chunk[_MAGIC_AT] >= MAGIC:
        table, next_offset, consumed = scan_spans(chunk, from_offset=offset, to_offset=end_offset)
        return _Measured(ENTRY_OVERHEAD_BYTES * table.count + table.value_bytes, next_offset, consumed)
    columns = scan_message_set(chunk, from_offset=offset, to_offset=end_offset, keys=False)
    assert columns.values is not None
    size = ENTRY_OVERHEAD_BYTES * columns.count + len(columns.values.data)
    return _Measured(size, columns.next_offset, columns.bytes_consumed)


def _scanned(chunk: bytes, offset: int, end_offset: int) -> _Scanned:
    if chunk[_MAGIC_AT] >= MAGIC:
        table, next_offset, consumed = scan_spans(chunk, from_offset=offset, to_offset=end_offset)
        return _Scanned(table.columns(False, True, False, next_offset, consumed), next_offset, consumed)
    columns = scan_message_set(chunk, from_offset=offset, to_offset=end_offset, keys=False)
    return _Scanned(columns, columns.next_offset, columns.bytes_consumed)
