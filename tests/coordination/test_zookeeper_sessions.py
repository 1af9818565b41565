"""The tree on a real ZooKeeper: connections break, answers get lost with them, sessions end, servers die."""

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from uuid import uuid4

import pytest

from headrace.coordination.tree import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    Delete,
    EventKind,
    NodeExists,
    NoNode,
    SessionLost,
    SessionState,
    Set,
    TooLarge,
    WatchEvent,
)
from headrace.coordination.zookeeper import Ensemble, Unreachable, open_tree
from headrace.coordination.zookeeper_tree import ZooKeeperTree
from tests.coordination.zookeeper_proxy import Proxy
from tests.harness import free_ports
from tests.zookeeper_server import ZooKeeperEnsemble, ZooKeeperServer, missing_tools

pytestmark = pytest.mark.slow
WAIT_SECONDS = 60
CONNECTED, SUSPENDED, LOST = SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.LOST


@pytest.fixture
async def proxy(zookeeper_server: ZooKeeperServer) -> AsyncIterator[Proxy]:
    started = await Proxy.start(zookeeper_server.port)
    yield started
    await started.close()


@pytest.fixture
def chroot() -> str:
    return f"/test/{uuid4()}"


@pytest.fixture
async def other(zookeeper_server: ZooKeeperServer, chroot: str) -> AsyncIterator[ZooKeeperTree]:
    """Another broker's session, which nothing disturbs."""
    opened = await open_tree(Ensemble(zookeeper_server.address, chroot))
    yield opened
    await opened.close()


@pytest.fixture
async def tree(other: ZooKeeperTree, proxy: Proxy, chroot: str) -> AsyncIterator[ZooKeeperTree]:
    """A session through the proxy, which no busy machine lets end."""
    opened = await open_tree(Ensemble(proxy.address, chroot, session_timeout_ms=60_000))
    yield opened
    proxy.accept()
    await opened.close()


@pytest.fixture
async def brief(other: ZooKeeperTree, proxy: Proxy, chroot: str) -> AsyncIterator[ZooKeeperTree]:
    """A session through the proxy that soon ends when it is cut off."""
    opened = await open_tree(Ensemble(proxy.address, chroot, session_timeout_ms=1000))
    yield opened
    proxy.accept()
    await opened.close()


async def until(condition: Callable[[], object], what: str = "it") -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited {WAIT_SECONDS} s for {what}"
        await asyncio.sleep(0.01)


class Heard:
    """Session states and watch events, in the order in which they came."""

    def __init__(self, tree: ZooKeeperTree) -> None:
        self.all: list[SessionState | WatchEvent] = []
        tree.on_session(self.all.append)

    def __call__(self, event: WatchEvent) -> None:
        self.all.append(event)

    @property
    def states(self) -> list[SessionState]:
        return [each for each in self.all if isinstance(each, SessionState)]

    @property
    def events(self) -> list[WatchEvent]:
        return [each for each in self.all if isinstance(each, WatchEvent)]


async def lost_answer(proxy: Proxy, other: ZooKeeperTree, write: Awaitable[object], done: str) -> object:
    """The outcome of a write that is done while its answer is lost; `done` is a path by which it is seen."""
    before = await other.exists(done)
    proxy.lose_answers()
    writing = asyncio.ensure_future(write)
    deadline = time.monotonic() + WAIT_SECONDS
    while await other.exists(done) == before:
        assert time.monotonic() < deadline
    assert not writing.done()
    proxy.cut()
    async with asyncio.timeout(WAIT_SECONDS):
        return await writing


async def test_reads_and_writes_that_meet_a_broken_connection_are_done_on_the_next(
    tree: ZooKeeperTree, proxy: Proxy
) -> None:
    heard = Heard(tree)
    await tree.create("/a", b"1")
    proxy.refuse()
    reading = asyncio.ensure_future(tree.get("/a"))
    writing = asyncio.ensure_future(tree.set("/a", b"2", 0))
    await until(lambda: heard.states)
    proxy.accept()
    assert (await reading).data == b"1"
    assert await writing == 1
    assert heard.states == [SUSPENDED, CONNECTED]


