"""The compaction writer: writes the batches that stay in large writes, and the indexes of the cleaned segment."""

from array import array
from collections.abc import Callable

from headrace.limits import INT64_MAX
from headrace.log.files import Bytes
from headrace.log.recovery import recovery_kernel
from headrace.log.segment.segment import Segment
from headrace.log.segment.time_index import TimestampOffset

OUT_BYTES = 256 << 10
ENTRIES_MAX = 1024


class CleanedWriter:
    """Writes one segment, which is empty at first.

    `out[:at]` and the entries of `places` and `times` wait to be written behind the first `written` bytes.
    `compaction_runs` adds to them directly.
    """

    def __init__(self, segment: Segment, index_interval_bytes: int, spend: Callable[[int], None]) -> None:
        """`spend` is called with the number of bytes of each write."""
        self.segment = segment
        self.state = recovery_kernel.new_state(segment.base_offset, INT64_MAX, index_interval_bytes, -1)
        self.out = memoryview(bytearray(OUT_BYTES))
        self.at = 0
        self.written = 0
        self.places = array("q", bytes(16 * ENTRIES_MAX))
        self.placed = 0
        self.times = array("q", bytes(16 * ENTRIES_MAX))
        self.timed = 0
        self._spend = spend

    def add(self, batch: Bytes, last_offset: int, max_timestamp_ms: int) -> None:
        """Write one batch. A batch without records has the timestamp -1. Raises OSError."""
        size = len(batch)
        if size > len(self.out) - self.at or self.placed == ENTRIES_MAX:
            self.flush()
        self.placed, self.timed = recovery_kernel.note(
            self.state, self.places, self.placed, self.times, self.timed, self.written + self.at, size, last_offset,
            max_timestamp_ms
        )  # fmt: skip
        if size > len(self.out):
            self._write(batch)
        else:
            self.out[self.at : self.at + size] = batch
            self.at += size

    def make_room(self) -> None:
        """Write the waiting bytes and entries when the buffers are more than half full. Raises OSError."""
        if self.at > OUT_BYTES // 2 or self.placed > ENTRIES_MAX // 2:
            self.flush()

    def flush(self) -> None:
        """Write the waiting bytes and entries. Raises OSError."""
        if self.at:
            at, self.at = self.at, 0
            self._write(self.out[:at])
        if self.placed:
            self.segment.indexes.note_stretch(self.places[: 2 * self.placed], self.times[: 2 * self.timed])
            self.placed = self.timed = 0

    def _write(self, data: Bytes) -> None:
        self.segment.file.write(data, self.written)
        self.written += len(data)
        self._spend(len(data))

    def finish(self) -> None:
        """Write everything, and close the segment for appends. Raises OSError."""
        self.flush()
        largest = TimestampOffset(self.state[recovery_kernel.LARGEST_MS], self.state[recovery_kernel.OFFSET_OF_LARGEST])
        self.segment.records.size = self.written
        self.segment.finish_recovery(self.written, largest, self.state[recovery_kernel.UNINDEXED_BYTES])
