"""How many connections one turn of the event loop accepts: few on a quiet broker, a fifth of the time on a busy one."""

import pytest

from headrace.network.server import accepts_after


@pytest.mark.parametrize(
    ("turn_ms", "accepts"), [(0, 1), (0.1, 1), (0.9, 1), (1.1, 2), (5.1, 10), (7.9, 15), (8.1, 16), (3_600_000, 16)]
)
def test_a_turn_that_took_long_accepts_more_connections(turn_ms: float, accepts: int) -> None:
    assert accepts_after(turn_ms / 1000) == accepts
