"""The simulation sees: each deliberate bug is found within a few seeds, and the same seeds find nothing without it.

`make test` has a fifth of the bugs each day, of each list some; `make soak` has all.
"""

import pytest

from tests import rotation
from tests.simulation.cluster import run
from tests.simulation.group_mutants import GROUP_MUTANTS
from tests.simulation.instance_mutants import INSTANCE_MUTANTS
from tests.simulation.mutant import Mutant
from tests.simulation.mutants import MUTANTS
from tests.simulation.operator_mutants import OPERATOR_MUTANTS
from tests.simulation.share_mutants import SHARE_MUTANTS
from tests.simulation.transaction_mutants import TRANSACTION_MUTANTS

SEEDS_MAX = 60
ALL_MUTANTS = (
    *MUTANTS, *TRANSACTION_MUTANTS, *GROUP_MUTANTS, *SHARE_MUTANTS, *INSTANCE_MUTANTS, *OPERATOR_MUTANTS,
)  # fmt: skip
DAYS = 5


@pytest.mark.slow
@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(mutant, marks=rotation.unless_today(number % DAYS, DAYS), id=mutant.name)
        for number, mutant in enumerate(ALL_MUTANTS)
    ],
)
def test_a_deliberate_bug_is_caught(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(mutant.first_seed, mutant.first_seed + SEEDS_MAX):
        with monkeypatch.context() as patch:
            mutant.patch(patch)
            caught = {finding.kind for finding in run(seed, mutant.plan).findings} & mutant.kinds
        if caught:
            break
    else:
        pytest.fail(f"{SEEDS_MAX} seeds did not find {mutant.name!r}")
    healthy = run(seed, mutant.plan)
    assert not {finding.kind for finding in healthy.findings} & mutant.kinds, healthy.story()
