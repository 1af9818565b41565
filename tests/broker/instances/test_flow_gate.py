"""The gate of an instance: how much passes, and how fair, in virtual time."""

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, cast

import pytest

from headrace.broker.instances.flow_gate import (
    GRACE_S,
    POSTPONED_BYTES_MIN,
    SWEPT_EVERY_S,
    SWEPT_FROM,
    TOLD_LONG_S,
    TOLD_MAX_S,
    FlowGate,
    Who,
)
from headrace.network.connection import Connection
from headrace.network.held import Held

KIB = 1024


class VirtualLoop:
    """The parts of an event loop that a gate uses, with a clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self._timers: list[tuple[float, int, Callable[..., None], list[bool]]] = []
        self._number = 0

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, work: Callable[..., None]) -> "VirtualLoop.Timer":
        self._number += 1
        is_cancelled = [False]
        heappush(self._timers, (self.now + delay, self._number, work, is_cancelled))
        return VirtualLoop.Timer(is_cancelled)

    class Timer:
        """A timer that can be cancelled."""

        def __init__(self, is_cancelled: list[bool]) -> None:
            self._is_cancelled = is_cancelled

        def cancel(self) -> None:
            self._is_cancelled[0] = True

    def run(self, seconds: float) -> None:
        """Lets time pass."""
        until = self.now + seconds
        while self._timers and self._timers[0][0] <= until:
            self.now, _, work, is_cancelled = heappop(self._timers)
            if not is_cancelled[0]:
                work()
        self.now = until

    @property
    def timer_count(self) -> int:
        return sum(not is_cancelled[0] for *_, is_cancelled in self._timers)


class Client:
    """A connection at the edge: whoever is released sends the next request, if it wants to."""

    def __init__(self, gate: FlowGate, name: str, size: int, *, fetches: bool = False) -> None:
        self.gate, self.name, self.size, self.fetches = gate, name, size, fetches
        self.is_closed = self.is_held = False
        self.is_busy = True
        self.taken = self.postponed = 0
        self.told: list[int] = []

    @property
    def is_left(self) -> bool:
        return self.is_closed

    def postpone(self, reason: Held) -> None:
        assert reason is Held.FLOW_IN
        self.is_held = True
        self.postponed += 1

    def close(self, reason: str) -> None:
        self.is_closed = True

    def hold(self, reason: Held) -> None:
        assert reason is Held.FLOW_IN
        self.is_held = True

    def release(self, reason: Held) -> None:
        assert reason is Held.FLOW_IN
        self.is_held = False
        self.go_on()

    def go_on(self) -> None:
        """Sends requests until it is held."""
        while self.is_busy and not self.is_held and not self.is_closed:
            self.ask()

    def ask(self) -> int:
        who, connection = Who(self.name, ["orders-0"]), cast(Connection, self)
        if self.fetches:
            told = self.gate.ask(connection, self.size, who)
            if not told:
                self.taken += self.size
        elif not self.gate.is_open_to(connection):
            self.gate.postpone(connection, self.size, who)
            return 0
        else:
            self.taken += self.size
            told = self.gate.spend(connection, self.size, who)
        self.told.append(told)
        return told


def gate_of(loop: VirtualLoop, rate: float, burst_s: float = 1.0) -> FlowGate:
    return FlowGate(
        Held.FLOW_IN, rate, rate * burst_s, cast(asyncio.AbstractEventLoop, cast(Any, loop)), metered_since=loop.now
    )


def run(loop: VirtualLoop, clients: list[Client], seconds: float) -> None:
    for each in clients:
        each.go_on()
    loop.run(seconds)


@pytest.mark.parametrize("fetches", [False, True])
def test_lets_its_rate_pass_after_the_burst(fetches: bool) -> None:
    loop = VirtualLoop()
    gate = gate_of(loop, 100 * KIB)
    clients = [Client(gate, f"c{each}", 10 * KIB, fetches=fetches) for each in range(5)]
    run(loop, clients, 1.0)
    before = sum(each.taken for each in clients)
    loop.run(60.0)
    assert sum(each.taken for each in clients) - before == pytest.approx(60 * 100 * KIB, rel=0.02)


@pytest.mark.parametrize("fetches", [False, True])
def test_is_fair_by_bytes_whatever_the_size_of_the_requests(fetches: bool) -> None:
    loop = VirtualLoop()
    gate = gate_of(loop, 100 * KIB)
    sizes = [1, 4, 16, 64]
    clients = [Client(gate, f"c{each}", each * KIB, fetches=fetches) for each in sizes]
    run(loop, clients, 5.0)
    before = [each.taken for each in clients]
    loop.run(120.0)
    taken = [each.taken - was for each, was in zip(clients, before, strict=True)]
    fair = sum(taken) / len(taken)
    assert all(abs(each - fair) < 0.1 * fair for each in taken), taken


def test_a_large_fetch_is_not_overtaken_for_ever_by_small_ones() -> None:
    loop = VirtualLoop()
    gate = gate_of(loop, 100 * KIB)
    small = [Client(gate, f"s{each}", KIB, fetches=True) for each in range(20)]
    large = Client(gate, "large", 100 * KIB, fetches=True)
    run(loop, [*small, large], 5.0)
    before = large.taken
    loop.run(60.0)
    assert large.taken - before >= 2 * 100 * KIB


def test_a_fetch_that_is_not_paid_for_costs_nothing() -> None:
    loop = VirtualLoop()
    gate = gate_of(loop, 100 * KIB)
    client = Client(gate, "c", 60 * KIB, fetches=True)
    client.is_busy = False
    assert client.ask() == 0
    tokens = gate.bucket.tokens
    assert client.ask() == pytest.approx(100, abs=2)  # 10 KiB of half of the burst are missing
    assert gate.bucket.tokens == tokens and client.is_held


def test_tells_at_most_an_interval_and_holds_until_the_debt_is_paid() -> None:
    loop = VirtualLoop()
    gate = gate_of(loop, 100 * KIB)
    client = Client(gate, "c", 600 * KIB)
    client.is_busy = False
    assert client.ask() == TOLD_MAX_S * 1000
    loop.run(4.9)
    assert gate.waiting_count == 1
    loop.run(0.2)
    assert gate.waiting_count == 0
    assert gate.held_s == pytest.approx(5.0, abs=0.01)
    assert gate.clients.largest(1) == [("c", gate.held_s)]
    assert gate.partitions.largest(1) == [("orders-0", gate.held_s)]


def test_tells_clients_to_be_silent_that_would_give_up_before() -> None:
    loop = VirtualLoop()
    client = Client(gate_of(loop, 100 * KIB), "c", 10_000 * KIB)
    client.is_busy = False
    assert client.ask() == TOLD_LONG_S * 1000


def test_a_higher_rate_reaches_those_who_are_held() -> None:
    loop = VirtualLoop()
    gate = gate_of(loop, 10 * KIB)
    client = Client(gate, "c", 110 * KIB)
    client.is_busy = False
    client.ask()
    loop.run(1.0)
    assert gate.waiting_count == 1  # for nine more seconds
    gate.retune(1000 * KIB, 1000 * KIB)
    loop.run(0.1)
    assert gate.waiting_count == 0


def test_those_who_are_gone_or_silent_keep_nobody_waiting() -> None:
    loop = VirtualLoop()
    gate = gate_of(loop, 100 * KIB)
    gone = [Client(gate, f"g{each}", 50 * KIB) for each in range(10)]
    silent = [Client(gate, f"s{each}", 10 * KIB) for each in range(10)]
    busy = Client(gate, "busy", 10 * KIB)
    for each in (*gone, *silent):
        each.is_busy = False
        each.ask()
    for each in gone:
        each.is_closed = True
    run(loop, [busy], 20.0)
    before = busy.taken
    loop.run(20.0)
    assert busy.taken - before == pytest.approx(20 * 100 * KIB, rel=0.02)
    assert not any(each.is_held for each in silent)


def test_a_turn_is_kept_until_the_client_was_told_to_come_back() -> None:
    loop = VirtualLoop()
    gate = gate_of(loop, 100 * KIB)
    polite = Client(gate, "polite", 100 * KIB, fetches=True)
    polite.is_busy = False
    assert polite.ask() == 0
    assert polite.ask() == 500  # when half of the burst is there
    others = [Client(gate, f"o{each}", 10 * KIB, fetches=True) for each in range(3)]
    for each in others:
        each.go_on()
    loop.run(0.5 + GRACE_S / 2)
    assert polite.ask() == 0


def test_leaves_no_timer_and_no_memory_behind() -> None:
    loop = VirtualLoop()
    gate = gate_of(loop, 100 * KIB)
    clients = [Client(gate, f"c{each}", 10 * KIB) for each in range(300)]
    run(loop, clients, 10.0)
    for each in clients:
        each.is_busy = False
    loop.run(60.0)
    assert not any(each.is_held for each in clients)
    assert loop.timer_count == 0 and gate.waiting_count == 0
    assert not gate._passed and not gate._order and not gate._waiting


def test_releases_everybody_when_there_is_no_limit_any_more() -> None:
    loop = VirtualLoop()
    gate = gate_of(loop, 1 * KIB)
    clients = [Client(gate, f"c{each}", 10 * KIB) for each in range(5)]
    for each in clients:
        each.is_busy = False
        each.ask()
    assert all(each.is_held for each in clients)
    gate.close()
    assert not any(each.is_held for each in clients)
    assert loop.timer_count == 0


def test_a_new_connection_for_each_request_passes_no_more_than_the_rate() -> None:
    loop = VirtualLoop()
    gate = gate_of(loop, 100 * KIB)
    made: list[Client] = []
    for _ in range(6000):
        made.append(Client(gate, "reconnecting", 10 * KIB))
        made[-1].ask()
        made[-1].is_busy = False
        loop.run(0.01)
        if not made[-1].postponed:
            made[-1].is_closed = True
    assert sum(each.taken for each in made) <= 61 * 100 * KIB + 10 * KIB


def test_a_client_that_reconnects_takes_no_more_than_its_part_from_one_that_does_not() -> None:
    loop = VirtualLoop()
    gate = gate_of(loop, 100 * KIB)
    steady = Client(gate, "steady", 10 * KIB)
    run(loop, [steady], 5.0)
    before, made = steady.taken, list[Client]()
    for _ in range(3000):
        made.append(Client(gate, "reconnecting", 10 * KIB))
        made[-1].ask()
        made[-1].is_busy = False
        loop.run(0.2 if made[-1].postponed else 0.001)
        made[-1].is_closed = True
    taken = steady.taken - before
    assert taken >= 0.4 * (taken + sum(each.taken for each in made))


def test_requests_that_wait_for_their_turn_are_bounded_in_bytes() -> None:
    loop = VirtualLoop()
    gate = gate_of(loop, 100 * KIB)
    size = POSTPONED_BYTES_MIN // 16
    made = [Client(gate, "many", size) for _ in range(64)]
    for each in made:
        each.ask()
    kept = [each for each in made if each.postponed]
    assert len(kept) == 16
    assert sum(each.is_closed for each in made) == 64 - 1 - 16
    for each in kept:
        each.is_closed = True  # by their peers
    loop.run(SWEPT_EVERY_S)
    late = Client(gate, "late", size)
    late.ask()
    assert late.postponed and not late.is_closed


def test_clients_that_are_refused_again_and_again_do_not_each_cost_a_look_at_all_who_wait() -> None:
    loop = VirtualLoop()
    gate = gate_of(loop, KIB)
    Client(gate, "first", 1 << 30).ask()
    looks = 0

    class Looked(Client):
        @property
        def is_left(self) -> bool:
            nonlocal looks
            looks += 1
            return False

    for _ in range(100):
        Looked(gate, "waiting", POSTPONED_BYTES_MIN // 100).ask()
    for _ in range(100):
        refused = Client(gate, "refused", KIB * KIB)
        refused.ask()
        assert refused.is_closed
    assert 0 < looks <= 200


def test_connections_that_were_closed_are_forgotten_before_their_turn() -> None:
    loop = VirtualLoop()
    gate = gate_of(loop, KIB)
    Client(gate, "first", 1 << 30).ask()
    for _ in range(10 * SWEPT_FROM):
        each = Client(gate, "gone", KIB)
        each.ask()
        each.is_closed = True
    assert gate.waiting_count <= SWEPT_FROM + 2
