"""Which replica a consumer is sent to."""

import pytest

from headrace.replication.replica_selector import Candidate, select_replica
from headrace.types import BrokerId

A, B, C = (
    Candidate(BrokerId(1), "near", 10, 5, True),
    Candidate(BrokerId(2), "near", 12, 5, True),
    Candidate(BrokerId(3), "far", 20, 5, True),
)


@pytest.mark.parametrize(
    ("rack", "leader_rack", "candidates", "chosen"),
    [
        ("near", "far", [A, B, C], 2),
        ("near", "near", [A, B, C], None),
        ("", "far", [A, B, C], None),
        ("elsewhere", "far", [A, B, C], None),
        ("near", None, [C], None),
        ("near", "far", [A, B._replace(is_in_sync=False), C], 1),
        ("near", "far", [A._replace(is_in_sync=False)], None),
        ("near", "far", [A, B._replace(log_end_offset=10, last_caught_up_ms=9)], 2),
    ],
)
def test_the_one_with_most_in_the_same_rack(
    rack: str, leader_rack: str | None, candidates: list[Candidate], chosen: int | None
) -> None:
    assert select_replica(rack, leader_rack, candidates) == chosen
