"""Sparse time index of one segment: timestamps to offsets.

    entry:  timestamp_ms int64 | relative_offset int32      big-endian, 12 bytes, ascending in both

An entry (T, O) says: T is the largest timestamp of the segment up to offset O, and the batch that ends with O is
the first that reached it. So nothing before that batch is as late as T, and a search for a time begins there.
The last entry of a closed segment holds its largest timestamp: it is written when the segment is rolled or closed.
Source: Kafka's TimeIndex.
"""

from array import array
from bisect import bisect_right
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from headrace.log.files import Files
from headrace.log.index_file import CorruptIndex, IndexFile, entries_below, is_ascending, read_used, used_part

ENTRY = Struct(">qi")
NO_TIMESTAMP = -1


class TimestampOffset(NamedTuple):
    """A timestamp, and the last offset of the batch that first reached it."""

    timestamp_ms: int
    offset: int


def read_columns(data: bytes, name: str) -> "tuple[array[int], array[int]]":
    """The timestamps and the relative offsets of a time index file's content. Raises CorruptIndex."""
    timestamps, offsets = array("q"), array("i")
    for timestamp_ms, relative_offset in ENTRY.iter_unpack(used_part(data, ENTRY, name)):
        timestamps.append(timestamp_ms)
        offsets.append(relative_offset)
    if timestamps and (timestamps[0] < 0 or offsets[0] < 0):
        raise CorruptIndex(f"{name}: begins with a negative entry")
    if not (is_ascending(timestamps, strictly=True) and is_ascending(offsets, strictly=False)):
        raise CorruptIndex(f"{name}: entries are not ascending")
    return timestamps, offsets


class TimeIndex(IndexFile):
    """The time index of one segment: `keys` are timestamps, `values` relative offsets."""

    __slots__ = ()

    def __init__(self, path: Path, base_offset: int, bytes_max: int) -> None:
        super().__init__(path, base_offset, bytes_max, ENTRY, array("q"))

    @classmethod
    def load(cls, files: Files, path: Path, base_offset: int, bytes_max: int) -> "TimeIndex":
        """Read the file. Raises CorruptIndex, or FileNotFoundError."""
        index = cls(path, base_offset, bytes_max)
        index.keys, index.values = read_columns(read_used(files, path), path.name)
        index.written_bytes = len(index) * ENTRY.size
        return index

    @property
    def is_full(self) -> bool:
        """Whether the segment has to be rolled; one slot is kept for the entry that a roll writes."""
        return len(self.keys) >= self.entries_max - 1

    @property
    def last(self) -> TimestampOffset:
        """The last entry; no timestamp at the base offset when there is none."""
        return self._entry(len(self.keys) - 1)

    def lookup(self, timestamp_ms: int) -> TimestampOffset:
        """The last entry at or below a time; no timestamp at the base offset when there is none."""
        return self._entry(bisect_right(self.keys, timestamp_ms) - 1)

    def append(self, files: Files, timestamp_ms: int, offset: int) -> None:
        """Add an entry; nothing unless the timestamp is larger than the last one."""
        if timestamp_ms > (self.keys[-1] if self.keys else NO_TIMESTAMP):
            self.add(files, timestamp_ms, offset - self.base_offset)

    def truncate_to(self, offset: int) -> None:
        """Drop every entry at or above `offset`."""
        self.keep(entries_below(self.values, offset - self.base_offset))

    def _entry(self, slot: int) -> TimestampOffset:
        if slot < 0:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        return TimestampOffset(self.keys[slot], self.base_offset + self.values[slot])
