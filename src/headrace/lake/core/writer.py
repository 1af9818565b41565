"""The state machine of a writer: one action at a time, and its outcome decides the next.

    OpenTable ─▶ AskBounds ─▶ Write ─▶ Commit ─▶ AskBounds ...
                  ▲    │ ▲      │         │ refused: somebody else committed
                  └Wait┘ └──────┘         └─▶ OpenTable ─▶ same progress?  yes: Commit again   no: Discard ─▶ AskBounds
                          records gone

The commit holds the rows and the progress of each partition, and the table refuses it unless it is the next version of
the snapshot that was opened. So a writer may die at any point: before the commit the table has nothing of the round,
and after it everything. Several writers may work on one table, also on the same partitions by mistake: the one whose
commit is refused reads the progress again, and its rows go in only if the progress of its partitions is what it began
from.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from headrace.lake.core.plan import Bounds, Progress, RoundLimits, Slice, plan
from headrace.types import TopicPartition

REFUSALS_MAX: Final = 100
"""How often one round's commit is tried. Each refusal is another's success, so only a storm of writers gets there."""


class CommitStormError(Exception):
    """Others committed first each time. Fewer writers, or a longer time between their commits, helps."""


@dataclass(frozen=True, slots=True)
class OpenTable:
    """Open the newest snapshot. Outcome: Opened."""


@dataclass(frozen=True, slots=True)
class AskBounds:
    """Ask for the bounds of the partitions that are this writer's. Outcome: Bounded."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing for a time. Outcome: Waited."""

    ms: int


@dataclass(frozen=True, slots=True)
class Write:
    """Read the slices and write them to files that nothing refers to. Outcome: Written or Gone."""

    slices: tuple[Slice, ...]


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit the files with the ends of the slices, on the opened snapshot alone. Outcome: Committed, CommitRefused."""

    slices: tuple[Slice, ...]


@dataclass(frozen=True, slots=True)
class Discard:
    """Remove the files of the round: nothing will refer to them. Outcome: Discarded."""


Action: TypeAlias = OpenTable | AskBounds | Wait | Write | Commit | Discard


@dataclass(frozen=True, slots=True)
class Opened:
    progress: Progress


@dataclass(frozen=True, slots=True)
class Bounded:
    bounds: Mapping[TopicPartition, Bounds]


@dataclass(frozen=True, slots=True)
class Waited:
    pass


@dataclass(frozen=True, slots=True)
class Written:
    """The slices as they were written. A writer may end any of them earlier, to bound a round's bytes."""

    slices: tuple[Slice, ...]


@dataclass(frozen=True, slots=True)
class Gone:
    """Records of the slices were deleted while they were read."""


@dataclass(frozen=True, slots=True)
class Committed:
    """The commit is in the table; the progress is that of the new snapshot."""

    progress: Progress


@dataclass(frozen=True, slots=True)
class CommitRefused:
    """Somebody else committed first. The table has nothing of the round."""


@dataclass(frozen=True, slots=True)
class Discarded:
    pass


Outcome: TypeAlias = Opened | Bounded | Waited | Written | Gone | Committed | CommitRefused | Discarded


class LakeWriter:
    """The decisions of one writer. `begin`, then `after` each outcome of the action that was returned."""

    def __init__(self, limits: RoundLimits) -> None:
        self._limits = limits
        self._progress: Progress = _unknown
        self._written: tuple[Slice, ...] = ()
        self._refusals = 0
        self._pending_since_ms: int | None = None
        self._ends = False

    def begin(self) -> Action:
        """The first action."""
        return OpenTable()

    def finish(self) -> None:
        """Write without lingering from now on. The first Wait after it says that the table has all that the log has."""
        self._ends = True

    def after(self, outcome: Outcome, now_ms: int) -> Action:
        """The next action. Raises OvertakenError, LogReplacedError and CommitStormError."""
        match outcome:
            case Opened(progress):
                self._progress = progress
                return self._try_again() if self._written else AskBounds()
            case Bounded(bounds):
                return self._plan(bounds, now_ms)
            case Written(slices):
                self._written = slices
                return Commit(slices) if slices else AskBounds()
            case Committed(progress):
                self._progress, self._written, self._refusals = progress, (), 0
                return AskBounds()
            case CommitRefused():
                self._refusals += 1
                if self._refusals > REFUSALS_MAX:
                    raise CommitStormError(f"{REFUSALS_MAX} commits of others came first")
                return OpenTable()
            case Gone():
                self._written = ()
                return Discard()
            case Waited() | Discarded():
                return AskBounds()

    def _plan(self, bounds: Mapping[TopicPartition, Bounds], now_ms: int) -> Action:
        since_ms = now_ms - self._limits.linger_ms if self._ends else self._pending_since_ms
        found = plan(self._progress, bounds, self._limits, since_ms, now_ms)
        if found.slices:
            self._pending_since_ms = None
            return Write(found.slices)
        if not found.is_pending:
            self._pending_since_ms = None
        elif self._pending_since_ms is None:
            self._pending_since_ms = now_ms
        return Wait(found.wait_ms)

    def _try_again(self) -> Action:
        """Commit on the newer snapshot what was written, if nobody wrote any of it meanwhile."""
        if all(self._progress(one.partition) == one.progress for one in self._written):
            return Commit(self._written)
        self._written, self._refusals = (), 0
        return Discard()


def _unknown(_partition: TopicPartition) -> int | None:
    """The progress before a table was opened, which no plan uses."""
    raise AssertionError("no snapshot is open")
