"""Sparse offset index of one segment: offsets to byte positions.

A read starts at most `index.interval.bytes` (and one batch) before the record it looks for.

    entry:  relative_offset int32 | position int32      big-endian, 8 bytes, ascending in both

`relative_offset` is the last offset of a batch minus the segment's base offset; `position` is where that batch
begins. No entry points to position 0: nothing is needed to find the first batch. Source: Kafka's OffsetIndex.
"""

import sys
from array import array
from bisect import bisect_right
from pathlib import Path
from struct import Struct

from headrace.log.files import Files
from headrace.log.index_file import (
    RELATIVE_OFFSET_MAX,
    CorruptIndex,
    IndexFile,
    entries_below,
    is_ascending,
    read_used,
    used_part,
)

ENTRY = Struct(">ii")


def read_columns(data: bytes, name: str) -> "tuple[array[int], array[int]]":
    """The relative offsets and the positions of an index file's content. Raises CorruptIndex."""
    both = array("i", used_part(data, ENTRY, name))
    if sys.byteorder == "little":
        both.byteswap()
    offsets, positions = both[0::2], both[1::2]
    if offsets and (offsets[0] < 0 or positions[0] < 0):
        raise CorruptIndex(f"{name}: begins with a negative entry")
    if not (is_ascending(offsets, strictly=True) and is_ascending(positions, strictly=True)):
        raise CorruptIndex(f"{name}: entries are not ascending")
    return offsets, positions


class OffsetIndex(IndexFile):
    """The offset index of one segment: `keys` are relative offsets, `values` positions."""

    __slots__ = ()

    def __init__(self, path: Path, base_offset: int, bytes_max: int) -> None:
        super().__init__(path, base_offset, bytes_max, ENTRY, array("i"))

    @classmethod
    def load(cls, files: Files, path: Path, base_offset: int, bytes_max: int) -> "OffsetIndex":
        """Read the file. Raises CorruptIndex, or FileNotFoundError."""
        index = cls(path, base_offset, bytes_max)
        index.keys, index.values = read_columns(read_used(files, path), path.name)
        index.written_bytes = len(index) * ENTRY.size
        return index

    @property
    def is_full(self) -> bool:
        """Whether the segment has to be rolled before another entry."""
        return len(self.keys) >= self.entries_max

    @property
    def last_position(self) -> int:
        """The position of the last entry; 0 when there is none."""
        return self.values[-1] if self.values else 0

    def lookup(self, target_offset: int) -> int:
        """Byte position of the last entry at or below `target_offset`; 0 when there is none."""
        slot = bisect_right(self.keys, min(target_offset - self.base_offset, RELATIVE_OFFSET_MAX)) - 1
        return self.values[slot] if slot >= 0 else 0

    def entry_below(self, target_offset: int) -> tuple[int, int]:
        """The last entry at or below `target_offset`, as offset and position; the base offset at 0 without one."""
        slot = bisect_right(self.keys, min(target_offset - self.base_offset, RELATIVE_OFFSET_MAX)) - 1
        return (self.base_offset + self.keys[slot], self.values[slot]) if slot >= 0 else (self.base_offset, 0)

    def append(self, files: Files, last_offset: int, position: int) -> None:
        """Add an entry for the batch that ends with `last_offset` and begins at `position`."""
        relative_offset = last_offset - self.base_offset
        if not self.keys or relative_offset > self.keys[-1]:
            self.add(files, relative_offset, position)

    def truncate_to(self, offset: int) -> None:
        """Drop every entry at or above `offset`."""
        self.keep(entries_below(self.keys, offset - self.base_offset))
