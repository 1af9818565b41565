"""The seed's allocator: each branch with numbers worked out by hand, and the edges."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.instances.flow.allotment import Branch, Share, blocked
from headrace.instances.flow.seed import allot_by_seed


def shares(*each: tuple[int, float]) -> list[Share]:
    """One share for each (partitions, what flows). The demand is absurd: the seed's allocator must not look at it."""
    return [Share(partitions, flowed, 1e12) for partitions, flowed in each]


def test_full_storage_blocks_production_on_every_broker() -> None:
    """Step 1. Production gets 0 on each of 3 brokers; consumption is not asked (it is allotted as ever)."""
    assert blocked(3) == ([0.0, 0.0, 0.0], Branch.STORAGE_FULL)


def test_below_80_percent_everywhere_the_share_by_partitions_stands() -> None:
    """Steps 2 and 3. 1000 over 5, 3 and 2 partitions: F = 500, 300, 200. 80 % of F = 400, 240, 160; 399, 239 and 159
    flow, each below."""
    allotted = allot_by_seed(1000, shares((5, 399), (3, 239), (2, 159)))
    assert allotted == ([500, 300, 200], Branch.FAIR)


def test_exactly_80_percent_is_no_longer_below() -> None:
    """F = 500, 300, 200. The second broker uses 240 = 80 % of 300. What flows: 200 + 240 + 100 = 540, so
    P = 200/540, 240/540, 100/540; Pmin/Pmax = 100/240 = 42 %. In 540ths the largest keeps 240; the others get 10 % of
    240 = 24 more: 224 and 124. Their sum is 588, so 1000 * 224/588, 240/588, 124/588."""
    rates, branch = allot_by_seed(1000, shares((5, 200), (3, 240), (2, 100)))
    assert branch is Branch.WITH_GROWTH
    assert rates == pytest.approx([380.952, 408.163, 210.884], abs=1e-3)


def test_nearly_equal_flows_are_allotted_by_what_flows() -> None:
    """Steps 4 and 5a. F = 300 each; 300, 270 and 240 flow: P = 300/810, 270/810, 240/810. Pmin/Pmax = 240/300 = 80 %,
    just equal enough. 900 by P: 900 * 300/810 = 333.33, 300, 266.67."""
    rates, branch = allot_by_seed(900, shares((1, 300), (1, 270), (1, 240)))
    assert branch is Branch.BY_FLOW
    assert rates == pytest.approx([333.333, 300, 266.667], abs=1e-3)


def test_unequal_flows_leave_the_small_ones_room_to_grow() -> None:
    """Step 5b. F = 400 each of 1200; 600, 300 and 100 flow: P = 0.6, 0.3, 0.1. Pmin/Pmax = 17 %. Pmax * 10 % = 0.06:
    the largest gets 0.6, the others min(0.36, 0.6) = 0.36 and min(0.16, 0.6) = 0.16. Sum 1.12, normalised to 1200:
    0.6 * 1200/1.12 = 642.86, 0.36 -> 385.71, 0.16 -> 171.43."""
    rates, branch = allot_by_seed(1200, shares((2, 600), (2, 300), (2, 100)))
    assert branch is Branch.WITH_GROWTH
    assert rates == pytest.approx([642.857, 385.714, 171.429], abs=1e-3)


def test_growth_ends_at_the_largest_share() -> None:
    """Step 5b's minimum. 480, 460, 60 of 1000 flow: P = 0.48, 0.46, 0.06. 0.46 + 0.048 = 0.508 is above Pmax: 0.48.
    0.06 + 0.048 = 0.108. Sum 0.48 + 0.48 + 0.108 = 1.068: of 1068 that is 480, 480 and 108."""
    rates, branch = allot_by_seed(1068, shares((1, 480), (1, 460), (1, 60)))
    assert branch is Branch.WITH_GROWTH
    assert rates == pytest.approx([480, 480, 108])


def test_one_busy_broker_among_idle_ones_does_not_get_the_whole_limit() -> None:
    """Step 5b. Only the first of 3 is busy: P = 1, 0, 0 and Pmax * 10 % = 0.1 for each other one. Sum 1.2, so the busy
    one gets 1200/1.2 = 1000, and 200 of 1200 lie idle: the price of the room to grow."""
    rates, _ = allot_by_seed(1200, shares((1, 400), (1, 0), (1, 0)))
    assert rates == pytest.approx([1000, 100, 100])


def test_one_broker_gets_the_limit() -> None:
    """Quiet: F = 1000 = the limit. Busy: P = 1 = Pmin = Pmax, so the limit again."""
    assert allot_by_seed(1000, shares((7, 10))) == ([1000], Branch.FAIR)
    assert allot_by_seed(1000, shares((7, 1000))) == ([1000], Branch.BY_FLOW)


def test_a_broker_without_partitions_has_no_share_until_something_flows() -> None:
    """F = 1000, 0. Nothing flows where F is 0: that is below 80 %, though 0 < 0.8 * 0 does not hold. If 10 flow there
    (a partition has just moved away), F no longer stands: P = 90/100 and 10/100, Pmin/Pmax = 11 %, 0.9 and 0.1 +
    0.09."""
    assert allot_by_seed(1000, shares((4, 90), (0, 0))) == ([1000, 0], Branch.FAIR)
    rates, branch = allot_by_seed(1000, shares((4, 90), (0, 10)))
    assert branch is Branch.WITH_GROWTH
    assert rates == pytest.approx([1000 * 0.9 / 1.09, 1000 * 0.19 / 1.09])


def test_without_partitions_anywhere_the_shares_are_equal() -> None:
    assert allot_by_seed(900, shares((0, 0), (0, 0), (0, 0))) == ([300, 300, 300], Branch.FAIR)


def test_a_limit_of_less_than_a_byte_for_each_broker_is_shared_out_too() -> None:
    rates, _ = allot_by_seed(2, shares(*[(1, 0)] * 199, (1, 5)))
    assert sum(rates) == pytest.approx(2)
    assert min(rates) > 0


def test_no_brokers_get_nothing() -> None:
    assert allot_by_seed(10, []) == ([], Branch.FAIR)


FLOWS = st.one_of(st.just(0.0), st.floats(1e-3, 1e12))


@given(
    limit=st.one_of(st.just(0.0), st.floats(1e-3, 1e12)),
    usage=st.lists(st.tuples(st.integers(0, 1000), FLOWS), min_size=1, max_size=30),
)
def test_whatever_flows_the_limit_is_shared_out_and_not_more(limit: float, usage: list[tuple[int, float]]) -> None:
    rates, _ = allot_by_seed(limit, shares(*usage))
    assert len(rates) == len(usage)
    assert all(0 <= rate < float("inf") for rate in rates)
    assert sum(rates) == pytest.approx(limit)
