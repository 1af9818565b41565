"""The metadata store on a real ZooKeeper: connections break, answers get lost with them, sessions end, servers die."""

import asyncio
import logging
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Awaitable, Sequence
from pathlib import Path
from uuid import uuid4

import pytest

from headrace.metastore.store import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    Delete,
    EventKind,
    NodeExists,
    NoNode,
    Op,
    SessionLost,
    SessionState,
    Set,
    TooLarge,
    WatchEvent,
)
from headrace.metastore.zookeeper.connection import ZooKeeperUnreachable, open_store
from headrace.metastore.zookeeper.ensemble import Ensemble
from headrace.metastore.zookeeper.multi_read import MultiRead
from headrace.metastore.zookeeper.store import READS_MAX, READS_MIN, READS_OF_ANY_SIZE_MAX, ZooKeeperStore
from tests.eventually import WITHIN_SECONDS, eventually_async
from tests.harness import free_ports
from tests.metastore.zookeeper_proxy import Proxy
from tests.zookeeper_server import ZooKeeperEnsemble, ZooKeeperServer, missing_tools

pytestmark = [pytest.mark.slow, pytest.mark.peer]
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
async def other(zookeeper_server: ZooKeeperServer, chroot: str) -> AsyncIterator[ZooKeeperStore]:
    """Another broker's session, which nothing disturbs."""
    opened = await open_store(Ensemble(zookeeper_server.address, chroot))
    yield opened
    await opened.close()


@pytest.fixture
async def store(other: ZooKeeperStore, proxy: Proxy, chroot: str) -> AsyncIterator[ZooKeeperStore]:
    """A session through the proxy, which no busy machine lets end."""
    opened = await open_store(Ensemble(proxy.address, chroot, session_timeout_ms=60_000))
    yield opened
    proxy.accept()
    await opened.close()


@pytest.fixture
async def brief(other: ZooKeeperStore, proxy: Proxy, chroot: str) -> AsyncIterator[ZooKeeperStore]:
    """A session through the proxy that soon ends when it is cut off."""
    opened = await open_store(Ensemble(proxy.address, chroot, session_timeout_ms=1000))
    yield opened
    proxy.accept()
    await opened.close()


class Heard:
    """Session states and watch events, in the order in which they came."""

    def __init__(self, store: ZooKeeperStore) -> None:
        self.all: list[SessionState | WatchEvent] = []
        store.on_session(self.all.append)

    def __call__(self, event: WatchEvent) -> None:
        self.all.append(event)

    @property
    def states(self) -> list[SessionState]:
        return [each for each in self.all if isinstance(each, SessionState)]

    @property
    def events(self) -> list[WatchEvent]:
        return [each for each in self.all if isinstance(each, WatchEvent)]


async def lost_answer(proxy: Proxy, other: ZooKeeperStore, write: Awaitable[object], done: str) -> object:
    """The outcome of a write that is done while its answer is lost; `done` is a path by which it is seen."""
    before = await other.exists(done)
    proxy.lose_answers()
    writing = asyncio.ensure_future(write)

    async def is_done() -> bool:
        return await other.exists(done) != before

    await eventually_async(is_done, "the write")
    assert not writing.done()
    proxy.cut()
    async with asyncio.timeout(WITHIN_SECONDS):
        return await writing


async def test_reads_and_writes_that_meet_a_broken_connection_are_done_on_the_next(
    store: ZooKeeperStore, proxy: Proxy
) -> None:
    heard = Heard(store)
    await store.create("/a", b"1")
    proxy.refuse()
    reading = asyncio.ensure_future(store.get("/a"))
    writing = asyncio.ensure_future(store.set("/a", b"2", 0))
    await eventually_async(lambda: heard.states)
    proxy.accept()
    assert (await reading).data == b"1"
    assert await writing == 1
    assert heard.states == [SUSPENDED, CONNECTED]


