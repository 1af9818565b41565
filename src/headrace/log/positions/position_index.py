"""The position index of a log: sparse pairs of an offset and its position in Kafka 0.7's form of the log.

    offsets      0        3200     6417    …   end_offset         the records in between are found by a scan
    positions    0        352000   706210  …   end_position       10 + n bytes a record, n the bytes of its value

In Kafka 0.7 the offset of a message was its byte position among all messages that the partition ever had. Here it is
the sum of the sizes that the records before would have there, uncompressed and in magic 1, whatever they are stored as.
So it follows from the records alone, and replicas agree on it. Retention deletes records whose sizes count: a position
is known only from an *anchor*, a pair that the leader keeps in the metadata store. The generation is the anchor's.

Entries are at least `STEP_BYTES` apart, except the last one, which moves, and those where a segment begins: from them
the rest is counted when the segments before are deleted. `position_file` keeps them on the disk. What is missing there
is scanned again.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable

from headrace.log.positions.position_file import Pair, StoredPositions, Unwritten

STEP_BYTES = 256 << 10
"""The bytes between two entries, which a look-up has to scan: 64 MiB of memory for each TiB of positions."""

WRITTEN_AT_ONCE_MAX = 10_000
"""Entries written by one call: 200 KB."""

RECENT_MAX = 64
"""Exact pairs kept in memory beside the entries: where readers continue."""

NOT_ANCHORED = -1
"""`anchored_to` of an index whose anchor has yet to be stored."""


class PositionIndex:
    """The index of one log, owned by the log's owner."""

    def __init__(self, start: Pair, generation: int) -> None:
        """`start` is the first pair: no record before it has a position."""
        self.generation = generation
        self._offsets, self._positions = array("q", [start.offset]), array("q", [start.position])
        self._recent: dict[int, int] = {}
        self._written = 0
        """How many of the entries, from the first one on, the file has; 0 when it has to be made."""
        self._is_settled = False
        """Whether the last entry stays."""
        self._dead = 0
        """How many entries the file has before them."""
        self.anchored_to = NOT_ANCHORED
        """The offset of the anchor in the metadata store."""

    @classmethod
    def restored(cls, stored: StoredPositions) -> "PositionIndex":
        """The index in a file, whose columns it takes over."""
        made = cls(stored.first, stored.generation)
        made._offsets, made._positions = stored.offsets, stored.positions
        made._written = max(1, len(stored.offsets) - 1)  # the last one may move
        return made

    @property
    def start(self) -> Pair:
        """The first pair."""
        return Pair(self._offsets[0], self._positions[0])

    @property
    def end(self) -> Pair:
        """The last pair: records from its offset on are not indexed yet."""
        return Pair(self._offsets[-1], self._positions[-1])

    @property
    def deletable_to(self) -> int:
        """The offset up to which (exclusive) segments may be deleted: later positions are known without them."""
        return min(self._offsets[-1], self.anchored_to)

    def __len__(self) -> int:
        return len(self._offsets)

    def pairs(self) -> Iterable[Pair]:
        """All pairs, ascending."""
        return map(Pair, self._offsets, self._positions)

    # Looking up

    def before_offset(self, offset: int) -> Pair:
        """The last pair at or below an offset. Raises ValueError for an offset below the start."""
        return self._at(bisect_right(self._offsets, offset), f"offset {offset}")

    def before_position(self, position: int) -> Pair:
        """The last pair at or below a position. Raises ValueError for a position below the start."""
        offset = self._recent.get(position)
        if offset is not None:
            return Pair(offset, position)
        return self._at(bisect_right(self._positions, position), f"position {position}")

    def _at(self, after: int, what: str) -> Pair:
        if not after:
            raise ValueError(f"{what} is below the start of the index, {self.start}")
        return Pair(self._offsets[after - 1], self._positions[after - 1])

    def remember(self, pair: Pair) -> None:
        """Keep an exact pair for the reader that continues there."""
        if len(self._recent) >= RECENT_MAX:
            del self._recent[next(iter(self._recent))]
        self._recent[pair.position] = pair.offset

    # Changing

    def add(self, pair: Pair) -> None:
        """Move the end to a later pair. Raises ValueError for one that is not later."""
        if pair.offset <= self._offsets[-1] or pair.position < self._positions[-1]:
            raise ValueError(f"{pair} is not after {self.end}")
        if len(self._offsets) > 1 and not self._is_settled and pair.position - self._positions[-2] < STEP_BYTES:
            self._offsets[-1], self._positions[-1] = pair
            return
        self._is_settled = False
        self._offsets.append(pair.offset)
        self._positions.append(pair.position)

    def settle(self) -> None:
        """Keep the last pair: a segment begins there."""
        self._is_settled = True

    def truncate(self, offset: int) -> bool:
        """Forget the pairs above an offset; False if none is left, and the index is of no use."""
        self._recent = {position: each for position, each in self._recent.items() if each <= offset}
        kept = bisect_right(self._offsets, offset)
        self._is_settled = False
        self._written = min(self._written, kept)
        if self.anchored_to > offset:
            self.anchored_to = NOT_ANCHORED
        if kept:
            del self._offsets[kept:], self._positions[kept:]
        return kept > 0

    def start_at(self, offset: int) -> None:
        """Forget the pairs that only records below an offset need."""
        gone = bisect_right(self._offsets, offset) - 1
        if gone > 0:
            del self._offsets[:gone], self._positions[:gone]
            self._recent = {position: each for position, each in self._recent.items() if each >= offset}
            self._dead += gone
            self._written = max(0, self._written - gone) if self._dead <= len(self._offsets) else 0

    def anchor(self, pair: Pair) -> None:
        """Move all positions so that an entry's position is that of `pair`, which has its offset.

        It takes time for each entry, so it is for a thread, before others see the index.
        """
        at = bisect_right(self._offsets, pair.offset) - 1
        shift = pair.position - self._positions[at]
        self._positions = array("q", (each + shift for each in self._positions))
        self._recent.clear()

    # The file

    def relocated(self) -> None:
        """Note that the log's directory has no file, as after a move: it has to be made."""
        self._written = 0

    def unwritten(self, flushed_to: int) -> Unwritten | None:
        """The next WRITTEN_AT_ONCE_MAX entries up to an offset (inclusive) that are not in the file; None without."""
        settled = len(self._offsets) - 1 or 1  # the last one may move
        stop = min(bisect_right(self._offsets, flushed_to), settled, self._written + WRITTEN_AT_ONCE_MAX)
        start = self._written
        if stop <= start:
            return None
        row = self._dead + start if start else 0
        return Unwritten(self.generation, row, self._offsets[start:stop], self._positions[start:stop])

    def written(self, entries: Unwritten) -> None:
        """Note that the file has these entries now. The index may only have grown since `unwritten`."""
        if not entries.row:
            self._dead = 0
        self._written += len(entries.offsets)
