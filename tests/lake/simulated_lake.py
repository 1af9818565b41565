"""A topic and a table in memory, and writers that can be killed at every action.

The table checks nothing but what Delta checks: a commit is the next version of the snapshot that it builds on. Rows are
counted, so a double is seen; files that no commit refers to are no rows.
"""

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.lake.core.plan import Bounds, Progress, RoundLimits, Slice
from headrace.lake.core.writer import (
    Action,
    AskBounds,
    Bounded,
    Commit,
    CommitRefused,
    Committed,
    Discard,
    Discarded,
    Gone,
    LakeWriter,
    Opened,
    OpenTable,
    Outcome,
    Wait,
    Waited,
    Write,
    Written,
)
from headrace.types import TopicPartition

Row = tuple[TopicPartition, int]


@dataclass
class Log:
    """One partition: the offsets that have records. Others below `end` are gaps of compaction or of transactions."""

    start: int = 0
    end: int = 0
    offsets: set[int] = field(default_factory=set)

    def append(self, chance: random.Random, count: int) -> None:
        self.offsets.update(offset for offset in range(self.end, self.end + count) if chance.random() < 0.8)
        self.end += count

    def delete_before(self, offset: int) -> None:
        self.start = max(self.start, min(offset, self.end))


@dataclass
class Table:
    """The versions of a table: the progress of each, and all rows and holes up to the newest."""

    checks_version: bool = True
    versions: list[dict[TopicPartition, int]] = field(default_factory=lambda: [{}])
    rows: Counter[Row] = field(default_factory=Counter)
    lost: Counter[Row] = field(default_factory=Counter)

    def commit(self, version: int, slices: tuple[Slice, ...], rows: list[Row]) -> bool:
        if self.checks_version and version != len(self.versions) - 1:
            return False
        self.versions.append({**self.versions[-1], **{one.partition: one.end for one in slices}})
        self.rows.update(rows)
        for one in slices:
            self.lost.update((one.partition, offset) for offset in range(one.start - one.lost, one.start))
        return True

    def commit_of_another(self) -> None:
        """A commit without progress: OPTIMIZE, or a load of another job."""
        self.versions.append(dict(self.versions[-1]))


class SimulatedWriter:
    """A process: the state machine, and what its memory holds. To kill it is to forget it."""

    def __init__(
        self, logs: Mapping[TopicPartition, Log], table: Table, limits: RoundLimits, chance: random.Random | None = None
    ) -> None:
        self._logs = logs
        self._table = table
        self._chance = chance
        self._version = -1
        self._rows: list[Row] = []
        self.writer = LakeWriter(limits)
        self.action: Action = self.writer.begin()

    def step(self, now_ms: int, *, dies_before_it_knows: bool = False) -> None:
        """One action and its outcome. A writer that dies has acted, and knows nothing of it."""
        outcome = self._act(self.action)
        if not dies_before_it_knows:
            self.action = self.writer.after(outcome, now_ms)

    def _act(self, action: Action) -> Outcome:
        match action:
            case OpenTable():
                self._version = len(self._table.versions) - 1
                return Opened(self._progress())
            case AskBounds():
                return Bounded({partition: Bounds(log.start, log.end) for partition, log in self._logs.items()})
            case Wait():
                return Waited()
            case Write(slices):
                return self._write(slices)
            case Commit(slices):
                if not self._table.commit(self._version, slices, self._rows):
                    return CommitRefused()
                self._version, self._rows = len(self._table.versions) - 1, []
                return Committed(self._progress())
            case Discard():
                self._rows = []
                return Discarded()

    def _progress(self) -> Progress:
        return self._table.versions[self._version].get

    def _write(self, slices: tuple[Slice, ...]) -> Outcome:
        written = []
        for one in slices:
            log = self._logs[one.partition]
            if one.start < log.start:
                self._rows = []
                return Gone()
            end = one.end
            if self._chance is not None and one.size > 1 and self._chance.random() < 0.3:  # a bound on bytes
                end = self._chance.randint(one.start + 1, one.end)
            self._rows += [(one.partition, offset) for offset in range(one.start, end) if offset in log.offsets]
            written.append(one._replace(end=end))
        return Written(tuple(written))