async def test_a_write_that_was_done_before_its_answer_was_lost_is_not_done_again(
    store: ZooKeeperStore, other: ZooKeeperStore, proxy: Proxy
) -> None:
    assert await lost_answer(proxy, other, store.create("/a", b"1"), "/a") == "/a"
    assert await lost_answer(proxy, other, store.set("/a", b"2", 0), "/a") == 1
    assert await lost_answer(proxy, other, store.set("/a", b"3"), "/a") == 2
    assert (await other.get("/a")).version == 2
    assert await lost_answer(proxy, other, store.create("/a/s-", b"x", sequential=True), "/a/s-0000000000") == (
        "/a/s-0000000000"
    )
    assert await other.children("/a") == ["s-0000000000"]
    assert await lost_answer(proxy, other, store.create("/e", ephemeral=True), "/e") == "/e"
    ops: list[Op] = [Check("/a", 2), Create("/b", b""), Set("/a", b"4", 2), Delete("/e")]
    assert await lost_answer(proxy, other, store.multi(ops), "/b") == [None, "/b", 3, None]
    assert await lost_answer(proxy, other, store.delete("/b"), "/b") is None


async def test_several_lost_answers_are_each_found_out_about(
    store: ZooKeeperStore, other: ZooKeeperStore, proxy: Proxy
) -> None:
    await store.create("/n", b"")
    await store.create("/taken", b"")

    async def all_of_them() -> list[object]:
        writes = [store.set("/n", str(n).encode(), n) for n in range(20)]
        refused = [store.create("/taken"), store.set("/n", b"", 5), store.delete("/nowhere")]
        return await asyncio.gather(*writes[:10], *refused, *writes[10:], store.create("/end"), return_exceptions=True)

    outcomes = await lost_answer(proxy, other, all_of_them(), "/end")
    assert isinstance(outcomes, list)
    assert outcomes[:10] + outcomes[13:] == [*range(1, 21), "/end"]
    assert [type(each) for each in outcomes[10:13]] == [NodeExists, BadVersion, NoNode]
    assert (await other.get("/n")).data == b"19"


async def test_a_version_that_somebody_else_raised_since_is_not_given_out(
    store: ZooKeeperStore, other: ZooKeeperStore, proxy: Proxy
) -> None:
    await store.create("/a")
    proxy.lose_answers()
    writing = asyncio.ensure_future(store.set("/a", b"mine", ANY_VERSION))

    async def is_written() -> bool:
        return (await other.get("/a")).data == b"mine"

    await eventually_async(is_written, "the write")
    await other.set("/a", b"theirs")
    proxy.cut()
    version = await writing
    with pytest.raises(BadVersion):
        await store.set("/a", b"over theirs", version)
    assert (await other.get("/a")).data == b"theirs"


async def test_a_watch_outlives_a_broken_connection_and_tells_what_was_missed(
    store: ZooKeeperStore, other: ZooKeeperStore, proxy: Proxy
) -> None:
    heard = Heard(store)
    for path in ("/changed", "/deleted", "/anew", "/same", "/parent"):
        await store.create(path, b"")
        await (store.children if path == "/parent" else store.get)(path, heard)
    await store.exists("/created", heard)
    await store.exists("/never", heard)
    await store.children("/same", heard)
    proxy.refuse()
    await eventually_async(lambda: SUSPENDED in heard.states)
    await other.set("/changed", b"")
    await other.delete("/deleted")
    await other.delete("/anew")
    await other.create("/anew")
    await other.create("/parent/child")
    await other.create("/created")
    proxy.accept()
    await eventually_async(lambda: len(heard.events) == 5)
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
    await eventually_async(lambda: len(heard.events) == 8)
    await store.get("/")
    assert set(heard.events[5:]) == {
        WatchEvent(EventKind.CREATED, "/never"),
        WatchEvent(EventKind.CHILDREN, "/same"),
        WatchEvent(EventKind.CHANGED, "/same"),
    }


async def test_an_event_comes_before_the_new_state_also_where_the_connection_broke_in_between(
    store: ZooKeeperStore, other: ZooKeeperStore, proxy: Proxy
) -> None:
    for turn in range(10):
        seen: list[str] = []
        await store.create(f"/n{turn}", b"old")
        await store.get(f"/n{turn}", lambda event, seen=seen: seen.append("event"))  # type: ignore[misc]
        proxy.cut()
        await other.set(f"/n{turn}", b"new")
        while (await store.get(f"/n{turn}")).data != b"new":
            pass
        seen.append("read")
        assert seen == ["event", "read"]


