"""The allocator max-min: worked examples, and the properties that define max-min fairness."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.instances.flow.allotment import Branch, Share
from headrace.instances.flow.max_min import FLOOR, MARGIN, allot_max_min, demand, water_level

LIMITS = st.floats(1e-3, 1e12)
DEMANDS = st.one_of(st.just(0.0), st.floats(1e-3, 1e12))


def shares(*each: tuple[int, float]) -> list[Share]:
    """One share for each (partitions, demand). Nothing flows: the allocator must not look at it."""
    return [Share(partitions, 0.0, wanted) for partitions, wanted in each]


def test_what_was_throttled_half_of_the_time_is_wanted_twice() -> None:
    """100 flowed in the half of the interval that was free: 200 in all of it. F = 150 * 0.5 is less."""
    assert demand(100, 0.5, 150) == 200
    assert demand(100, 0, 150) == 100


def test_what_was_throttled_throughout_is_wanted_a_hundredfold_and_at_least_f() -> None:
    assert demand(100, 1, 150) == pytest.approx(10_000)
    assert demand(0, 1, 150) == 150


def test_below_80_percent_everywhere_the_share_by_partitions_stands() -> None:
    assert allot_max_min(1000, shares((5, 399), (3, 239), (2, 159))) == ([500, 300, 200], Branch.FAIR)


def test_one_busy_broker_gets_all_but_the_floor_of_the_others() -> None:
    """F = 400 each of 1200. The floor is 1 % of it: 4 for each. What is left, 1188, goes to the one that wants it."""
    rates, branch = allot_max_min(1200, shares((1, 1e9), (1, 0), (1, 0)))
    assert branch is Branch.WATER_FILLED
    assert rates == pytest.approx([1192, 4, 4])


def test_small_demands_are_met_and_the_rest_is_shared_by_partitions() -> None:
    """1000 over 1, 1 and 2 partitions: F = 250, 250, 500; floors 2.5, 2.5, 5. The first wants 100, with the margin 103.
    The others want everything: 1000 - 103 = 897 at the same rate for each partition above the floor, which is by
    partitions too: 897 / 3 = 299 and 598."""
    rates, branch = allot_max_min(1000, shares((1, 100), (1, 1e6), (2, 1e6)))
    assert branch is Branch.WATER_FILLED
    assert rates == pytest.approx([103, 299, 598])


def test_what_nobody_demands_is_shared_by_partitions() -> None:
    """1000 over 1 and 1. Demands 500 and 100 (100 % of F: it no longer stands), with the margin 515 and 103. 382 are
    left: 191 for each."""
    rates, branch = allot_max_min(1000, shares((1, 500), (1, 100)))
    assert branch is Branch.DEMAND_MET
    assert rates == pytest.approx([706, 294])


def test_a_broker_whose_first_partition_is_on_the_way_gets_a_little() -> None:
    """Weights 4 and 0.1: the floor of the second is 1 % of 1000 * 0.1/4.1."""
    rates, _ = allot_max_min(1000, shares((4, 1e6), (0, 0)))
    assert rates == pytest.approx([1000 - 10 * 0.1 / 4.1, 10 * 0.1 / 4.1])


def test_the_water_level_of_three() -> None:
    """Wants 10, 60, 60 with weights 1, 1, 2 and a limit of 100: 10 is met, 90 for the weights 1 and 2: 30 for each. The
    third gets 60: just met. With 200 all are met."""
    assert water_level(100, [10, 60, 60], [1, 1, 2]) == 30
    assert water_level(200, [10, 60, 60], [1, 1, 2]) == float("inf")
    assert water_level(0, [0, 1], [1, 1]) == 0


@given(limit=LIMITS, wanted=st.lists(st.tuples(st.integers(0, 1000), DEMANDS), min_size=1, max_size=30))
def test_the_limit_is_shared_out_and_not_more(limit: float, wanted: list[tuple[int, float]]) -> None:
    rates, _ = allot_max_min(limit, shares(*wanted))
    assert all(0 <= rate < float("inf") for rate in rates)
    assert sum(rates) == pytest.approx(limit)


@given(limit=LIMITS, wanted=st.lists(st.tuples(st.integers(1, 1000), DEMANDS), min_size=1, max_size=30))
def test_nobody_is_short_while_another_one_has_more_for_each_partition(
    limit: float, wanted: list[tuple[int, float]]
) -> None:
    """Max-min fairness: who gets less than it wants has, for each partition, at least what anybody else has beyond the
    floor. So nothing could be given to it without taking it from one that has no more."""
    rates, branch = allot_max_min(limit, shares(*wanted))
    if branch is not Branch.WATER_FILLED:
        return
    per_partition = [rate / partitions for rate, (partitions, _) in zip(rates, wanted, strict=True)]
    for rate, each, (_, want) in zip(rates, per_partition, wanted, strict=True):
        if rate < want * (1 + MARGIN) * (1 - 1e-6):
            assert each >= max(per_partition) * (1 - 1e-6)


@given(limit=LIMITS, wanted=st.lists(st.tuples(st.integers(1, 1000), DEMANDS), min_size=1, max_size=30))
def test_a_demand_up_to_f_is_always_met(limit: float, wanted: list[tuple[int, float]]) -> None:
    """Whatever the others want: what is guaranteed by partitions cannot be taken away, but for the floor and the
    margin."""
    rates, _ = allot_max_min(limit, shares(*wanted))
    total = sum(partitions for partitions, _ in wanted)
    for rate, (partitions, want) in zip(rates, wanted, strict=True):
        fair = limit * partitions / total
        assert rate >= min(want, fair * (1 - FLOOR)) * (1 - 1e-6)


@given(limit=LIMITS, wants=st.lists(st.tuples(DEMANDS, st.floats(0.1, 100)), min_size=1, max_size=20))
def test_the_water_level_is_that_of_bisection(limit: float, wants: list[tuple[float, float]]) -> None:
    """Against a dumb search for the level at which everything is used."""
    level = water_level(limit, [want for want, _ in wants], [weight for _, weight in wants])
    if level == float("inf"):
        assert sum(want for want, _ in wants) <= limit * (1 + 1e-6)
        return
    low, high = 0.0, limit / 0.1
    for _ in range(200):
        middle = (low + high) / 2
        if sum(min(want, middle * weight) for want, weight in wants) < limit:
            low = middle
        else:
            high = middle
    filled = sum(min(want, level * weight) for want, weight in wants)
    assert filled == pytest.approx(limit, rel=1e-6)
    assert filled == pytest.approx(sum(min(want, high * weight) for want, weight in wants), rel=1e-6)