async def test_a_write_that_was_done_before_its_answer_was_lost_is_not_done_again(
    tree: ZooKeeperTree, other: ZooKeeperTree, proxy: Proxy
) -> None:
    assert await lost_answer(proxy, other, tree.create("/a", b"1"), "/a") == "/a"
    assert await lost_answer(proxy, other, tree.set("/a", b"2", 0), "/a") == 1
    assert await lost_answer(proxy, other, tree.set("/a", b"3"), "/a") == 2
    assert (await other.get("/a")).version == 2
    assert await lost_answer(proxy, other, tree.create("/a/s-", b"x", sequential=True), "/a/s-0000000000") == (
        "/a/s-0000000000"
    )
    assert await other.children("/a") == ["s-0000000000"]
    assert await lost_answer(proxy, other, tree.create("/e", ephemeral=True), "/e") == "/e"
    ops = [Check("/a", 2), Create("/b", b""), Set("/a", b"4", 2), Delete("/e")]
    assert await lost_answer(proxy, other, tree.multi(ops), "/b") == [None, "/b", 3, None]
    assert await lost_answer(proxy, other, tree.delete("/b"), "/b") is None


async def test_several_lost_answers_are_each_found_out_about(
    tree: ZooKeeperTree, other: ZooKeeperTree, proxy: Proxy
) -> None:
    await tree.create("/n", b"")
    await tree.create("/taken", b"")

    async def all_of_them() -> list[object]:
        writes = [tree.set("/n", str(n).encode(), n) for n in range(20)]
        refused = [tree.create("/taken"), tree.set("/n", b"", 5), tree.delete("/nowhere")]
        return await asyncio.gather(*writes[:10], *refused, *writes[10:], tree.create("/end"), return_exceptions=True)

    outcomes = await lost_answer(proxy, other, all_of_them(), "/end")
    assert isinstance(outcomes, list)
    assert outcomes[:10] + outcomes[13:] == [*range(1, 21), "/end"]
    assert [type(each) for each in outcomes[10:13]] == [NodeExists, BadVersion, NoNode]
    assert (await other.get("/n")).data == b"19"


async def test_a_version_that_somebody_else_raised_since_is_not_given_out(
    tree: ZooKeeperTree, other: ZooKeeperTree, proxy: Proxy
) -> None:
    await tree.create("/a")
    proxy.lose_answers()
    writing = asyncio.ensure_future(tree.set("/a", b"mine", ANY_VERSION))
    deadline = time.monotonic() + WAIT_SECONDS
    while (await other.get("/a")).data != b"mine":
        assert time.monotonic() < deadline
    await other.set("/a", b"theirs")
    proxy.cut()
    version = await writing
    with pytest.raises(BadVersion):
        await tree.set("/a", b"over theirs", version)
    assert (await other.get("/a")).data == b"theirs"


async def test_a_watch_outlives_a_broken_connection_and_tells_what_was_missed(
    tree: ZooKeeperTree, other: ZooKeeperTree, proxy: Proxy
) -> None:
    heard = Heard(tree)
    for path in ("/changed", "/deleted", "/anew", "/same", "/parent"):
        await tree.create(path, b"")
        await (tree.children if path == "/parent" else tree.get)(path, heard)
    await tree.exists("/created", heard)
    await tree.exists("/never", heard)
    await tree.children("/same", heard)
    proxy.refuse()
    await until(lambda: SUSPENDED in heard.states)
    await other.set("/changed", b"")
    await other.delete("/deleted")
    await other.delete("/anew")
    await other.create("/anew")
    await other.create("/parent/child")
    await other.create("/created")
    proxy.accept()
    await until(lambda: len(heard.events) == 5)
    assert sorted(heard.events, key=lambda event: event.path) == [
        WatchEvent(EventKind.DELETED, "/anew"),
        WatchEvent(EventKind.CHANGED, "/changed"),
        WatchEvent(EventKind.CREATED, "/created"),
        WatchEvent(EventKind.DELETED, "/deleted"),
        WatchEvent(EventKind.CHILDREN, "/parent"),
    ]
    assert heard.all.index(CONNECTED) < heard.all.index(heard.events[0])
    await other.create("/never")
    await other.create("/same/child")
    await other.set("/same", b"")
    await other.set("/changed", b"again")
    await until(lambda: len(heard.events) == 8)
    await tree.get("/")
    assert set(heard.events[5:]) == {
        WatchEvent(EventKind.CREATED, "/never"),
        WatchEvent(EventKind.CHILDREN, "/same"),
        WatchEvent(EventKind.CHANGED, "/same"),
    }


