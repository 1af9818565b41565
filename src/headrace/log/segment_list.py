"""The segments of a log, by their base offsets.

    base offsets    0        4711        9000
                    |--------|-----------|---------▶ log end
                    closed    closed      active

Invariants: base offsets ascend; there is at least one segment, and the last one is the active one. A list is immutable:
a roll, a truncation, retention and compaction create another list, and readers continue with the list that they hold.
Each list begins with an empty `recent`, which appends fill.
Source: Kafka's LogSegments.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple, overload

from headrace.log.append_state import SegmentsEnd
from headrace.log.files import LogFile
from headrace.log.segment.segment import Segment
from headrace.log.segment.tail_cache import TailCache

_base_offset = attrgetter("base_offset")


class SegmentRange(NamedTuple):
    """A range of a segment's file: `size` bytes from `position`. It stays readable when the segment is deleted."""

    file: LogFile
    position: int
    size: int


class SegmentList(SegmentsEnd, Sequence[Segment]):
    """Segments, ascending by base offset."""

    __slots__ = ("_segments",)

    def __init__(self, segments: Iterable[Segment]) -> None:
        """`segments` has at least one segment, and is ascending by base offset."""
        self._segments = tuple(segments)
        self.recent = TailCache()

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    @overload
    def __getitem__(self, place: int) -> Segment: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Segment, ...]: ...

    def __getitem__(self, place: int | slice) -> Segment | tuple[Segment, ...]:
        return self._segments[place]

    # Looking up

    @property
    def active(self) -> Segment:
        """The segment that is written to."""
        return self._segments[-1]

    @property
    def closed(self) -> tuple[Segment, ...]:
        """All segments except the active one."""
        return self[:-1]

    @property
    def size_bytes(self) -> int:
        """The size of all segments in bytes, without their indexes."""
        return sum(segment.size for segment in self)

    def number_of(self, offset: int) -> int:
        """The position in this list of the segment that holds an offset.

        It is the last segment that begins at or below the offset, or the first segment.
        """
        return bisect_right(self._segments, offset, 1, key=_base_offset) - 1

    def end_of(self, number: int, log_end_offset: int) -> int:
        """The end offset (exclusive) of a segment: the next segment's base offset, or the log end offset."""
        segments = self._segments
        return segments[number + 1].base_offset if number + 1 < len(segments) else log_end_offset

    # Reading

    def read(
        self, offset: int, max_bytes: int, *, end_offset: int, at_least_one: bool, log_end_offset: int
    ) -> SegmentRange:
        """The range of one segment's file from the batch that holds `offset`, as `PartitionLog.read` says."""
        number = self.number_of(offset)
        segments = self._segments
        while offset < end_offset and number < len(segments):
            segment = segments[number]
            position, batch_bytes = self._find(segment, offset, log_end_offset)
            size = self._end_position(number, segment, end_offset, log_end_offset) - position
            if size > 0:
                if size > max_bytes:
                    if batch_bytes > max_bytes:
                        max_bytes = batch_bytes if at_least_one else 0
                    size = max_bytes
                return SegmentRange(segment.file, position, size)
            number += 1
        return SegmentRange(self.active.file, self.active.size, 0)

    def _find(self, segment: Segment, offset: int, log_end_offset: int) -> tuple[int, int]:
        """Position and size of the first batch that ends at or after `offset`, in bytes.

        Without such a batch they are `segment.size` and 0.
        """
        if offset >= log_end_offset:
            return segment.size, 0
        found = self.recent.find(offset, segment.size) if segment is self._segments[-1] else None
        if found is not None:
            return found
        located = segment.locate(offset)
        return (segment.size, 0) if located is None else (located[0], located[1].size_bytes)

    def _end_position(self, number: int, segment: Segment, end_offset: int, log_end_offset: int) -> int:
        """The position in a segment where the batches below `end_offset` (exclusive) end."""
        if end_offset >= log_end_offset or end_offset >= self.end_of(number, log_end_offset):
            return segment.size
        return self._find(segment, end_offset, log_end_offset)[0]

    def reach_of(self, found: SegmentRange, from_offset: int, log_end_offset: int) -> int:
        """The end offset (exclusive) of the segment of a range that `read` found at `from_offset`."""
        for number in range(self.number_of(from_offset), len(self)):
            if self[number].file is found.file:
                return self.end_of(number, log_end_offset)
        return log_end_offset

    # Other lists

    def followed_by(self, segment: Segment) -> "SegmentList":
        """This list with a new active segment, which replaces an active segment without records."""
        return SegmentList([*(self if self.active.size else self.closed), segment])

    def without_oldest(self, count: int) -> "SegmentList":
        """This list without the first `count` segments."""
        return SegmentList(self[count:])

    def preceded_by(self, segments: Iterable[Segment]) -> "SegmentList":
        """This list with these segments before its own."""
        return SegmentList([*segments, *self])

    def ending_at(self, offset: int) -> "SegmentList":
        """The segments that begin at or below an offset, and at least the first one."""
        return SegmentList(self[: self.number_of(offset) + 1])

    def replaced(self, old: Iterable[Segment], new: Segment) -> "SegmentList":
        """This list with `new` in the place of the `old` segments, the first of which has the same base offset."""
        bases = {segment.base_offset for segment in old} - {new.base_offset}
        return SegmentList(
            new if segment.base_offset == new.base_offset else segment
            for segment in self
            if segment.base_offset not in bases
        )
