"""One share partition: the records of one partition that a share group has in flight.

    start_offset                          end_offset
         |  batch  |  batch (split)  |  batch  |  next records of the log
         |acknowl.| ac|av|acknowl.   | acquired|

Everything below `start_offset` is finished. `acquisition` and `acknowledgement` change the records between both
offsets; the persister keeps what they decide. A leader that begins reads the state from it, which may have gaps where
records were acquired and never finished: they are acquired anew.

Changes that must be stored are put into `writes`; the caller stores them and calls `stored`. `is_changed` says that
records may have become available, so that waiting fetches have to look.
Source: Kafka's SharePartition. Otherwise than there, a batch is split into runs of records instead of single records,
and records that are archived without an acknowledgement let the start offset move at once: a group that has only
aborted transactions in flight would otherwise stand still at its limit.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from headrace.coordinators.share_partitions.in_flight import InFlight
from headrace.coordinators.share_partitions.records import (
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    InFlightBatch,
    RecordRun,
    RecordState,
    RecordTransition,
    state_batches,
)
from headrace.coordinators.share_state.persister import StateBatch

LOCK_CHECK_MS = 20
"""Locks that end within this time are released together."""


class ShareLimits(NamedTuple):
    """The settings of a share group that its share partitions follow."""

    delivery_count_max: int = 5
    in_flight_max: int = 2000
    lock_ms: int = 30_000
    can_renew: bool = True


class StateWrite(NamedTuple):
    """A change to store: the batches, and the transition that waits for the result, if it can be undone."""

    batches: tuple[StateBatch, ...]
    transition: RecordTransition | None


class InconsistentState(Exception):
    """The persister's state cannot be that of a share partition."""