async def test_an_event_comes_before_the_new_state_also_where_the_connection_broke_in_between(
    tree: ZooKeeperTree, other: ZooKeeperTree, proxy: Proxy
) -> None:
    for turn in range(10):
        seen: list[str] = []
        await tree.create(f"/n{turn}", b"old")
        await tree.get(f"/n{turn}", lambda event, seen=seen: seen.append("event"))  # type: ignore[misc]
        proxy.cut()
        await other.set(f"/n{turn}", b"new")
        while (await tree.get(f"/n{turn}")).data != b"new":
            pass
        seen.append("read")
        assert seen == ["event", "read"]


async def test_a_session_that_ends_is_told_takes_its_nodes_and_is_followed_by_another(
    brief: ZooKeeperTree, other: ZooKeeperTree, proxy: Proxy
) -> None:
    heard, others = Heard(brief), Heard(other)
    await brief.create("/e", ephemeral=True)
    await brief.get("/e", heard)
    await other.get("/e", others)
    proxy.refuse()
    await until(lambda: others.events, "the session's end")
    held = asyncio.ensure_future(brief.create("/held"))
    reading = asyncio.ensure_future(brief.children("/"))
    await asyncio.sleep(0)
    proxy.accept()
    await until(lambda: CONNECTED in heard.states)
    assert heard.states == [SUSPENDED, LOST, CONNECTED]
    with pytest.raises(SessionLost):
        await held
    assert "e" not in await reading
    await until(lambda: heard.events)
    assert heard.events == [WatchEvent(EventKind.DELETED, "/e")]
    await brief.create("/e", ephemeral=True)
    assert (await other.get("/e")).ephemeral_owner != 0


async def test_a_write_whose_session_ended_under_way_fails_and_a_listener_heard_of_it_before(
    brief: ZooKeeperTree, other: ZooKeeperTree, proxy: Proxy
) -> None:
    heard, gone = Heard(brief), Heard(other)
    await brief.create("/e", ephemeral=True)
    await other.get("/e", gone)
    proxy.lose_answers()
    writing = asyncio.ensure_future(brief.create("/a"))
    states: list[list[SessionState]] = []
    writing.add_done_callback(lambda _: states.append(heard.states))
    deadline = time.monotonic() + WAIT_SECONDS
    while await other.exists("/a") is None:
        assert time.monotonic() < deadline
    proxy.refuse()
    await until(lambda: gone.events, "the session's end")
    proxy.accept()
    with pytest.raises(SessionLost):
        await writing
    assert LOST in states[0]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_an_answer_that_makes_no_sense_ends_the_session_and_another_begins(
    tree: ZooKeeperTree, other: ZooKeeperTree, proxy: Proxy
) -> None:
    heard = Heard(tree)
    await tree.create("/a", b"1")
    await tree.get("/a", heard)
    proxy.garble()
    async with asyncio.timeout(WAIT_SECONDS):
        assert (await tree.get("/a")).data == b"1"
    assert heard.states[-2:] == [LOST, CONNECTED]
    await other.set("/a", b"2")
    await until(lambda: heard.events, "the watch")
    await tree.set("/a", b"3", 1)


async def test_what_is_too_large_is_refused_and_the_session_lives_on(tree: ZooKeeperTree) -> None:
    heard = Heard(tree)
    with pytest.raises(TooLarge) as caught:
        await tree.multi([Create(f"/n{n}", bytes(400_000)) for n in range(4)])
    assert caught.value.index == 2
    assert await tree.exists("/n0") is None
    await tree.multi([Create(f"/n{n}", bytes(400_000)) for n in range(2)])
    assert heard.states == []


