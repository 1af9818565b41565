"""Where the batches lie that were appended last: a consumer at the tail asks for one of them.

Two ascending columns, of which the older half is dropped when they are full. The batches follow each other without a
gap in the file, so one's end is the next one's position.
"""

from array import array
from bisect import bisect_right

BATCHES_MAX = 512


class RecentBatches:
    """The base offsets and positions of the newest batches of the active segment."""

    __slots__ = ("offsets", "positions")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.positions = array("q")

    def add(self, base_offset: int, position: int) -> None:
        """Note a batch behind the last."""
        self.offsets.append(base_offset)
        self.positions.append(position)
        if len(self.offsets) > BATCHES_MAX:
            del self.offsets[: BATCHES_MAX // 2], self.positions[: BATCHES_MAX // 2]

    def find(self, offset: int, segment_size: int) -> tuple[int, int] | None:
        """Position and size of the batch that holds `offset`, which lies before the log's end; None when it is older
        than what is kept."""
        slot = bisect_right(self.offsets, offset)
        if slot == 0:
            return None
        position = self.positions[slot - 1]
        return position, (self.positions[slot] if slot < len(self.positions) else segment_size) - position
