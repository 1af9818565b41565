"""The checker of instances, with histories that have one error each."""

from tests.simulation.checker import check
from tests.simulation.history import (
    GrownFull,
    History,
    LateRate,
    Leak,
    Outcome,
    Promises,
    RatesInForce,
    Reading,
    Seen,
    Sent,
    StoredSeen,
    Volume,
)


def kinds(history: History) -> set[str]:
    return {finding.kind for finding in check(history, Promises())}


def in_force(rate: float, unreachable: float = 0.0) -> RatesInForce:
    return RatesInForce("acme", "in", 5, rate, 1000.0, unreachable)


def test_a_history_without_errors() -> None:
    history = History(
        rates=[in_force(1000.0), in_force(1300.0, unreachable=333.0)],
        volumes=[Volume("acme", 900, 1000)],
        full=[GrownFull("acme", 5, 100, 120, 120), GrownFull("acme", 9, 100, 120, 110)],
        stored=[StoredSeen("acme", 5, 90, 100, is_exact=False), StoredSeen("acme", 9, 100, 100, is_exact=True)],
    )
    assert kinds(history) == set()


def test_a_leak() -> None:
    leaks = [Leak("acme", "acme-reader", at_us, "a mark of zeta") for at_us in (5, 9)]
    found = check(History(leaks=leaks), Promises())
    assert [finding.kind for finding in found] == ["leak"]
    assert "acme-reader of acme at 0.000005: a mark of zeta" in found[0].text


def test_rates_above_the_limit() -> None:
    assert kinds(History(rates=[in_force(1010.0)])) == {"limit"}


def test_rates_above_the_limit_and_the_shares_of_brokers_out_of_reach() -> None:
    assert kinds(History(rates=[in_force(1340.0, unreachable=333.0)])) == {"limit"}


def test_clients_that_are_held_at_a_rate_of_the_past() -> None:
    assert kinds(History(late_rates=[LateRate("acme", 1, 5, 900.0, 300.0)])) == {"late rate"}


def test_more_bytes_than_the_limits_allow() -> None:
    assert kinds(History(volumes=[Volume("acme", 1001, 1000)])) == {"volume"}


def test_a_replica_that_is_counted_twice() -> None:
    assert kinds(History(stored=[StoredSeen("acme", 5, 110, 100, is_exact=False)])) == {"capacity"}


def test_bytes_that_nobody_counts_in_the_end() -> None:
    assert kinds(History(stored=[StoredSeen("acme", 5, 90, 100, is_exact=True)])) == {"capacity"}


def test_an_instance_that_is_not_brought_back() -> None:
    assert kinds(History(instances_left=["zeta is deleting"])) == {"instance"}


def test_the_clients_of_an_instance_are_judged_by_the_rules_of_every_cluster() -> None:
    own = History(
        sent=[Sent("p1", 0, "p1.1", -1, True, 1, 2, Outcome.ACKNOWLEDGED, 0)],
        readings=[Reading("reader", 0, 1, 3, 0, (Seen(0, "p9.1"),), 1)],
    )
    found = check(History(of_instances={"acme": own}), Promises())
    assert {finding.kind for finding in found} >= {"lost", "phantom"}
    assert all(finding.text.startswith("of acme: ") for finding in found)


def test_full_storage_that_grows() -> None:
    assert kinds(History(full=[GrownFull("acme", 5, 100, 120, 121)])) == {"overshoot"}