async def test_thousands_of_requests_at_once_are_all_answered_across_a_broken_connection(
    tree: ZooKeeperTree, proxy: Proxy
) -> None:
    await tree.create("/n")
    creating = [asyncio.ensure_future(tree.create(f"/n/{n}", b"x")) for n in range(1500)]
    await creating[100]
    proxy.cut()
    assert await asyncio.gather(*creating) == [f"/n/{n}" for n in range(1500)]
    reading = asyncio.ensure_future(tree.get_many([f"/n/{n}" for n in range(-1, 3000)]))
    await asyncio.sleep(0.05)
    proxy.cut()
    found = await reading
    assert [node is not None for node in found] == [False, *[True] * 1500, *[False] * 1500]


async def test_closing_is_bounded_when_the_server_is_silent_and_never_blocks_the_loop(tmp_path: Path) -> None:
    if reason := missing_tools():
        pytest.skip(reason)
    with ZooKeeperServer(tmp_path) as server:
        tree = await open_tree(Ensemble(server.address, "/k", session_timeout_ms=1500))
        await tree.create("/a")
        heard = Heard(tree)
        waits = Waits()
        server.pause()
        waiting = [asyncio.ensure_future(tree.create(f"/n{n}")) for n in range(2000)]
        await until(lambda: SUSPENDED in heard.states, "the silence to be noticed")
        waiting += [asyncio.ensure_future(tree.get("/a")) for n in range(2000)]
        await asyncio.sleep(0.2)
        async with asyncio.timeout(WAIT_SECONDS):
            await tree.close()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert {type(each) for each in outcomes} == {SessionLost}
        waits.stop()
        assert waits.looks > 20
        assert waits.in_a_row_max < 50, "a call of kazoo's kept the loop waiting"


class Waits:
    """Looks every 10 ms at what this thread is doing: how many times in a row it was inside kazoo."""

    def __init__(self) -> None:
        self.looks = 0
        self.in_a_row_max = 0
        self._watched = threading.get_ident()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        in_a_row = 0
        while not self._is_over.wait(0.01):
            self.looks += 1
            frame = sys._current_frames().get(self._watched)
            in_a_row = in_a_row + 1 if any("kazoo" in line.filename for line in traceback.extract_stack(frame)) else 0
            self.in_a_row_max = max(self.in_a_row_max, in_a_row)

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()


async def test_a_server_that_restarts_is_found_again(tmp_path: Path) -> None:
    if reason := missing_tools():
        pytest.skip(reason)
    with ZooKeeperServer(tmp_path) as server:
        tree = await open_tree(Ensemble(server.address, "/k", session_timeout_ms=10_000))
        heard = Heard(tree)
        await tree.create("/e", b"mine", ephemeral=True)
        server.kill()
        await until(lambda: heard.states)
        setting = asyncio.ensure_future(tree.set("/e", b"still", 0))
        server.start()
        assert await setting == 1
        assert heard.states == [SUSPENDED, CONNECTED]
        await tree.close()


async def test_the_leader_of_an_ensemble_is_killed_under_a_hundred_writes_and_none_is_lost_or_done_twice(
    tmp_path: Path,
) -> None:
    if reason := missing_tools():
        pytest.skip(reason)
    with ZooKeeperEnsemble(tmp_path) as ensemble:
        tree = await open_tree(
            Ensemble(ensemble.address, "/k", session_timeout_ms=20_000, connection_timeout_ms=30_000)
        )
        heard = Heard(tree)
        await tree.create("/count", b"")
        leader = ensemble.leader()
        for number in range(100):
            if number == 20:
                asyncio.get_running_loop().call_later(0.005, leader.kill)
            assert await tree.set("/count", str(number).encode(), number) == number + 1
        assert (await tree.get("/count")).version == 100
        assert LOST not in heard.states
        await tree.close()


async def test_no_server_no_session(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    with pytest.raises(Unreachable, match=r"no server answered within 0.3 s"):
        await open_tree(Ensemble(f"127.0.0.1:{free_ports(1)[0]}", connection_timeout_ms=300))
