# cython: language_level=3, annotation_typing=False, binding=False
"""The tail cache: the positions of the newest batches, for consumers at the end of the log.

It has two ascending columns, and drops their older half when they are full. The batches follow each other without a gap
in the file, so a batch ends at the position of the next one. Compiled, because each append adds to it and most reads
look into it; it also runs uncompiled.
"""

from array import array
from bisect import bisect_right

BATCHES_MAX = 512

_EMPTY = array("q")
"""Of all caches without batches: columns of their own would take 160 bytes of each partition. Never written to."""


class TailCache:
    """The base offsets and positions of the newest batches of the active segment."""

    __slots__ = ("offsets", "positions")

    def __init__(self) -> None:
        self.offsets = self.positions = _EMPTY

    def add(self, base_offset: int, position: int) -> None:
        """Add a batch behind the last one."""
        if not self.offsets:
            self.offsets, self.positions = array("q"), array("q")
        self.offsets.append(base_offset)
        self.positions.append(position)
        if len(self.offsets) > BATCHES_MAX:
            del self.offsets[: BATCHES_MAX // 2], self.positions[: BATCHES_MAX // 2]

    def find(self, offset: int, segment_size: int) -> tuple[int, int] | None:
        """Position and size in bytes of the batch that holds `offset`; None when it is older than the cache.

        `offset` must be below the log end offset.
        """
        slot = bisect_right(self.offsets, offset)
        if slot == 0:
            return None
        position = self.positions[slot - 1]
        return position, (self.positions[slot] if slot < len(self.positions) else segment_size) - position
