"""The transactions of a partition that bound what a read_committed consumer may see.

    open      its producer has written records, and no marker has followed
    closed    its marker is in the log, and not below the high watermark yet

Both keep the last stable offset at their first record: a closed transaction may still be truncated. Source: Kafka's
ProducerStateManager (ongoingTxns, unreplicatedTxns).
"""

from bisect import bisect_left, insort
from typing import NamedTuple


class OpenTransaction(NamedTuple):
    """An open transaction. Open transactions are ordered by their first offset."""

    first_offset: int
    producer_id: int


class ClosedTransaction(NamedTuple):
    """A transaction whose marker, at `last_offset`, had not been below the high watermark at the last check."""

    first_offset: int
    last_offset: int


class PartitionTransactions:
    """The open and the closed transactions of one partition.

    `_closed` is in the order of the markers. It has no transaction that begins behind a later one: the later one bounds
    the last stable offset for longer. So the first of each list is enough, however many transactions there are.
    """

    __slots__ = ("_closed", "_open")

    def __init__(self) -> None:
        self._open: list[OpenTransaction] = []
        self._closed: list[ClosedTransaction] = []  # an empty deque takes 700 bytes, and most partitions have none

    def begin(self, first_offset: int, producer_id: int) -> None:
        """Add an open transaction."""
        insort(self._open, OpenTransaction(first_offset, producer_id))

    def end(self, first_offset: int, producer_id: int, last_offset: int) -> None:
        """Close an open transaction with the marker at `last_offset`."""
        del self._open[bisect_left(self._open, OpenTransaction(first_offset, producer_id))]
        closed = self._closed
        while closed and closed[-1].first_offset > first_offset:
            closed.pop()
        closed.append(ClosedTransaction(first_offset, last_offset))

    def first_open_beside(self, producer_id: int) -> int | None:
        """The first offset of the oldest open transaction of any other producer; None when there is none."""
        return next((each.first_offset for each in self._open if each.producer_id != producer_id), None)

    def forget_committed(self, high_watermark: int) -> None:
        """Forget the closed transactions whose marker is below the high watermark (exclusive)."""
        committed = 0
        for each in self._closed:
            if each.last_offset >= high_watermark:
                break
            committed += 1
        del self._closed[:committed]

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """The first offset of the oldest transaction that is open, or whose marker is not below the high watermark.

        Returns None when there is no such transaction.
        """
        if self._closed:
            self.forget_committed(high_watermark)
        if not self._closed:
            return self._open[0].first_offset if self._open else None
        first = self._closed[0].first_offset
        return min(first, self._open[0].first_offset) if self._open else first
