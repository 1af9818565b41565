"""Sessions with the simulated ensemble end for those who are silent, who learn of it late; writes find their end."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from headrace.metastore.store import MetadataStore, NodeExists, SessionLost, SessionState, WatchEvent
from tests.simulation.network import ENSEMBLE, Network
from tests.simulation.scheduler import Process, Scheduler
from tests.simulation.store import Ensemble

SECOND_US = 1_000_000
TIMEOUT_US = 3 * SECOND_US


class Sessions:
    """An ensemble and two clients of it."""

    def __init__(self, seed: int = 1) -> None:
        self.scheduler = Scheduler(seed)
        self.network = Network(self.scheduler)
        self.ensemble = Ensemble(self.network, session_timeout_us=TIMEOUT_US)
        self.one, self.other = self.scheduler.process("one"), self.scheduler.process("other")
        self.states: dict[str, list[SessionState]] = {"one": [], "other": []}
        self.stores: dict[str, MetadataStore] = {}
        for process in (self.one, self.other):
            self.do(process, partial(self._open, process))

    async def _open(self, process: Process) -> None:
        store = await self.ensemble.open(process, process.name)
        store.on_session(self.states[process.name].append)
        self.stores[process.name] = store

    def begin(self, process: Process, work: Callable[[], Awaitable[object]]) -> list[object]:
        """What a coroutine function came to in a process, once it has: its result or its error."""
        done: list[object] = []

        async def run() -> None:
            try:
                done.append(await work())
            except Exception as error:
                done.append(error)

        process.call(lambda: process.loop.create_task(run()))
        return done

    def do(self, process: Process, work: Callable[[], Awaitable[object]]) -> object:
        done = self.begin(process, work)
        assert self.scheduler.run(lambda: bool(done), 60 * SECOND_US)
        return done[0]

    def cut(self, is_cut: bool) -> None:
        if is_cut:
            self.network.cut("one", ENSEMBLE)
            self.network.cut(ENSEMBLE, "one")
        else:
            self.network.heal()

    def wait(self, seconds: float) -> None:
        self.scheduler.run_for(int(seconds * SECOND_US))

    def ephemeral(self) -> None:
        assert self.do(self.one, lambda: self.stores["one"].create("/e", ephemeral=True)) == "/e"


def test_a_dead_process_loses_its_nodes_after_its_time_out_and_others_hear_of_it() -> None:
    sessions = Sessions()
    sessions.ephemeral()
    heard: list[WatchEvent] = []
    sessions.do(sessions.other, lambda: sessions.stores["other"].exists("/e", heard.append))
    sessions.one.kill()
    sessions.wait(2)
    assert not heard
    sessions.wait(3)
    assert [event.path for event in heard] == ["/e"]


def test_a_short_cut_suspends_a_session_and_a_long_one_ends_it() -> None:
    for seconds, states, is_there in (
        (2.5, [SessionState.SUSPENDED, SessionState.CONNECTED], True),
        (6.0, [SessionState.SUSPENDED, SessionState.LOST, SessionState.CONNECTED], False),
    ):
        sessions = Sessions()
        sessions.ephemeral()
        sessions.cut(True)
        sessions.wait(seconds)
        sessions.cut(False)
        sessions.wait(3)
        assert sessions.states["one"] == states
        other = sessions.stores["other"]
        found = sessions.do(sessions.other, partial(other.exists, "/e"))
        assert (found is not None) == is_there


def test_a_stopped_process_learns_only_when_it_goes_on_that_its_session_is_over() -> None:
    sessions = Sessions()
    sessions.ephemeral()
    sessions.one.pause()
    sessions.wait(10)
    assert sessions.states["one"] == []
    assert sessions.do(sessions.other, lambda: sessions.stores["other"].exists("/e")) is None
    sessions.one.resume()
    sessions.wait(2)
    assert sessions.states["one"] == [SessionState.SUSPENDED, SessionState.LOST, SessionState.CONNECTED]


def test_a_write_under_way_when_the_connection_breaks_is_done_once_or_known_to_be_lost() -> None:
    outcomes = set()
    for seed in range(30):
        sessions = Sessions(seed)
        chance = sessions.scheduler.random
        made = sessions.begin(sessions.one, partial(sessions.stores["one"].create, "/w"))
        sessions.scheduler.run_for(chance.randrange(3000))
        sessions.cut(True)
        sessions.wait(chance.choice((2.5, 8)))
        sessions.cut(False)
        assert sessions.scheduler.run(partial(bool, made), 30 * SECOND_US)
        is_there = sessions.do(sessions.other, partial(sessions.stores["other"].exists, "/w"))
        assert not isinstance(made[0], NodeExists)
        if made[0] == "/w":
            assert is_there is not None
        else:
            assert isinstance(made[0], SessionLost)
        outcomes.add((made[0] == "/w", is_there is not None))
    assert {(True, True), (False, False)} <= outcomes


async def _many(store: MetadataStore, count: int) -> list[object]:
    await store.create("/q")
    return list(await asyncio.gather(*(store.create("/q/n-", sequential=True) for _ in range(count))))


def test_what_is_asked_together_is_done_in_that_order() -> None:
    sessions = Sessions()
    made = sessions.do(sessions.one, lambda: _many(sessions.stores["one"], 20))
    assert made == [f"/q/n-{number:010d}" for number in range(20)]