class SharePartition:
    """The state of one share partition. Times are milliseconds of the caller's clock."""

    __slots__ = (
        "delivery_complete_count", "end_offset", "find_next", "gap_start", "gap_window_end", "in_flight", "is_changed",
        "limits", "next_lock_ms", "start_offset", "writes",
    )  # fmt: skip

    def __init__(self, start_offset: int, batches: Iterable[StateBatch], limits: ShareLimits) -> None:
        """Begins with the persister's state. Raises `InconsistentState`."""
        self.limits = limits
        self.in_flight = InFlight()
        self.start_offset = self.end_offset = start_offset
        self.delivery_complete_count = 0
        """Records from the start offset on that are finished."""
        self.find_next = False
        """Whether there may be available records in flight."""
        self.gap_start = self.gap_window_end = -1
        """The first gap of the state that was read, and the end offset that it reached then; -1: no gaps."""
        self.next_lock_ms: int | None = None
        """No lock ends before this time."""
        self.writes: list[StateWrite] = []
        self.is_changed = False
        self._restore(batches)

    def _restore(self, batches: Iterable[StateBatch]) -> None:
        after = self.start_offset
        for first, last, state, delivery_count in batches:
            if first < after or last < first:
                raise InconsistentState(
                    f"the stored batch of offsets {first} to {last} is not behind the one before, or the start offset "
                    f"{self.start_offset}"
                )
            if first > after and self.gap_start < 0:
                self.gap_start = after
            run = RecordRun(first, last, RecordState(state), delivery_count)
            self.in_flight.add(InFlightBatch(run))
            if run.state.is_terminal:
                self.delivery_complete_count += len(run)
            after = last + 1
        if self.in_flight:
            self.find_next = True
            self.end_offset = self.in_flight.last_offset
            if self.gap_start >= 0:
                self.gap_window_end = self.end_offset
            self.move_start()

    @property
    def has_gaps(self) -> bool:
        """Whether the state that was read may still have gaps that are to be acquired."""
        return self.gap_start >= 0 and self.gap_window_end == self.end_offset

    def filled_to(self, offset: int) -> None:
        """Notes that records up to `offset` (exclusive) were acquired: gaps begin there at the earliest."""
        if self.gap_start >= 0:
            if self.gap_window_end == self.end_offset and offset <= self.gap_window_end:
                self.gap_start = offset
            else:
                self.gap_start = self.gap_window_end = -1

    def _gaps_from(self, offset: int) -> None:
        """Notes that gaps begin at this offset at the earliest, behind the batches there."""
        self.filled_to(self._behind_batches(offset))

    def _behind_batches(self, offset: int) -> int:
        """The first offset from this one on that is in no batch."""
        while (batch := self.in_flight.floor(offset)) is not None and batch.last >= offset:
            offset = batch.last + 1
        return offset

    def lacks(self, first: int, end: int) -> bool:
        """Notes that the log has no records of `first` to `end` (exclusive). A gap there is none to be acquired; if the
        start offset is in it, it moves to its end. Returns whether there was a gap."""
        if not self.has_gaps or not first <= self._behind_batches(self.gap_start) < end:
            return False
        self._gaps_from(end)
        self.is_changed = True
        if self.in_flight and first <= self.start_offset < self.in_flight.batches[0].first:
            self.start_offset = min(max(end, self.start_offset), self.in_flight.batches[0].first)
        return True

    # Where to fetch

    @property
    def in_flight_count(self) -> int:
        """Offsets from the start to the end offset."""
        return self.end_offset - self.start_offset + 1 if self.in_flight else 0

    @property
    def can_acquire(self) -> bool:
        """Whether there may be records to acquire: available ones in flight, or room for new ones."""
        return self.next_fetch_offset() != self.end_offset + 1 or self.in_flight_count < self.limits.in_flight_max

    def next_fetch_offset(self) -> int:
        """The offset of the first record that may be acquired."""
        is_beyond = not self.in_flight or self.start_offset > self.in_flight.last_offset
        if is_beyond:
            self.find_next = False
            return self.end_offset
        if self.find_next:
            found = self._first_available()
            if found is not None:
                return found
            self.find_next = False
        return self.end_offset + 1

    def _first_available(self) -> int | None:
        gap_start = self.gap_start if self.has_gaps else -1
        for batch in self.in_flight:
            if gap_start >= 0:
                if batch.first > gap_start:
                    return gap_start
                gap_start = max(batch.last + 1, gap_start)
            for run in batch.runs:
                if run.is_available:
                    return run.first
        return None

    # Changes

    def lock(self, run: RecordRun, until_ms: int) -> None:
        """Holds acquired records until then."""
        run.lock_until_ms = until_ms
        self.lock_ends(until_ms)

    def lock_ends(self, until_ms: int) -> None:
        """Notes that a lock ends then."""
        if self.next_lock_ms is None or until_ms < self.next_lock_ms:
            self.next_lock_ms = until_ms

    def finished(self, run: RecordRun) -> None:
        """Counts a run that has just become terminal, as far as it lies behind the start offset."""
        if run.state.is_terminal:
            self.delivery_complete_count += self._counted(run)

    def _counted(self, run: RecordRun) -> int:
        return max(0, run.last - max(self.start_offset, run.first) + 1)

    def begin_write(self, transition: RecordTransition) -> None:
        """Has a transition stored."""
        if transition.runs:
            self.writes.append(StateWrite(state_batches(transition.runs), transition))

    def undo(self, transition: RecordTransition, now_ms: int) -> None:
        """Returns the runs of a transition to their states before. Those whose locks have run out meanwhile are
        released, which is stored as any such release."""
        limit = self.limits.delivery_count_max
        released: list[RecordRun] = []
        for run in transition.runs:
            was_terminal, was_locked = run.state.is_terminal, run.lock_until_ms is not None
            run.complete(is_stored=False, delivery_count_max=limit, now_ms=now_ms)
            if was_locked and run.lock_until_ms is None and not run.is_final:
                released.append(run)
            if run.state is AVAILABLE:
                self.find_next = self.is_changed = True
            elif run.lock_until_ms is not None:
                self.lock_ends(run.lock_until_ms)
            if was_terminal and not run.state.is_terminal:
                self.delivery_complete_count -= self._counted(run)
            elif run.state.is_terminal and not was_terminal:
                self.delivery_complete_count += self._counted(run)
        for run in released:
            if run.state is AVAILABLE and run.first < self.start_offset:  # the log has no such records any more
                self.archive(run.first, self.start_offset - 1, AVAILABLE, is_counted=False)
        if released:
            self.writes.append(StateWrite(state_batches(released), None))

    def stored(self, write: StateWrite, now_ms: int, *, is_stored: bool) -> None:
        """Ends a write. Locks that have run out are released whether that is stored or not."""
        if write.transition is not None:
            if not is_stored:
                self.undo(write.transition, now_ms)
                return
            limit = self.limits.delivery_count_max
            for run in write.transition.runs:
                run.complete(is_stored=True, delivery_count_max=limit, now_ms=now_ms)
                if run.state is AVAILABLE:
                    self.find_next = self.is_changed = True
        if self.move_start():
            self.is_changed = True

    def release(self, member: str) -> None:
        """Makes the records available that a member holds. It was not delivered to the application: the count stays."""
        transition = RecordTransition()
        limit = self.limits.delivery_count_max
        for batch in self.in_flight:
            for run in list(batch.runs):
                if run.state is ACQUIRED and run.member == member:
                    for part in self._parted(batch, run):
                        transition.begin(part, self._released(part), limit)
                        self.finished(part)
        self.begin_write(transition)

    def _parted(self, batch: InFlightBatch, run: RecordRun) -> tuple[RecordRun, ...]:
        """The run, cut at the start offset if that lies inside it."""
        if run.first < self.start_offset <= run.last:
            batch.split()
            rest = batch.only(run, self.start_offset, run.last)
            return run, rest
        return (run,)

    def _released(self, run: RecordRun) -> RecordState:
        """The state of released records: those below the start offset have left the log."""
        return ARCHIVED if run.last < self.start_offset else AVAILABLE

    def release_expired(self, now_ms: int) -> int:
        """Releases records whose locks have run out; returns their number. Sets `next_lock_ms` anew."""
        if self.next_lock_ms is None or self.next_lock_ms > now_ms:
            return 0
        released: list[RecordRun] = []
        next_ms: int | None = None
        limit = self.limits.delivery_count_max
        for batch in self.in_flight:
            for run in list(batch.runs):
                if run.state is not ACQUIRED or run.lock_until_ms is None:
                    continue  # a pending change looks at its lock when it ends
                if run.lock_until_ms > now_ms:
                    next_ms = run.lock_until_ms if next_ms is None else min(next_ms, run.lock_until_ms)
                    continue
                for part in self._parted(batch, run):
                    part.lock_until_ms = None
                    part.leave(self._released(part), limit)
                    self.finished(part)
                    if part.state is AVAILABLE:
                        self.find_next = True
                    released.append(part)
        self.next_lock_ms = next_ms if next_ms is None else max(next_ms, now_ms + LOCK_CHECK_MS)
        if released:
            self.writes.append(StateWrite(state_batches(released), None))
            self.is_changed = True
        return sum(map(len, released))

    def archive(self, first: int, last: int, state: RecordState, *, is_counted: bool) -> bool:
        """Archives the records of `first` to `last` (inclusive) that have this state; returns whether there were."""
        is_any = False
        for batch in self.in_flight.overlapping(first, last):
            is_whole = batch.lies_in(first, last)
            for run in batch.within(first, last):
                if run.state is state:
                    if not is_whole:
                        batch.split()
                    part = batch.only(run, first, last)
                    part.archive()
                    if is_counted:
                        self.finished(part)
                    is_any = True
        if is_any and state is AVAILABLE:
            self.find_next = True
        return is_any

    def log_starts_at(self, offset: int) -> None:
        """Follows the log, which has no records below `offset` any more. Records that a member holds stay until they
        are acknowledged or their locks end."""
        if offset <= self.start_offset:
            return
        self.is_changed = True
        if not self.in_flight:
            self.start_offset = self.end_offset = offset
            self.delivery_complete_count = 0
            return
        self.delivery_complete_count -= sum(
            min(run.last, offset - 1) - max(run.first, self.start_offset) + 1
            for batch in self.in_flight.overlapping(self.start_offset, offset - 1)
            for run in batch.within(self.start_offset, offset - 1)
            if run.state.is_terminal
        )
        self.archive(self.start_offset, offset - 1, AVAILABLE, is_counted=False)
        self.start_offset = offset
        if 0 <= self.gap_start < offset:
            self._gaps_from(offset)
        self.end_offset = max(self.end_offset, offset)
        self.move_start()

    def move_start(self) -> bool:
        """Moves the start offset behind finished records, and forgets their batches; returns whether it could."""
        if not self._starts_with_finished():
            return False
        if self.has_gaps:
            self._gaps_from(self.gap_start)  # it may be in a batch, which is none
        last_finished, count = self._last_finished()
        if last_finished < 0:
            return False
        in_flight = self.in_flight
        if last_finished == in_flight.last_offset:
            # The state that the persister had may end below a start offset that the log has moved.
            self.start_offset = self.end_offset = max(last_finished + 1, self.start_offset)
            in_flight.clear()
            self.delivery_complete_count = 0
            return True
        batch = in_flight.floor(last_finished)
        if batch is None:
            return False
        start = self.start_offset
        if last_finished == batch.last:
            following = in_flight.above(last_finished)
            if following is not None and following.first > start:
                start = following.first
            if self.has_gaps:
                start = min(self.gap_start, start)
            in_flight.remove_below(last_finished + 1)
        else:
            start = max(start, last_finished + 1)
            in_flight.remove_below(batch.first)
        self.delivery_complete_count -= count
        self.start_offset = start
        return True

    def _starts_with_finished(self) -> bool:
        batch = self.in_flight.floor(self.start_offset)
        if batch is None:
            return False
        run = next(batch.within(self.start_offset, self.start_offset), batch.runs[-1])
        return run.is_finished

    def _last_finished(self) -> tuple[int, int]:
        """The last offset of the finished records at the beginning, -1 without, and how many of them count."""
        last, count = -1, 0
        for batch in self.in_flight:
            if self.has_gaps and batch.last >= self.gap_start:
                break
            for run in batch.runs:
                if not run.is_finished:
                    return last, count
                last = run.last
                count += self._counted(run)
        return last, count
