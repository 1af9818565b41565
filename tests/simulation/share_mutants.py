"""Deliberate bugs in share groups, put into the running code for a test, as those in `mutants.py`.

failed writes are done          an acknowledgement is answered though its state could not be stored
delivery counts are forgotten   the next leader begins to count deliveries again
locks of others are not seen    a member acknowledges what another one holds by now
records on loan are free        a record that a member holds is given to another one
releases are archived           a record whose lock runs out is not delivered again
locks never run out             a record whose holder is silent stays with it
the limit is not looked at      a record is delivered as often as it is released
gaps are passed                 the next leader passes records that were given out and never finished
"""

import pytest

from headrace.broker.share.persister_client import PersisterClient
from headrace.broker.share.state_messages import WRITE
from headrace.coordinators.share_partitions import acknowledgement
from headrace.coordinators.share_partitions.records import ACQUIRED, AVAILABLE, RecordRun, RecordState
from headrace.coordinators.share_partitions.share_partition import SharePartition
from headrace.coordinators.share_state.persister import PersisterOutcome
from tests.simulation import plan as kinds
from tests.simulation.mutant import Mutant
from tests.simulation.network import Weather
from tests.simulation.plan import Plan, with_sharers


def failed_writes_are_done(patch: pytest.MonkeyPatch) -> None:
    call = PersisterClient._try

    async def always_done(self, api, group_id, items, local):  # type: ignore[no-untyped-def]
        results = await call(self, api, group_id, items, local)
        return dict.fromkeys(items, PersisterOutcome()) if api is WRITE else results

    patch.setattr(PersisterClient, "_try", always_done)


def counts_forgotten(patch: pytest.MonkeyPatch) -> None:
    restore = SharePartition._restore

    def from_the_start(self, batches):  # type: ignore[no-untyped-def]
        restore(self, [batch._replace(delivery_count=0) for batch in batches])

    patch.setattr(SharePartition, "_restore", from_the_start)


def any_holder_may_acknowledge(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(acknowledgement, "_check_batch", lambda batch, member: None)
    patch.setattr(acknowledgement, "_check", lambda run, member: None)


def held_is_free(patch: pytest.MonkeyPatch) -> None:
    def is_free(self: RecordRun) -> bool:
        return self.state in (AVAILABLE, ACQUIRED) and self.pending is None

    patch.setattr(RecordRun, "is_available", property(is_free))
    any_holder_may_acknowledge(patch)


def releases_archived(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SharePartition, "_released", lambda self, run: RecordState.ARCHIVED)


def locks_never_run_out(patch: pytest.MonkeyPatch) -> None:
    def nothing(self: SharePartition, now_ms: int) -> int:
        self.next_lock_ms = None
        return 0

    patch.setattr(SharePartition, "release_expired", nothing)


def no_limit(patch: pytest.MonkeyPatch) -> None:
    leave = RecordRun.leave
    patch.setattr(RecordRun, "leave", lambda self, state, delivery_count_max: leave(self, state, 1 << 15))


def gaps_passed(patch: pytest.MonkeyPatch) -> None:
    restore = SharePartition._restore

    def without_gaps(self, batches):  # type: ignore[no-untyped-def]
        restore(self, batches)
        self.gap_start = self.gap_window_end = -1
        self.move_start()

    patch.setattr(SharePartition, "_restore", without_gaps)


_CALM = with_sharers(Plan(partitions=2, duration_ms=8_000, producers=((-1, True),), readers=0), 3)
_ROUGH = _CALM._replace(
    duration_ms=10_000,
    gap_ms=700,
    faults=(kinds.CRASH, kinds.ELECT, kinds.STOP),
    weather=Weather(loss=0.02),
    failures_max=1,
)

SHARE_MUTANTS = (
    Mutant("failed writes are done", failed_writes_are_done, _ROUGH, frozenset({"again", "count"}), first_seed=3),
    Mutant("delivery counts are forgotten", counts_forgotten, _ROUGH, frozenset({"count"}), first_seed=2),
    Mutant("locks of others are not seen", any_holder_may_acknowledge, _CALM, frozenset({"two holders"})),
    Mutant("records on loan are free", held_is_free, _CALM, frozenset({"two holders"}), first_seed=2),
    Mutant("releases are archived", releases_archived, _CALM, frozenset({"undelivered"})),
    Mutant("locks never run out", locks_never_run_out, _CALM, frozenset({"undrained"})),
    Mutant("the limit is not looked at", no_limit, _CALM, frozenset({"deliveries"}), first_seed=12),
    Mutant("gaps are passed", gaps_passed, _ROUGH, frozenset({"undelivered"}), first_seed=71),
)
