"""A deliberate bug, with the plan under which it shows."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests.simulation.plan import Plan

Patch = Callable[[pytest.MonkeyPatch], None]


class Mutant(NamedTuple):
    """A bug, the plan under which it shows, and what the checker must say of it."""

    name: str
    patch: Patch
    plan: Plan
    kinds: frozenset[str]
    first_seed: int = 0
    """Where to begin: at the first seed that showed it when it was last looked for. Later ones are tried as well, so a
    change of what seeds mean costs time alone."""
