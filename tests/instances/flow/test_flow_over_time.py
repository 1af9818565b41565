"""What clients get out of it, second by second: rebalancing, takeovers, the way to F. The fast part of the simulation
in benchmarks/instances; deterministic."""

import pytest

from headrace.instances.flow.allotment import Allocator
from headrace.instances.flow.max_min import allot_max_min
from headrace.instances.flow.seed import allot_by_seed
from tests.instances.flow.cluster import FlowCluster

LIMIT = 1e6


def cluster(brokers: int, allocate: Allocator = allot_max_min, *, seed: int = 1) -> FlowCluster:
    """One instance with a partition on each broker, and a controller."""
    made = FlowCluster(brokers, allocate=allocate, seed=seed)
    made.start_master()
    made.add_instance("a", LIMIT, dict.fromkeys(made.brokers, 1))
    return made


def used(of: FlowCluster, seconds: float) -> float:
    """The share of the limit that flows in the next seconds."""
    before = of.total("a")
    of.run(of.now + seconds)
    return (of.total("a") - before) / (LIMIT * seconds)


@pytest.mark.parametrize("brokers", [3, 12])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_max_min_uses_the_limit_within_five_seconds_of_a_skew(brokers: int, seed: int) -> None:
    """All traffic begins on one broker, which has 1/3 or 1/12 of the limit by partitions."""
    each = cluster(brokers, seed=seed)
    each.run(3)
    each.load = lambda _, broker, now: 2 * LIMIT if broker == 1 else 0.001 * LIMIT
    used(each, 5)
    assert used(each, 5) >= 0.95


def test_max_min_follows_a_load_that_shifts_to_another_broker_within_four_seconds() -> None:
    """While the busy broker pays its debt at the low rate that it had, nothing flows there: all the same it wants
    it."""
    each = cluster(6)
    each.load = lambda _, broker, now: 2 * LIMIT if broker == 1 + int(now) // 10 else 0
    each.run(14)
    for _ in range(4):
        assert used(each, 6) >= 0.95
        used(each, 4)


def test_the_seeds_allocator_leaves_unused_what_the_others_might_grow_into() -> None:
    """One busy broker of n gets 1 / (1 + 0.1 * (n - 1)): 83 % of 3, 48 % of 12 (as n - 1 = 11)."""
    for brokers, share in ((3, 1 / 1.2), (12, 1 / 2.1)):
        each = cluster(brokers, allot_by_seed)
        each.load = lambda _, broker, now: 2 * LIMIT if broker == 1 else 0
        each.run(15)
        assert used(each, 10) == pytest.approx(share, abs=0.03)


@pytest.mark.parametrize("allocate", [allot_by_seed, allot_max_min])
def test_another_controller_takes_over_without_a_gap_or_a_burst(allocate: Allocator) -> None:
    """After a second without one. In each second of the takeover as much flows as before, and the sum of the rates
    stays at the limit."""
    each = cluster(4, allocate)
    each.load = lambda _, broker, now: LIMIT if broker == 1 else 0.1 * LIMIT
    each.run(20)
    before = used(each, 10)
    each.stop_master()
    each.run(each.now + 1)
    rates = {broker: each.rate("a", broker) for broker in each.brokers}
    each.start_master()
    for _ in range(10):
        assert used(each, 1) == pytest.approx(before, rel=0.05)
        assert each.rates("a") <= LIMIT * 1.0001
    assert {broker: each.rate("a", broker) for broker in each.brokers} == pytest.approx(rates, rel=0.1)


def test_without_a_controller_all_brokers_come_to_f_and_back_with_the_next() -> None:
    each = cluster(4)
    each.load = lambda _, broker, now: 2 * LIMIT if broker == 1 else 0
    each.run(10)
    assert each.rate("a", 1) > 0.95 * LIMIT
    each.stop_master()
    each.run(each.now + 2)
    assert each.rate("a", 1) > 0.95 * LIMIT
    sums, rates = [], []
    for _ in range(20):
        each.run(each.now + 1)
        sums.append(each.rates("a"))
        rates.append(each.rate("a", 1))
    assert max(sums) <= LIMIT * 1.0001
    assert rates == sorted(rates, reverse=True)
    assert len(set(rates)) >= 5
    assert {each.rate("a", broker) for broker in each.brokers} == {LIMIT / 4}
    each.start_master()
    used(each, 5)
    assert used(each, 5) >= 0.95


def test_a_broker_that_is_cut_off_comes_to_f_and_the_others_use_the_rest() -> None:
    """It may use its F, 1/4, and nobody knows whether it does: the busy one gets the other 3/4."""
    each = cluster(4)
    each.load = lambda _, broker, now: 2 * LIMIT if broker == 1 else 0
    each.run(10)
    each.cut(2, 60)
    each.run(30)
    assert each.rate("a", 2) == LIMIT / 4
    assert each.rate("a", 1) > 0.7 * LIMIT
    assert each.rates("a") <= LIMIT * 1.0001


def test_where_partitions_move_to_the_load_follows_within_five_seconds() -> None:
    each = cluster(3)
    each.move("a", {1: 3, 2: 0, 3: 0})
    each.load = lambda _, broker, now: 2 * LIMIT * each.partitions["a"].get(broker, 0) / 3
    each.run(10)
    assert used(each, 2) >= 0.95
    each.move("a", {1: 0, 2: 0, 3: 3})
    used(each, 5)
    assert used(each, 5) >= 0.95


def test_quiet_instances_cost_neither_rows_nor_leases() -> None:
    """Below 20 % of F on each broker nothing is reported."""
    each = cluster(5)
    each.load = lambda _, broker, now: 0.03 * LIMIT
    each.run(20)
    assert (each.rows, each.leases_sent) == (0, 0)
    assert each.messages == 100


def test_a_restarted_broker_begins_at_f_for_an_interval_at_the_most() -> None:
    """The exception that `leases` names: 1/4 of the limit too much, until the first answer."""
    each = cluster(4)
    each.load = lambda _, broker, now: 2 * LIMIT if broker == 1 else 0
    each.run(10)
    each.restart(2)
    each.run(each.now + 0.1)
    assert each.rates("a") <= LIMIT * 1.25
    each.run(each.now + 2)
    assert each.rates("a") <= LIMIT * 1.0001
