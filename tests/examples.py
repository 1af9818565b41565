"""How much a property is tried with: all in `make test`, a part in `make quick`."""

import os
from collections.abc import Sequence

import pytest

QUICK = os.environ.get("HEADRACE_QUICK", "0") != "0"
"""Whether this is `make quick`."""
FEWER = 10
DEFAULT = 100
"""What Hypothesis tries where a test does not say otherwise."""


def examples(count: int = DEFAULT) -> int:
    """`count`, or a tenth of it in `make quick`."""
    return max(1, count // FEWER) if QUICK else count


def slow_after(fast: int, parameters: Sequence[object]) -> list[object]:
    """The parameters of a test, such as seeds: `make quick` runs the first few only."""
    return [*parameters[:fast], *(pytest.param(each, marks=pytest.mark.slow) for each in parameters[fast:])]
