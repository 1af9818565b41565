"""The recovery scan: reads the batches of a segment file in windows, to check everything or only to find producers.

    window   |batch|batch|batch|…|bat|     one MiB, always read into the same buffer
             '---- recovery_kernel ---'    all good batches of format 2 in one call, at the cost of their CRC
                                  '---'    the kernel stops here, and this module checks the next batch: it is cut off
                                           by the window, has another format, or is bad

`batch_scan.read_checked` gives the same results batch by batch, and the tests compare the two.
"""

from array import array
from collections.abc import Iterator
from typing import NamedTuple

from headrace.errors import CorruptMessage
from headrace.limits import INT32_MAX
from headrace.log.files import LogFile
from headrace.log.recovery import recovery_kernel as kernel
from headrace.log.segment.index_file import RELATIVE_OFFSET_MAX
from headrace.log.segment.time_index import NO_TIMESTAMP
from headrace.records.any_format import (
    ANY_HEADER_BYTES_MIN,
    any_crc_is_valid,
    any_header_bytes,
    read_any_header,
)
from headrace.records.format2.header import HEADER_BYTES, BatchHeader, read_header

WINDOW_BYTES = 1 << 20
ENTRIES_MAX = 4096
EPOCHS_MAX = 64
NOTED_MAX = 8192
_INT64_MAX = (1 << 63) - 1


class Stretch(NamedTuple):
    """The index entries and leader epochs of some consecutive good batches.

    `places`, `times` and `epochs` are flat int64 columns of two numbers an entry, as in `recovery_kernel`.
    """

    size_bytes: int
    places: "array[int]"
    times: "array[int]"
    epochs: "array[int]"


class _Window:
    """A part of a file in a buffer, and the kernel's output buffers."""

    def __init__(self, file: LogFile, end: int, bytes_max: int) -> None:
        self.file = file
        self.end = end
        self.start = 0
        self.filled = 0
        self.buffer = memoryview(bytearray(min(bytes_max, end)))
        self.batches_max = len(self.buffer) // HEADER_BYTES + 1
        noted = min(NOTED_MAX, self.batches_max)
        self.noted = array("q", bytes(8 * noted))
        self.table = array("q", bytes(8 * kernel.table_size(noted)))

    def move_to(self, position: int, size: int = 0) -> None:
        """Read the file from `position` into the buffer, at least `size` bytes unless the file ends before."""
        if size > len(self.buffer):
            self.buffer = memoryview(bytearray(size))
        wanted = min(len(self.buffer), self.end - position)
        self.start, self.filled = position, self.file.read_into(self.buffer[:wanted], position)
        if self.filled < wanted:
            self.end = position + self.filled


