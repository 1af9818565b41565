"""The batches in flight of one share partition, ascending and without overlap. There are as many as records at most,
and `share.partition.max.record.locks` bounds these."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from headrace.coordinators.share_partitions.records import InFlightBatch, RecordRun


class InFlight:
    """Batches by their first offsets."""

    __slots__ = ("_firsts", "batches")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self.batches: list[InFlightBatch] = []

    def __bool__(self) -> bool:
        return bool(self.batches)

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[InFlightBatch]:
        return iter(self.batches)

    def runs(self) -> Iterator[RecordRun]:
        """All runs, in the order of their offsets."""
        return (run for batch in self.batches for run in batch.runs)

    @property
    def last_offset(self) -> int:
        """The last offset of the last batch. There is one."""
        return self.batches[-1].last

    def add(self, batch: InFlightBatch) -> None:
        """Adds a batch that overlaps no other."""
        number = bisect_left(self._firsts, batch.first)
        self._firsts.insert(number, batch.first)
        self.batches.insert(number, batch)

    def floor(self, offset: int) -> InFlightBatch | None:
        """The last batch that begins at or below an offset."""
        number = bisect_right(self._firsts, offset)
        return self.batches[number - 1] if number else None

    def above(self, offset: int) -> InFlightBatch | None:
        """The first batch that begins above an offset."""
        number = bisect_right(self._firsts, offset)
        return self.batches[number] if number < len(self.batches) else None

    def beginning_in(self, first: int, last: int) -> Sequence[InFlightBatch]:
        """The batches that begin at offsets `first` to `last` (inclusive)."""
        return self.batches[bisect_left(self._firsts, first) : bisect_right(self._firsts, last)]

    def overlapping(self, first: int, last: int) -> Sequence[InFlightBatch]:
        """The batches with offsets of `first` to `last` (inclusive)."""
        start = bisect_right(self._firsts, first)
        if start and self.batches[start - 1].last >= first:
            start -= 1
        return self.batches[start : bisect_right(self._firsts, last)]

    def remove_below(self, offset: int) -> None:
        """Removes the batches that begin below an offset."""
        count = bisect_left(self._firsts, offset)
        del self._firsts[:count], self.batches[:count]

    def clear(self) -> None:
        """Removes all batches."""
        self._firsts.clear()
        self.batches.clear()
