"""Deliberate bugs in the leases: each exceeds the limit within a few seeds, and the same seeds do not without it.

A seed draws the steps of `test_invariant.play`: loads that shift, controllers that come and go, brokers that are cut
off, messages that are lost, late or repeated.
"""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from headrace.instances.flow.broker_leases import BrokerLeases
from headrace.instances.flow.leases import LeaseAnswer, Report
from headrace.instances.flow.master import FlowMaster
from headrace.instances.flow.max_min import allot_max_min
from headrace.instances.flow.pool import AS_HELD, Pool, PoolMember
from tests.instances.flow.test_invariant import BROKERS_MAX, HEARD_S, Setting, Step, play

SEEDS_MAX = 60
STEPS = 20
CONTROLLERS = ("load", "load", "another controller")
ALL = (*CONTROLLERS, "no controller", "a broker is cut off")

Patch = Callable[[pytest.MonkeyPatch], None]


def answers_of_old_controllers(patch: pytest.MonkeyPatch) -> None:
    accept = BrokerLeases.accept

    def any_answer(self: BrokerLeases, answer: LeaseAnswer, now: float) -> bool:
        number, self._number, self._answered = self._number, answer.number, -1
        self._controller_epoch = min(self._controller_epoch, answer.controller_epoch)
        accepted = accept(self, answer, now)
        self._number = number
        return accepted

    patch.setattr(BrokerLeases, "accept", any_answer)


def leases_never_end(patch: pytest.MonkeyPatch) -> None:
    begin = BrokerLeases._begin

    def kept(self: BrokerLeases, now: float) -> Any:
        ends_at, self._rises_at = self._rises_at, now
        usages = begin(self, now)
        self._rises_at = ends_at
        return usages

    patch.setattr(BrokerLeases, "_steps_towards_fair", lambda self, rate, fair, now: 0)
    patch.setattr(BrokerLeases, "_begin", kept)


def raised_unacknowledged(patch: pytest.MonkeyPatch) -> None:
    def grant(self: Pool, member: PoolMember, now: float) -> float:
        granted = member.held(now) if member.target == AS_HELD else member.target
        member.granted, member.granted_at = granted, member.broker.number
        return granted

    patch.setattr(Pool, "grant", grant)


def takeover_without_memory(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Pool, "_takeover_ends", lambda self: 0.0)


def later_reports_are_not_told_apart(patch: pytest.MonkeyPatch) -> None:
    receive = FlowMaster.receive

    def any_report(self: FlowMaster, report: Report, now: float) -> Any:
        broker = self._broker(report.broker_id)
        broker.number = min(broker.number, report.number - 1)
        return receive(self, report, now)

    patch.setattr(FlowMaster, "receive", any_report)


def run(seed: int, kinds: tuple[str, ...]) -> None:
    """Plays the steps of a seed. Raises `AssertionError` if a limit is exceeded."""
    chance = Random(f"lease mutants/{seed}")
    brokers = chance.randint(2, 4)
    is_cut = "a broker is cut off" in kinds
    setting = Setting(
        brokers, allot_max_min, chance.choice((0.01, 0.4)), chance.choice((0, 0.1)) if is_cut else 0, seed, 0.3
    )
    happens = [
        Step(
            chance.choice(kinds),
            chance.choice((HEARD_S, 4.0, 7.0)),
            chance.randint(1, brokers),
            [chance.randint(0, 4) for _ in range(BROKERS_MAX)],
        )
        for _ in range(STEPS)
    ]
    play(setting, happens, may_be_unreachable=is_cut)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutate", "kinds"),
    [
        (answers_of_old_controllers, CONTROLLERS),
        (leases_never_end, ALL),
        (raised_unacknowledged, CONTROLLERS),
        (takeover_without_memory, CONTROLLERS),
        (later_reports_are_not_told_apart, CONTROLLERS),
    ],
)
def test_a_deliberate_bug_exceeds_the_limit(
    mutate: Patch, kinds: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(SEEDS_MAX):
        with monkeypatch.context() as patch:
            mutate(patch)
            try:
                run(seed, kinds)
            except AssertionError as error:
                assert "in force at" in str(error)
                break
    else:
        pytest.fail(f"{SEEDS_MAX} seeds did not exceed the limit")
    run(seed, kinds)