async def test_a_session_that_ends_is_told_takes_its_nodes_and_is_followed_by_another(
    brief: ZooKeeperStore, other: ZooKeeperStore, proxy: Proxy
) -> None:
    heard, others = Heard(brief), Heard(other)
    await brief.create("/e", ephemeral=True)
    await brief.get("/e", heard)
    await other.get("/e", others)
    proxy.refuse()
    await eventually_async(lambda: others.events, "the session's end")
    held = asyncio.ensure_future(brief.create("/held"))
    reading = asyncio.ensure_future(brief.children("/"))
    await asyncio.sleep(0)
    proxy.accept()
    await eventually_async(lambda: CONNECTED in heard.states)
    assert heard.states == [SUSPENDED, LOST, CONNECTED]
    with pytest.raises(SessionLost):
        await held
    assert "e" not in await reading
    await eventually_async(lambda: heard.events)
    assert heard.events == [WatchEvent(EventKind.DELETED, "/e")]
    await brief.create("/e", ephemeral=True)
    assert (await other.get("/e")).ephemeral_owner != 0


async def test_a_write_whose_session_ended_under_way_fails_and_a_listener_heard_of_it_before(
    brief: ZooKeeperStore, other: ZooKeeperStore, proxy: Proxy
) -> None:
    heard, gone = Heard(brief), Heard(other)
    await brief.create("/e", ephemeral=True)
    await other.get("/e", gone)
    proxy.lose_answers()
    writing = asyncio.ensure_future(brief.create("/a"))
    states: list[list[SessionState]] = []
    writing.add_done_callback(lambda _: states.append(heard.states))
    await eventually_async(lambda: other.exists("/a"), "the write")
    proxy.refuse()
    await eventually_async(lambda: gone.events, "the session's end")
    proxy.accept()
    with pytest.raises(SessionLost):
        await writing
    assert LOST in states[0]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_an_answer_that_makes_no_sense_ends_the_session_and_another_begins(
    store: ZooKeeperStore, other: ZooKeeperStore, proxy: Proxy
) -> None:
    heard = Heard(store)
    await store.create("/a", b"1")
    await store.get("/a", heard)
    proxy.garble()
    async with asyncio.timeout(WITHIN_SECONDS):
        assert (await store.get("/a")).data == b"1"
    assert heard.states[-2:] == [LOST, CONNECTED]
    await other.set("/a", b"2")
    await eventually_async(lambda: heard.events, "the watch")
    await store.set("/a", b"3", 1)


async def test_what_is_too_large_is_refused_and_the_session_lives_on(store: ZooKeeperStore) -> None:
    heard = Heard(store)
    with pytest.raises(TooLarge) as caught:
        await store.multi([Create(f"/n{n}", bytes(400_000)) for n in range(4)])
    assert caught.value.index == 2
    assert await store.exists("/n0") is None
    await store.multi([Create(f"/n{n}", bytes(400_000)) for n in range(2)])
    assert heard.states == []


async def test_thousands_of_requests_at_once_are_all_answered_across_a_broken_connection(
    store: ZooKeeperStore, proxy: Proxy
) -> None:
    await store.create("/n")
    creating = [asyncio.ensure_future(store.create(f"/n/{n}", b"x")) for n in range(1500)]
    await creating[100]
    proxy.cut()
    assert await asyncio.gather(*creating) == [f"/n/{n}" for n in range(1500)]
    reading = asyncio.ensure_future(store.get_many([f"/n/{n}" for n in range(-1, 3000)]))
    await asyncio.sleep(0.05)
    proxy.cut()
    found = await reading
    assert [node is not None for node in found] == [False, *[True] * 1500, *[False] * 1500]


async def test_closing_is_bounded_when_the_server_is_silent_and_never_blocks_the_loop(tmp_path: Path) -> None:
    if reason := missing_tools():
        pytest.skip(reason)
    with ZooKeeperServer(tmp_path) as server:
        store = await open_store(Ensemble(server.address, "/k", session_timeout_ms=1500))
        await store.create("/a")
        heard = Heard(store)
        waits = Waits()
        server.pause()
        waiting: list[asyncio.Task[object]] = [asyncio.create_task(store.create(f"/n{n}")) for n in range(2000)]
        await eventually_async(lambda: SUSPENDED in heard.states, "the silence to be noticed")
        waiting += [asyncio.create_task(store.get("/a")) for n in range(2000)]
        await asyncio.sleep(0.2)
        async with asyncio.timeout(WITHIN_SECONDS):
            await store.close()
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
        store = await open_store(Ensemble(server.address, "/k", session_timeout_ms=60_000))
        heard = Heard(store)
        await store.create("/e", b"mine", ephemeral=True)
        server.kill()
        await eventually_async(lambda: heard.states)
        setting = asyncio.ensure_future(store.set("/e", b"still", 0))
        server.start()
        assert await setting == 1
        assert heard.states == [SUSPENDED, CONNECTED]
        await store.close()


