"""Deliberate bugs of deleted records, of topics that are made anew, and of full disks."""

from collections.abc import Iterable
from typing import Any

import pytest

from headrace.broker.replication import replica_fetcher
from headrace.log import truncation
from headrace.log.manager import LogManager
from headrace.log.partition_deletion import PartitionDeletion
from headrace.log.segment.segment import Segment
from headrace.log.segment_list import SegmentList
from headrace.replication.follower import Compare, Restart, Truncate, out_of_range
from tests.simulation import plan as kinds
from tests.simulation.mutant import Mutant
from tests.simulation.plan import Plan, with_deletions


def deleted_topic_keeps_its_log(patch: pytest.MonkeyPatch) -> None:
    """StopReplica is answered as if the log were gone."""

    def nothing(self: LogManager, _partitions: Iterable[Any]) -> PartitionDeletion:
        return PartitionDeletion(self.files, ())

    patch.setattr(LogManager, "begin_deletion", nothing)


def no_restart_behind_retention(patch: pytest.MonkeyPatch) -> None:
    """A follower that the leader's retention has overtaken stays where it is."""

    def stay(*args: Any) -> Truncate | Restart | Compare:
        decided = out_of_range(*args)
        return Truncate(args[2]) if isinstance(decided, Restart) else decided

    patch.setattr(replica_fetcher, "out_of_range", stay)


def begin_anew_without_room(patch: pytest.MonkeyPatch) -> None:
    """The segments of a log go before there is a new one."""

    def truncate_fully(log: Any, offset: int, now_ms: int, *, at_once: bool = False) -> None:
        truncation._check(log)
        with truncation._failing(log):
            truncation._delete(log, log.segments, now_ms)
            segment = Segment.create(log.files, log.directory, offset, log.config, now_ms=now_ms)
            truncation._set_end(log, SegmentList([segment]), offset, now_ms, is_empty=True, at_once=at_once)

    patch.setattr(truncation, "truncate_fully", truncate_fully)


_RETENTION = with_deletions(Plan(faults=(kinds.PAUSE, kinds.CRASH, kinds.CUT), gap_ms=500), 1_000)

OPERATOR_MUTANTS = (
    Mutant(
        "deleted topic keeps its log",
        deleted_topic_keeps_its_log,
        Plan(side_topic=True),
        frozenset({"leaderless", "unavailable"}),
    ),
    Mutant("no restart behind retention", no_restart_behind_retention, _RETENTION, frozenset({"unavailable"})),
    Mutant(
        "begin anew without room",
        begin_anew_without_room,
        _RETENTION._replace(faults=(kinds.FULL_DISK,)),
        frozenset({"unavailable", "vanished", "lost", "diverged", "leaderless"}),
    ),
)
