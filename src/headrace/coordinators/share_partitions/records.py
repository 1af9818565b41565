"""The records in flight: runs of records with one state, in batches as they were acquired.

    available ──acquire──▶ acquired ──accept──────────────────▶ acknowledged
        ▲                     │  └────reject, gap─────────────▶ archived
        └──release, lock time-out (archived at the limit of deliveries)

A batch is acquired and acknowledged as a whole in most cases, and then has one run. It is split where records of it
differ: there is no object per record. A change that the persister has yet to store is a `RecordTransition`; if it
cannot be stored, its runs return to their states before. Source: Kafka's InFlightBatch, InFlightState, RecordState.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from enum import IntEnum
from operator import attrgetter

from headrace.coordinators.share_state.persister import StateBatch

NO_MEMBER = ""


class RecordState(IntEnum):
    """The states of a record, with the codes that the persister stores."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4

    @property
    def is_terminal(self) -> bool:
        """Whether the record is finished."""
        return self >= RecordState.ACKNOWLEDGED


AVAILABLE, ACQUIRED, ARCHIVED = RecordState.AVAILABLE, RecordState.ACQUIRED, RecordState.ARCHIVED


class RecordRun:
    """Records `first` to `last` (inclusive), which have one state."""

    __slots__ = ("before", "delivery_count", "first", "is_final", "last", "lock_until_ms", "member", "pending", "state")

    def __init__(
        self,
        first: int,
        last: int,
        state: RecordState,
        delivery_count: int,
        member: str = NO_MEMBER,
        lock_until_ms: int | None = None,
    ) -> None:
        self.first, self.last = first, last
        self.state, self.delivery_count, self.member = state, delivery_count, member
        self.lock_until_ms = lock_until_ms
        self.pending: RecordTransition | None = None
        """The change of this run that is being stored."""
        self.before = (state, member)
        """State and member before the pending change."""
        self.is_final = False
        """Whether the records have left the log, so that no failed write makes them available again."""

    def __len__(self) -> int:
        return self.last - self.first + 1

    @property
    def is_available(self) -> bool:
        """Whether the records can be acquired."""
        return self.state is AVAILABLE and self.pending is None

    @property
    def is_finished(self) -> bool:
        """Whether the records are acknowledged or archived, and that is stored."""
        return self.state >= RecordState.ACKNOWLEDGED and self.pending is None

    def acquire(self, member: str, lock_until_ms: int) -> None:
        """Delivers available records once more."""
        self.state, self.member, self.lock_until_ms = ACQUIRED, member, lock_until_ms
        self.delivery_count += 1

    def leave(self, state: RecordState, delivery_count_max: int) -> None:
        """Ends the acquisition. Records that were delivered as often as allowed do not become available again."""
        is_spent = state is AVAILABLE and self.delivery_count >= delivery_count_max
        self.state = ARCHIVED if is_spent else state
        self.member = NO_MEMBER

    def archive(self) -> None:
        """Archives the records for good."""
        self.is_final = True
        self.state, self.member, self.lock_until_ms = ARCHIVED, NO_MEMBER, None

    def complete(self, *, is_stored: bool, delivery_count_max: int, now_ms: int) -> None:
        """Ends the pending change: keeps it if it is stored, else goes back. A lock that has run out meanwhile makes
        the records available."""
        self.pending = None
        if is_stored or self.is_final:
            self.lock_until_ms = None
        elif self.lock_until_ms is not None and self.lock_until_ms <= now_ms:
            self.lock_until_ms = None
            self.state, self.member = self.before
            self.leave(AVAILABLE, delivery_count_max)
        else:
            self.state, self.member = self.before

    def cut(self, offset: int) -> RecordRun:
        """Cuts the run before `offset`, which lies inside it; returns the second part."""
        rest = RecordRun(offset, self.last, self.state, self.delivery_count, self.member, self.lock_until_ms)
        rest.before, rest.is_final = self.before, self.is_final
        self.last = offset - 1
        if self.pending is not None:
            rest.pending = self.pending
            rest.pending.runs.append(rest)
        return rest


class RecordTransition:
    """Changes of runs by one request, which are stored together or not at all."""

    __slots__ = ("runs",)

    def __init__(self) -> None:
        self.runs: list[RecordRun] = []

    def begin(self, run: RecordRun, state: RecordState, delivery_count_max: int) -> None:
        """Ends the acquisition of a run, until the persister has stored it or could not."""
        run.before = (run.state, run.member)
        run.leave(state, delivery_count_max)
        run.pending = self
        self.runs.append(run)


_first = attrgetter("first")


class InFlightBatch:
    """Records that were acquired together, `first` to `last` (inclusive), as runs in the order of their offsets."""

    __slots__ = ("first", "is_split", "last", "runs")

    def __init__(self, run: RecordRun) -> None:
        self.first, self.last = run.first, run.last
        self.runs = [run]
        self.is_split = False
        """Whether the records have had different states, so that they are acquired record by record."""

    def split(self) -> None:
        """Treats the records one by one from now on."""
        self.is_split = True

    def lies_in(self, first: int, last: int) -> bool:
        """Whether all records are among `first` to `last` (inclusive)."""
        return self.first >= first and self.last <= last

    def within(self, first: int, last: int) -> Iterator[RecordRun]:
        """The runs with records of `first` to `last` (inclusive), which may reach beyond. The caller may cut the run
        that it got last."""
        number = max(0, bisect_right(self.runs, first, key=_first) - 1)
        while number < len(self.runs):
            run = self.runs[number]
            if run.first > last:
                return
            end = run.last
            if end >= first:
                yield run
            number = bisect_right(self.runs, end, lo=number, key=_first)

    def only(self, run: RecordRun, first: int, last: int) -> RecordRun:
        """The part of a run of this batch that lies in `first` to `last` (inclusive), as a run of its own."""
        if run.first >= first and run.last <= last:
            return run
        number = bisect_right(self.runs, run.first, key=_first) - 1
        if run.first < first:
            self.runs.insert(number + 1, run.cut(first))
            run = self.runs[number + 1]
            number += 1
        if run.last > last:
            self.runs.insert(number + 1, run.cut(last + 1))
        return run


def state_batches(runs: Iterable[RecordRun]) -> tuple[StateBatch, ...]:
    """What the persister stores about runs: neighbours of one state become one batch."""
    found: list[StateBatch] = []
    for run in runs:
        if found:
            at = found[-1]
            if at.last_offset + 1 == run.first and at[2:] == (run.state, run.delivery_count):
                found[-1] = at._replace(last_offset=run.last)
                continue
        found.append(StateBatch(run.first, run.last, int(run.state), run.delivery_count))
    return tuple(found)
