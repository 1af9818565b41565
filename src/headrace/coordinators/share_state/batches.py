"""Merging of state batches: what a write says of some records, laid over what is stored.

    stored      [10-19 available, 1]            [30-39 archived, 5]
    written            [15-24 acknowledged, 1]
    merged      [10-14 available, 1][15-24 acknowledged, 1]  [30-39 archived, 5]

Of two statements about one record the one with the higher delivery count wins, then the one with the higher delivery
state: a record is delivered again, or finished, but never less often delivered than before. Neighbours that say the
same become one batch. Records below the start offset are dropped.

Batches are kept in order and do not overlap, so a write costs what it touches, whatever else is stored.
Source: Kafka's `PersisterStateBatchCombiner`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from itertools import pairwise
from operator import attrgetter

from headrace.coordinators.share_state.persister import NO_START_OFFSET, StateBatch

_FIRST, _LAST = attrgetter("first_offset"), attrgetter("last_offset")


def merged(stored: tuple[StateBatch, ...], written: Sequence[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """The batches after a write, in order. `stored` is a result of this function. `start_offset`: where they begin;
    `NO_START_OFFSET` drops none."""
    if not written:
        return _from(stored, start_offset)
    lowest, highest = min(map(_FIRST, written)), max(map(_LAST, written))
    # One more on each side, which may say the same as its new neighbour.
    begin = max(bisect_left(stored, lowest, key=_LAST) - 1, 0)
    end = max(bisect_right(stored, highest, key=_FIRST) + 1, begin)
    touched = stored[begin:end]
    middle = written if not touched and _is_merged(written) else _laid_over((*touched, *written))
    return _from((*stored[:begin], *middle, *stored[end:]), start_offset)


def _is_merged(batches: Sequence[StateBatch]) -> bool:
    """Whether batches are in order, and none overlaps the next or says the same right before it."""
    return all(
        one.last_offset < two.first_offset and (one.last_offset + 1 < two.first_offset or one[2:] != two[2:])
        for one, two in pairwise(batches)
    ) and all(each.first_offset <= each.last_offset for each in batches)


def _from(batches: tuple[StateBatch, ...], start_offset: int) -> tuple[StateBatch, ...]:
    """The batches from the start offset on."""
    if start_offset == NO_START_OFFSET or not batches or batches[0].first_offset >= start_offset:
        return batches
    kept = batches[bisect_left(batches, start_offset, key=_LAST) :]
    if kept and kept[0].first_offset < start_offset:
        return (kept[0]._replace(first_offset=start_offset), *kept[1:])
    return kept


def _laid_over(batches: Iterable[StateBatch]) -> list[StateBatch]:
    """Batches in order that do not overlap: each record has the strongest of its statements."""
    pending = sorted(batches, key=_FIRST, reverse=True)
    strongest: list[tuple[int, int, int]] = []  # a heap of (-count, -state, last offset), of batches that have begun
    result: list[StateBatch] = []
    at = 0
    while pending or strongest:
        if not strongest:
            at = pending[-1].first_offset
        while pending and pending[-1].first_offset <= at:
            batch = pending.pop()
            heappush(strongest, (-batch.delivery_count, -batch.delivery_state, batch.last_offset))
        count, state, last = strongest[0]
        if last < at:
            heappop(strongest)
            continue
        if pending and pending[-1].first_offset <= last:
            last = pending[-1].first_offset - 1
        _extend(result, StateBatch(at, last, -state, -count))
        at = last + 1
    return result


def _extend(result: list[StateBatch], batch: StateBatch) -> None:
    if result:
        before = result[-1]
        if before.last_offset + 1 == batch.first_offset and before[2:] == batch[2:]:
            result[-1] = before._replace(last_offset=batch.last_offset)
            return
    result.append(batch)
