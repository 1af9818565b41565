"""Deliberate bugs, each the kind that replication protocols have had, put into the running code for a test.

ack before ISR             acks=all is answered as soon as the leader has it
truncate to HW             a follower drops what is above its high watermark, and nobody compares epochs (KIP-101)
serve above HW             consumers get what is not committed yet
shrink without check       a leader leaves followers out of its ISR before the controller has agreed
zombie controller          a controller writes, and is heard, though another one was elected
unclean restart in ISR     who comes back without what power took is trusted as if it had everything (KIP-966)
no duplicate detection     a batch that is sent again is appended again
"""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from headrace.broker import fetches, follower_fetches, follower_log, replica_fetcher
from headrace.broker.control_plane import ControlPlane
from headrace.broker.handlers import produce
from headrace.broker.partition import Partition
from headrace.coordination import controller, elections, isr_changes, leader_manager, term
from headrace.coordination.controller import Controller
from headrace.coordination.tree import ANY_VERSION, Op, Set
from headrace.errors import ErrorCode
from headrace.log.producer_state import Producers
from headrace.replication import isr
from tests.simulation import plan as kinds
from tests.simulation.network import Weather
from tests.simulation.plan import Plan

Patch = Callable[[pytest.MonkeyPatch], None]


class Mutant(NamedTuple):
    """A bug, the plan under which it shows, and what the checker must say of it."""

    name: str
    patch: Patch
    plan: Plan
    kinds: frozenset[str]


def ack_before_isr(patch: pytest.MonkeyPatch) -> None:
    append = produce._append

    def answered_at_once(*arguments: object) -> object:
        answer, _ = append(*arguments)  # type: ignore[arg-type]
        return answer, None

    patch.setattr(produce, "_append", answered_at_once)


def truncate_to_high_watermark(patch: pytest.MonkeyPatch) -> None:
    follow = replica_fetcher.ReplicaFetcher.follow

    def follow_and_truncate(self: replica_fetcher.ReplicaFetcher, partition: Partition) -> None:
        if partition.log.log_end_offset > partition.high_watermark:
            follower_log.truncate(partition, partition.high_watermark, self._around.now_ms())
        follow(self, partition)

    patch.setattr(replica_fetcher.ReplicaFetcher, "follow", follow_and_truncate)
    patch.setattr(follower_fetches, "_parting", lambda partition, wanted: None)


def serve_above_high_watermark(patch: pytest.MonkeyPatch) -> None:
    read = fetches.Fetch._read_partition

    def read_to_the_end(self, partition, *arguments):  # type: ignore[no-untyped-def]
        state, committed = partition.state, partition.state.high_watermark
        if self._follower is None:
            state.high_watermark = partition.log.log_end_offset
        try:
            return read(self, partition, *arguments)
        finally:
            if self._follower is None:
                state.high_watermark = committed

    patch.setattr(fetches.Fetch, "_read_partition", read_to_the_end)


def shrink_without_check(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(isr.PendingShrink, "maximal", property(lambda self: self.isr - self.leaving))


def zombie_controller(patch: pytest.MonkeyPatch) -> None:
    async def write_anyway(self: term.Term, ops: list[Op]) -> list[object]:
        blind = [op._replace(version=ANY_VERSION) if isinstance(op, Set) else op for op in ops]
        return await self.tree.multi(blind)  # type: ignore[return-value]

    patch.setattr(term.Term, "_multi", write_anyway)
    patch.setattr(Controller, "_leave_office", lambda self: None)
    patch.setattr(Controller, "_on_session", lambda self, state: None)
    patch.setattr(ControlPlane, "_check", lambda self, request: ErrorCode.NONE)


def isr_change_without_epochs(patch: pytest.MonkeyPatch) -> None:
    def granted(state, sender, change, controller_epoch):  # type: ignore[no-untyped-def]
        isr = tuple(member.id for member in change.isr)
        changed = state.leadership[change.partition]._replace(isr=isr)
        return isr_changes.Judgement(ErrorCode.NONE, changed, is_changed=True)

    patch.setattr(leader_manager, "judge", granted)
    patch.setattr(controller, "is_from_the_living", lambda *arguments: True)


def unclean_restart_in_isr(patch: pytest.MonkeyPatch) -> None:
    def trusted(state, live, order):  # type: ignore[no-untyped-def]
        return tuple(broker for broker in state.isr if broker in live)

    patch.setattr(elections, "_trusted", trusted)


def no_duplicate_detection(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Producers, "check", lambda self, *arguments, **more: None)


LOSSES = frozenset({"lost", "vanished", "conflict", "diverged", "refused", "unordered"})
_ROUGH = Plan(duration_ms=12_000, gap_ms=700, min_insync_replicas=1, failures_max=2)

MUTANTS = (
    Mutant("ack before ISR", ack_before_isr, _ROUGH._replace(faults=(kinds.CRASH, kinds.CUT, kinds.PAUSE)), LOSSES),
    Mutant(
        "truncate to HW",
        truncate_to_high_watermark,
        _ROUGH._replace(faults=(kinds.CRASH, kinds.ELECT, kinds.STOP), weather=Weather(loss=0.05), gap_ms=400),
        LOSSES,
    ),
    Mutant(
        "serve above HW",
        serve_above_high_watermark,
        _ROUGH._replace(faults=(kinds.CRASH, kinds.CUT, kinds.PAUSE)),
        LOSSES | {"watermark"},
    ),
    Mutant(
        "shrink without check",
        shrink_without_check,
        _ROUGH._replace(faults=(kinds.CUT, kinds.ISOLATE, kinds.CUT_ONE_WAY)),
        LOSSES,
    ),
    Mutant(
        "ISR change without epochs",
        isr_change_without_epochs,
        _ROUGH._replace(faults=(kinds.PAUSE, kinds.STOP, kinds.CUT), gap_ms=500),
        LOSSES | {"two leaders"},
    ),
    Mutant(
        "zombie controller",
        zombie_controller,
        _ROUGH._replace(faults=(kinds.ISOLATE, kinds.SESSION, kinds.PAUSE)),
        LOSSES | {"two leaders"},
    ),
    Mutant(
        "unclean restart in ISR",
        unclean_restart_in_isr,
        _ROUGH._replace(faults=(kinds.POWER,), min_insync_replicas=2),
        LOSSES,
    ),
    Mutant(
        "no duplicate detection", no_duplicate_detection, _ROUGH._replace(faults=(kinds.CUT,)), frozenset({"duplicate"})
    ),
)