class CheckedScan:
    """One pass over a segment file, up to its first bad byte. `batch_scan.read_checked` defines what is bad."""

    def __init__(
        self, file: LogFile, end: int, base_offset: int, *, interval_bytes: int, leader_epoch: int = -1
    ) -> None:
        """The scan ends at `end` (exclusive, in bytes). `interval_bytes` is `index.interval.bytes`.

        Leader epochs up to `leader_epoch` (inclusive) are known already.
        """
        self.position = 0
        """The end of the last good batch, in bytes (exclusive)."""
        self.producer_positions = array("q")
        """The positions of the batches that the producer state depends on: see `recovery_kernel`."""
        offset_max = min(base_offset + RELATIVE_OFFSET_MAX, _INT64_MAX - 1)
        self._offset_max = offset_max
        self._state = kernel.new_state(base_offset, offset_max, min(interval_bytes, INT32_MAX), leader_epoch)
        self._file = file
        self._end = end

    @property
    def next_offset(self) -> int:
        """The offset after the last good batch."""
        return self._state[kernel.NEXT_OFFSET]

    @property
    def largest_timestamp_ms(self) -> int:
        """The largest timestamp of all batches; -1 without any."""
        return self._state[kernel.LARGEST_MS]

    @property
    def offset_of_largest(self) -> int:
        """The last offset of the first batch with the largest timestamp."""
        return self._state[kernel.OFFSET_OF_LARGEST]

    @property
    def unindexed_bytes(self) -> int:
        """The number of bytes behind the batch of the last index entry."""
        return self._state[kernel.UNINDEXED_BYTES]

    def run(self) -> Iterator[Stretch]:
        """Scan to the end or the first bad byte, and yield the good batches. Raises OSError."""
        if not self._end:
            return
        window = _Window(self._file, self._end, WINDOW_BYTES)
        window.move_to(0)
        entries = bytes(16 * min(ENTRIES_MAX, window.batches_max))
        places, times, epochs = array("q", entries), array("q", entries), array("q", bytes(16 * EPOCHS_MAX))
        while self.position < window.end:
            before = self.position
            stop, placed, timed, changes, noted = kernel.take(
                window.buffer, before - window.start, window.filled, window.start,
                self._state, places, times, epochs, window.noted, window.table,
            )  # fmt: skip
            self.position = window.start + stop
            if self.position == before:
                header = self._judge(window)
                if header is None:
                    return
                placed, timed, changes = self._note(header, places, times, epochs)
                noted = 0
                if header.producer_id >= 0:
                    self.producer_positions.append(before)
            self.producer_positions += window.noted[:noted]
            yield Stretch(self.position - before, places[: 2 * placed], times[: 2 * timed], epochs[: 2 * changes])

    def _judge(self, window: _Window) -> BatchHeader | None:
        """The header of the batch at `position`, or None when the batch is bad. May move the window."""
        left = window.end - self.position
        if self.position + min(HEADER_BYTES, left) > window.start + window.filled:
            window.move_to(self.position)
            left = window.end - self.position
        try:
            header = read_any_header(window.buffer[: window.filled], self.position - window.start)
        except CorruptMessage:
            return None
        if header.size_bytes > left or not (
            self.next_offset <= header.base_offset <= self._offset_max - header.last_offset_delta
        ):
            return None
        if self.position + header.size_bytes > window.start + window.filled:
            window.move_to(self.position, header.size_bytes)
        if not any_crc_is_valid(window.buffer, self.position - window.start, header):
            return None
        return header

    def _note(
        self, header: BatchHeader, places: "array[int]", times: "array[int]", epochs: "array[int]"
    ) -> tuple[int, int, int]:
        """Note a good batch as the kernel does, and return the number of entries in each column."""
        state, changes = self._state, 0
        latest_ms = header.max_timestamp if header.record_count else NO_TIMESTAMP  # compaction emptied the batch
        placed, timed = kernel.note(
            state, places, 0, times, 0, self.position, header.size_bytes, header.last_offset, latest_ms
        )
        if header.leader_epoch > state[kernel.LEADER_EPOCH]:
            state[kernel.LEADER_EPOCH] = epochs[0] = header.leader_epoch
            epochs[1] = header.base_offset
            changes = 1
        state[kernel.NEXT_OFFSET] = header.next_offset
        self.position += header.size_bytes
        return placed, timed, changes


def producer_batches(
    file: LogFile, position: int, end: int, from_offset: int, to_offset: int
) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of the batches that the producer state depends on.

    Covers the bytes from `position` to `end` (exclusive), and the base offsets from `from_offset` to `to_offset`
    (exclusive). Raises CorruptMessage as `batch_scan.read_headers`, and OSError.
    """
    if position >= end:
        return
    window = _Window(file, end, WINDOW_BYTES)
    window.move_to(position)
    while position + ANY_HEADER_BYTES_MIN <= window.end:
        at = position - window.start
        stop, noted = kernel.find_producers(
            window.buffer, at, window.filled, window.start, from_offset, to_offset, window.noted, window.table
        )
        for each in window.noted[:noted]:
            yield each, read_header(window.buffer, each - window.start)
        if stop > at:
            position = window.start + stop
            continue
        if at + min(HEADER_BYTES, window.end - position) > window.filled:
            window.move_to(position)
            at = 0
        seen = window.buffer[: window.filled]
        if position + any_header_bytes(seen, at) > window.end:
            return
        header = read_any_header(seen, at)
        if header.base_offset >= to_offset or position + header.size_bytes > window.end:
            return
        if header.producer_id >= 0 and header.base_offset >= from_offset:
            yield position, header
        position += header.size_bytes
        if position > window.start + window.filled:
            window.move_to(position)
