"""Many seeds: on every history of a simulated cluster the checker finds nothing wrong, and a seed is the whole story.

A part of the seeds is the same in every run, the others are new ones each time. A failing one is printed with the
timeline of its run, and runs again with

    HEADRACE_SIMULATION_SEED=<seed> .venv/bin/python -m pytest tests/simulation -k replay -s
"""

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from random import SystemRandom

import pytest

from tests.simulation.cluster import run

SEED = "HEADRACE_SIMULATION_SEED"
CHUNK = 10


def check_seeds(seeds: Iterable[int]) -> None:
    for seed in seeds:
        result = run(seed)
        if not result.is_good:
            pytest.fail(result.story(), pytrace=False)


@pytest.mark.parametrize("seed", (1, 2))
def test_a_few_seeds_find_nothing_wrong(seed: int) -> None:
    check_seeds([seed])


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(10))
def test_the_same_seeds_each_time_find_nothing_wrong(chunk: int) -> None:
    check_seeds(range(1000 + CHUNK * chunk, 1000 + CHUNK * (chunk + 1)))


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(11))
def test_other_seeds_each_time_find_nothing_wrong(chunk: int) -> None:
    chance = SystemRandom()
    check_seeds(chance.randrange(1 << 40) for _ in range(CHUNK))


@pytest.mark.soak
@pytest.mark.parametrize("chunk", range(44))
def test_two_thousand_seeds_find_nothing_wrong(chunk: int) -> None:
    chance = SystemRandom()
    check_seeds(chance.randrange(1 << 40) for _ in range(5 * CHUNK))


@pytest.mark.parametrize("seed", (3, 4, 5))
def test_a_seed_gives_the_same_run_again_to_the_last_message(seed: int) -> None:
    first, second = run(seed), run(seed)
    assert str(first.timeline) == str(second.timeline)
    assert first.messages == second.messages > 100


@pytest.mark.slow
def test_a_seed_gives_the_same_run_in_another_process_whose_strings_hash_otherwise() -> None:
    program = "from tests.simulation.cluster import run; print(run(6).timeline)"
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


def test_different_seeds_give_different_runs() -> None:
    assert str(run(1).timeline) != str(run(2).timeline)


@pytest.mark.skipif(SEED not in os.environ, reason=f"{SEED} names no seed")
def test_replay() -> None:
    result = run(int(os.environ[SEED]))
    print(result.story())
    assert result.is_good
