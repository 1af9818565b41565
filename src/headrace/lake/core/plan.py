"""Which offsets are written next, or how long to wait for more.

    table  ... ────────┤ progress
    log            ├ start ──────────────────┤ end            the normal case: write [progress, end)
    log                    ├ start ──────────┤ end            [progress, start) was deleted: a hole, or OvertakenError

A round is what one commit adds. It begins when there is enough for a round, or when the oldest record that is not in
the table has waited for `linger_ms`. In a round every partition gets the same share, so that none waits for another.

Invariants: slices of a round have different partitions; a slice begins where the progress is, or with a hole before it
where the log begins; ends are at most the ends of the logs, which are the last stable offsets with read_committed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from headrace.types import TopicPartition

Progress: TypeAlias = Callable[[TopicPartition], int | None]
"""The next offset of a partition in one snapshot of the table; None if the table has never had one of it."""


class OvertakenError(Exception):
    """Records were deleted from the log before the table had them."""


class LogReplacedError(Exception):
    """The log ends before the table's progress: it is another log, or its end was lost."""


class DataLoss(StrEnum):
    """What to do about records that the log has no more."""

    STOP = "stop"
    """Raise OvertakenError; nothing is written."""
    RECORD = "record"
    """Go on behind the hole, and record the hole in the table."""


class Bounds(NamedTuple):
    """The offsets that a log has: from `start` (inclusive) to `end` (exclusive)."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class RoundLimits:
    """When a round begins, and the most that it writes."""

    round_records: int = 4_000_000
    linger_ms: int = 4_000
    poll_ms: int = 500
    """How often the ends of the logs are asked for while there is nothing to write."""
    data_loss: DataLoss = DataLoss.STOP


class Slice(NamedTuple):
    """Offsets of one partition to write: [start, end). The table's progress must be `progress` at the commit."""

    partition: TopicPartition
    progress: int | None
    start: int
    end: int

    @property
    def lost(self) -> int:
        """The number of offsets before it that the log has no more, and the table never had."""
        return 0 if self.progress is None else self.start - self.progress

    @property
    def size(self) -> int:
        return self.end - self.start


class RoundPlan(NamedTuple):
    """The slices of the next round, or the time to wait before the log is asked again. `is_pending` says whether there
    are records that wait for the round."""

    slices: tuple[Slice, ...]
    wait_ms: int = 0
    is_pending: bool = False


def plan(
    progress: Progress,
    bounds: Mapping[TopicPartition, Bounds],
    limits: RoundLimits,
    pending_since_ms: int | None,
    now_ms: int,
) -> RoundPlan:
    """The next round of the partitions in `bounds`. `pending_since_ms` is when records were first seen to wait.

    Raises LogReplacedError, and OvertakenError if losses are to stop.
    """
    backlog = [one for partition, log in sorted(bounds.items()) if (one := _missing(partition, progress, log, limits))]
    if not backlog:
        return RoundPlan((), limits.poll_ms)
    total = sum(one.size for one in backlog)
    waited_ms = 0 if pending_since_ms is None else max(0, now_ms - pending_since_ms)
    if total < limits.round_records and waited_ms < limits.linger_ms:
        return RoundPlan((), limits.linger_ms - waited_ms, is_pending=True)
    share = max(1, limits.round_records // len(backlog))
    return RoundPlan(tuple(one._replace(end=min(one.end, one.start + share)) for one in backlog))


def _missing(partition: TopicPartition, progress: Progress, log: Bounds, limits: RoundLimits) -> Slice | None:
    """All that the log has of a partition and the table has not; None if there is nothing, not even a hole."""
    known = progress(partition)
    begin = log.start if known is None else known
    if begin > log.end:
        raise LogReplacedError(
            f"{partition} ends at offset {log.end}, but the table has all before {begin}: the topic was deleted and "
            "created again, or it lost its end. Write it to a new table"
        )
    if begin < log.start and limits.data_loss is DataLoss.STOP:
        raise OvertakenError(
            f"{partition} begins at offset {log.start}, but the table has only what is before {begin}: the records "
            "between were deleted by retention. With --data-loss record the table goes on behind them, and keeps a "
            "record of the hole"
        )
    start = max(begin, log.start)
    return Slice(partition, known, start, log.end) if start < log.end or begin < start else None
