"""The sparse time index of a segment: maps timestamps to offsets.

    entry:  timestamp_ms int64 | relative_offset int32      big-endian, 12 bytes, ascending in both

An entry (T, O) says that T is the largest timestamp of the segment up to offset O (inclusive), and that the batch that
ends with O is the first to reach T. All earlier batches have smaller timestamps, so a search for T begins there. The
last entry of a closed segment has the segment's largest timestamp. A roll or a close writes it.
Source: Kafka's TimeIndex.
"""

from array import array
from bisect import bisect_right
from struct import Struct
from typing import NamedTuple

from headrace.log.files import Files
from headrace.log.segment.index_file import IndexFile, check_columns, entries_below, used_part

ENTRY = Struct(">qi")
NO_TIMESTAMP = -1


class TimestampOffset(NamedTuple):
    """A timestamp, and the last offset of the batch that first reached it."""

    timestamp_ms: int
    offset: int


class TimeIndex(IndexFile):
    """The time index of one segment: `keys` are timestamps, `values` relative offsets."""

    __slots__ = ()
    ENTRY = ENTRY
    KEY_TYPE = "q"

    @classmethod
    def read_columns(cls, data: bytes, name: str) -> "tuple[array[int], array[int]]":
        """The timestamps in ms and the relative offsets in a time index file's content. Raises CorruptIndex."""
        timestamps, offsets = array("q"), array("i")
        for timestamp_ms, relative_offset in ENTRY.iter_unpack(used_part(data, ENTRY, name)):
            timestamps.append(timestamp_ms)
            offsets.append(relative_offset)
        check_columns(timestamps, offsets, name, strictly=False)
        return timestamps, offsets

    @property
    def is_full(self) -> bool:
        """Whether the segment has to roll. One slot is reserved for the entry that a roll writes."""
        return len(self.keys) >= self.entries_max - 1

    @property
    def last(self) -> TimestampOffset:
        """The last entry; (-1, base offset) when there is none."""
        return self._entry(len(self.keys) - 1)

    def lookup(self, timestamp_ms: int) -> TimestampOffset:
        """The last entry at or below a time; (-1, base offset) when there is none."""
        return self._entry(bisect_right(self.keys, timestamp_ms) - 1)

    def append(self, files: Files, timestamp_ms: int, offset: int) -> None:
        """Add an entry, if its timestamp is larger than the last one."""
        if timestamp_ms > NO_TIMESTAMP:
            self.add(files, timestamp_ms, offset - self.base_offset)

    def truncate_to(self, offset: int) -> None:
        """Drop every entry at or above `offset`."""
        self.keep(entries_below(self.values, offset - self.base_offset))

    def _entry(self, slot: int) -> TimestampOffset:
        if slot < 0:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        return TimestampOffset(self.keys[slot], self.base_offset + self.values[slot])
