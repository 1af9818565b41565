"""How much a property is tried with: all in `make test`, a part in `make quick`."""

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from random import Random
from zlib import crc32

import pytest

from tests import rotation

QUICK = os.environ.get("HEADRACE_QUICK", "0") != "0"
"""Whether this is `make quick`."""
PART = os.environ.get("HEADRACE_PART", "0/1")
"""Which part of the files this process of `make quick` has, as 0/3: the first of three."""
FEWER = 10
CASES = 2
DEFAULT = 100
"""What Hypothesis tries where a test does not say otherwise."""


def examples(count: int = DEFAULT) -> int:
    """`count`, or a tenth of it in `make quick`."""
    return max(1, count // FEWER) if QUICK else count


def is_in_this_part(path: str, part: str = PART) -> bool:
    """Whether a file belongs to a part. Each belongs to one, whatever other files there are."""
    number, _, count = part.partition("/")
    return crc32(path.encode()) % int(count) == int(number)


def slow_after(fast: int, parameters: Sequence[object]) -> list[object]:
    """The parameters of a test, such as seeds: `make quick` runs the first few only."""
    return [*parameters[:fast], *(pytest.param(each, marks=pytest.mark.slow) for each in parameters[fast:])]


def a_few_cases(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """What `make quick` runs: of a test with parameters a few cases, others each day."""
    cases = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        cases[item.nodeid.partition("[")[0]].append(item)
    found = set[pytest.Item]()
    for name, all_of_it in cases.items():
        in_order = sorted(all_of_it, key=lambda item: item.nodeid)
        found.update(Random(f"{rotation.seed()}/{name}").sample(in_order, min(CASES, len(in_order))))
    return found
