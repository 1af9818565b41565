"""Many seeds: on every history of a simulated cluster the checker finds nothing wrong, and a seed is the whole story.

A part of the seeds is the same in every run; the others follow from the run's own seed (`tests/rotation.py`), so they
are new ones each day. A failing one is printed with the timeline of its run, and runs again with

    HEADRACE_SIMULATION_SEED=<seed> .venv/bin/python -m pytest tests/simulation -k replay -s

`make soak SEEDS=10000` runs so many in chunks. Its first line has the run's seed. After an interruption it goes on with
HEADRACE_SEED, which is that seed, and FROM, the number at which the first chunk begins that is left.
"""

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests import rotation
from tests.examples import slow_after
from tests.simulation import plan as kinds
from tests.simulation.cluster import Result, run
from tests.simulation.network import Weather
from tests.simulation.plan import Plan
from tests.simulation.regressions import REGRESSIONS, Regression

SEED = "HEADRACE_SIMULATION_SEED"
CHUNK = 10
SOAK_CHUNK = 50
SOAK = range(int(os.environ.get("HEADRACE_SOAK_FROM", "0")), int(os.environ.get("HEADRACE_SOAK_SEEDS", "2000")))


def check_seeds(seeds: Iterable[int]) -> None:
    """Runs all; fails with the story of the first that finds something, after what the others found."""
    check_results(map(run, seeds))


def check_results(results: Iterable[Result]) -> None:
    bad = [result for result in results if not result.is_good]
    if bad:
        others = [line for result in bad[1:] for line in result.headlines()]
        pytest.fail("\n".join([*others, f"{rotation.VARIABLE}={rotation.seed()}", bad[0].story()]), pytrace=False)


def drawn(numbers: Iterable[int]) -> Iterable[int]:
    return (rotation.drawn("simulation", number) for number in numbers)


@pytest.mark.slow
@pytest.mark.parametrize("seed", (1, 2))
def test_a_few_seeds_find_nothing_wrong(seed: int) -> None:
    check_seeds([seed])


@pytest.mark.slow
@pytest.mark.parametrize(
    "once", rotation.in_turn(*REGRESSIONS, a_day=len(REGRESSIONS) // 3), ids=lambda once: str(once.seed)
)
def test_a_seed_that_once_failed_finds_nothing_wrong_any_more(once: Regression) -> None:
    check_results([run(once.seed, once.plan)])


@pytest.mark.slow
@pytest.mark.parametrize("number", slow_after(1, (1, 2, 3, 4, 5)))
def test_a_reliable_topic_keeps_what_it_acknowledged_when_all_brokers_lose_power(number: int) -> None:
    faults = (kinds.CRASH, kinds.CUT, kinds.PAUSE, kinds.SESSION)
    plan = kinds.reliable(Plan(faults=faults, failures_max=3, gap_ms=700, topic_settings={"segment.bytes": "600"}))
    check_results([run(rotation.drawn("reliable", number), plan)])


@pytest.mark.slow
@pytest.mark.parametrize("chunk", rotation.in_turn(*range(10), a_day=2))
def test_the_same_seeds_find_nothing_wrong_a_fifth_each_day(chunk: int) -> None:
    check_seeds(range(1000 + CHUNK * chunk, 1000 + CHUNK * (chunk + 1)))


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(6))
def test_other_seeds_each_day_find_nothing_wrong(chunk: int) -> None:
    check_seeds(drawn(range(CHUNK * chunk, CHUNK * (chunk + 1))))


@pytest.mark.soak
@pytest.mark.parametrize("first", SOAK[::SOAK_CHUNK])
def test_thousands_of_drawn_seeds_find_nothing_wrong(first: int) -> None:
    check_seeds(drawn(range(first, min(first + SOAK_CHUNK, SOAK.stop))))


@pytest.mark.slow
@pytest.mark.parametrize("seed", (3, 4, 5))
def test_a_seed_gives_the_same_run_again_to_the_last_message(seed: int) -> None:
    first, second = run(seed), run(seed)
    assert str(first.timeline) == str(second.timeline)
    assert first.messages == second.messages > 100


@pytest.mark.slow
@pytest.mark.parametrize("number", slow_after(1, (1, 2, 3, 4)))
def test_instances_stay_apart_and_keep_to_their_limits(number: int) -> None:
    """Leaders and replicas move, and brokers die, while an instance fills its storage."""
    faults = (kinds.CRASH, kinds.PAUSE, kinds.ISOLATE, kinds.REASSIGN, kinds.ELECT)
    plan = kinds.with_instances(Plan(faults=faults, weather=Weather(), instance_capacity=10_000))
    check_results([run(rotation.drawn("instances", number), plan)])


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed_and_plan",
    rotation.in_turn(
        "6, None",
        "6, with_instances(Plan(faults=(CRASH, ISOLATE, REASSIGN), partitions=3))",
        "1, Plan(partitions=3, writers=(2, 2), processors=(0,), committed_readers=1, plain_disks=frozenset({1, 2}))",
    ),
)
def test_a_seed_gives_the_same_run_in_another_process_whose_strings_hash_otherwise(seed_and_plan: str) -> None:
    program = (
        "from tests.simulation.cluster import run; "
        "from tests.simulation.plan import CRASH, ISOLATE, REASSIGN, Plan, with_instances; "
        f"print(run({seed_and_plan}).timeline)"
    )
    stories = set()
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        root = Path(__file__).parents[2]
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=root, env=environment, capture_output=True, text=True, check=True
        )
        stories.add(done.stdout)
    assert len(stories) == 1
    assert "digest" in stories.pop()


@pytest.mark.slow
def test_different_seeds_give_different_runs() -> None:
    assert str(run(1).timeline) != str(run(2).timeline)


@pytest.mark.skipif(SEED not in os.environ, reason=f"{SEED} names no seed")
def test_replay() -> None:
    result = run(int(os.environ[SEED]))
    print(result.story())
    assert result.is_good