async def test_the_leader_of_an_ensemble_is_killed_under_a_hundred_writes_and_none_is_lost_or_done_twice(
    tmp_path: Path,
) -> None:
    if reason := missing_tools():
        pytest.skip(reason)
    with ZooKeeperEnsemble(tmp_path) as ensemble:
        store = await open_store(
            Ensemble(ensemble.address, "/k", session_timeout_ms=60_000, connection_timeout_ms=60_000)
        )
        heard = Heard(store)
        await store.create("/count", b"")
        leader = ensemble.leader()
        for number in range(100):
            if number == 20:
                asyncio.get_running_loop().call_later(0.005, leader.kill)
            assert await store.set("/count", str(number).encode(), number) == number + 1
        assert (await store.get("/count")).version == 100
        assert LOST not in heard.states
        await store.close()


async def test_no_server_no_session(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    with pytest.raises(ZooKeeperUnreachable, match=r"no server answered within 0.3 s"):
        await open_store(Ensemble(f"127.0.0.1:{free_ports(1)[0]}", connection_timeout_ms=300))


async def test_a_server_that_cannot_read_many_nodes_at_once_is_asked_for_each(
    store: ZooKeeperStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ZooKeeper before 3.6 answers to that request as any server does to a code that it does not know."""
    paths = [f"/n{number}" for number in range(2 * READS_MIN)]
    await store.multi([Create(path, path.encode()) for path in paths[:-1]])
    monkeypatch.setattr(MultiRead, "type", 77)
    found = await store.get_many(paths)
    assert [None if each is None else each.data for each in found] == [*(path.encode() for path in paths[:-1]), None]
    monkeypatch.setattr(MultiRead, "serialize", None)  # it is not tried again
    assert await store.get_many(paths) == found


async def test_many_nodes_are_read_whose_paths_are_long(store: ZooKeeperStore) -> None:
    """A server closes the connection on a request of more than a megabyte."""
    paths = ["/" + str(number).rjust(8000, "n") + "/state" for number in range(READS_MAX)]
    for start in range(0, len(paths), 50):
        some = paths[start : start + 50]
        await store.multi([Create(path.removesuffix("/state")) for path in some])
        await store.multi([Create(path, path[-9:].encode()) for path in some])
    async with asyncio.timeout(WITHIN_SECONDS):
        found = await store.get_many(paths)
    assert [each and each.data for each in found] == [path[-9:].encode() for path in paths]


async def test_an_answer_has_few_nodes_that_may_be_large_and_many_states_of_partitions(
    store: ZooKeeperStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = [f"/n{number}" for number in range(READS_MIN)]
    states = [f"/p{number}/state" for number in range(READS_MAX)]
    for start in range(0, len(large), 10):
        await store.multi([Create(path, path.encode() * 20_000) for path in large[start : start + 10]])
    await store.multi([Create(path.removesuffix("/state")) for path in states])
    await store.multi([Create(path, path.encode()) for path in states])
    asked: list[Sequence[str]] = []
    serialize = MultiRead.serialize

    def noted(read: MultiRead) -> bytes:
        asked.append(read.paths)
        return serialize(read)

    monkeypatch.setattr(MultiRead, "serialize", noted)
    found = await store.get_many([*large, *states, *large])
    wanted = [*(path.encode() * 20_000 for path in large), *(path.encode() for path in states)]
    assert [each and each.data for each in found] == [*wanted, *wanted[: len(large)]]
    assert max(len([path for path in paths if not path.endswith("/state")]) for paths in asked) == READS_OF_ANY_SIZE_MAX
    assert max(map(len, asked)) == READS_MAX


async def test_many_nodes_are_read_although_the_connection_breaks_meanwhile(
    store: ZooKeeperStore, proxy: Proxy
) -> None:
    paths = [f"/n{number}" for number in range(5 * READS_MAX)]
    for start in range(0, len(paths), 500):
        await store.multi([Create(path, path.encode()) for path in paths[start : start + 500]])
    reading = asyncio.create_task(store.get_many(paths))
    await asyncio.sleep(0)
    proxy.cut()
    found = await reading
    assert [None if each is None else each.data for each in found] == [path.encode() for path in paths]
