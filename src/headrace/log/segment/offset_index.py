"""The sparse offset index of a segment: maps offsets to byte positions.

A read starts at most `index.interval.bytes` (and one batch) before the record it looks for.

    entry:  relative_offset int32 | position int32      big-endian, 8 bytes, ascending in both

`relative_offset` is the last offset of a batch minus the segment's base offset. `position` is the batch's first byte.
No entry points to position 0, because the first batch needs no index. Source: Kafka's OffsetIndex.
"""

import sys
from array import array
from bisect import bisect_right
from struct import Struct

from headrace.log.files import Files
from headrace.log.segment.index_file import RELATIVE_OFFSET_MAX, IndexFile, check_columns, entries_below, used_part

ENTRY = Struct(">ii")


class OffsetIndex(IndexFile):
    """The offset index of one segment: `keys` are relative offsets, `values` positions."""

    __slots__ = ()
    ENTRY = ENTRY
    KEY_TYPE = "i"

    @classmethod
    def read_columns(cls, data: bytes, name: str) -> "tuple[array[int], array[int]]":
        """The relative offsets and the positions in an offset index file's content. Raises CorruptIndex."""
        both = array("i", used_part(data, ENTRY, name))
        if sys.byteorder == "little":
            both.byteswap()
        offsets, positions = both[0::2], both[1::2]
        check_columns(offsets, positions, name, strictly=True)
        return offsets, positions

    @property
    def is_full(self) -> bool:
        """Whether the index has no room for another entry, so that the segment has to roll."""
        return len(self.keys) >= self.entries_max

    @property
    def last_position(self) -> int:
        """The position of the last entry; 0 when there is none."""
        return self.values[-1] if self.values else 0

    def lookup(self, target_offset: int) -> int:
        """Byte position of the last entry at or below `target_offset`; 0 when there is none."""
        return self.entry_below(target_offset)[1]

    def entry_below(self, target_offset: int) -> tuple[int, int]:
        """Offset and position of the last entry at or below `target_offset`; (base offset, 0) when there is none."""
        slot = bisect_right(self.keys, min(target_offset - self.base_offset, RELATIVE_OFFSET_MAX)) - 1
        return (self.base_offset + self.keys[slot], self.values[slot]) if slot >= 0 else (self.base_offset, 0)

    def append(self, files: Files, last_offset: int, position: int) -> None:
        """Add an entry for the batch that ends with `last_offset` and begins at `position`."""
        self.add(files, last_offset - self.base_offset, position)

    def truncate_to(self, offset: int) -> None:
        """Drop every entry at or above `offset`."""
        self.keep(entries_below(self.keys, offset - self.base_offset))
