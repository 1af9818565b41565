"""The rates of new connections, in virtual time."""

from headrace.quotas.connection_quotas import ConnectionQuotas
from headrace.quotas.entities import DEFAULT


def quotas() -> ConnectionQuotas:
    return ConnectionQuotas(lambda: 10, lambda: 1)


def test_a_listener_waits_at_most_one_window_after_its_burst() -> None:
    limited = quotas()
    limited.set_listener_rate("A", 2, 0)
    waits = [limited.accepted("A", 0, counts_for_broker=True) for _ in range(25)]
    assert waits == [0.0] * 20 + [0.5, 1, 1, 1, 1]
    assert limited.accepted("B", 0, counts_for_broker=True) == 0
    assert limited.throttled_listeners.count == 5


def test_all_listeners_but_a_protected_one_count_for_the_broker() -> None:
    limited = quotas()
    limited.set_listener_rate("", 1, 0)
    for _ in range(10):
        assert limited.accepted("A", 0, counts_for_broker=True) == 0
    assert limited.accepted("B", 0, counts_for_broker=True) == 1
    assert limited.accepted("INTERNAL", 0, counts_for_broker=False) == 0


def test_an_address_over_its_rate_is_turned_away_and_counts_for_nothing() -> None:
    limited = quotas()
    limited.set_listener_rate("", 1000, 0)
    limited.set_address_rate(DEFAULT, 1)
    limited.set_address_rate("10.0.0.9", 100)

    def accept(address: str, now: float) -> float:
        limited.accepted("A", now, counts_for_broker=True)
        return limited.address_wait("A", address, now, counts_for_broker=True)

    assert [accept("10.0.0.1", 0) for _ in range(12)] == [0.0] * 10 + [1, 1]
    assert accept("10.0.0.1", 1) == 0
    assert accept("10.0.0.2", 1) == 0
    assert [accept("10.0.0.9", 1) for _ in range(100)] == [0.0] * 100
    assert limited._listeners[""].tokens == 10_000 - 102, "12 at 1 s are those accepted, of 10 at 0 s nothing is left"
    limited.set_address_rate(DEFAULT, None)
    assert [accept("10.0.0.1", 1) for _ in range(50)] == [0.0] * 50
    assert limited.throttled_addresses.count == 2
