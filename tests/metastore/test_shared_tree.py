"""A tree that several processes of one host share: sessions end with connections and with silence, and begin again."""

import asyncio
import json
import stat
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from headrace.metastore.shared.frames import FRAME_BYTES_MAX, pack
from headrace.metastore.shared.socket_link import SocketLink, StoreUnreachable, open_store
from headrace.metastore.shared.tree_server import TreeServer
from headrace.metastore.store import Create, EventKind, NodeExists, SessionLost, SessionState, Set, WatchEvent
from headrace.metastore.zookeeper.store import ZooKeeperStore
from tests.eventually import eventually_async

LONG_MS = 60_000
SHORT_MS = 600


@pytest.fixture
def socket() -> Iterator[Path]:
    """A path for a socket; paths of sockets are short."""
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory, "tree")


@pytest.fixture
async def server(tmp_path: Path, socket: Path) -> AsyncIterator[TreeServer]:
    opened = await TreeServer.open(tmp_path, socket)
    yield opened
    await opened.close()


def link_of(store: ZooKeeperStore) -> SocketLink:
    assert isinstance(store._link, SocketLink)
    return store._link


def cut(store: ZooKeeperStore) -> None:
    """Breaks the connection of a store, as the death of its process would."""
    line = link_of(store)._line
    assert line is not None
    line._transport.abort()


def silence(store: ZooKeeperStore) -> None:
    """Nothing comes from the store's process any more, as when it is stopped."""
    line = link_of(store)._line
    assert line is not None and line._ping is not None
    line._ping.cancel()


async def test_sessions_see_each_others_nodes_and_changes(server: TreeServer, socket: Path) -> None:
    one, other = await open_store(socket, LONG_MS), await open_store(socket, LONG_MS)
    events: list[WatchEvent] = []
    assert await other.exists("/a", events.append) is None
    await one.create("/a", b"\x00\xff", ephemeral=True)
    node = await other.get("/a", events.append)
    assert node.data == b"\x00\xff" and node.ephemeral_owner
    with pytest.raises(NodeExists):
        await other.create("/a")
    await one.close()  # ends the session
    assert await other.exists("/a") is None
    assert events == [WatchEvent(EventKind.CREATED, "/a"), WatchEvent(EventKind.DELETED, "/a")]
    await other.close()


async def test_a_broken_connection_is_a_lost_session_and_another_follows(server: TreeServer, socket: Path) -> None:
    one, other = await open_store(socket, LONG_MS), await open_store(socket, LONG_MS)
    states: list[SessionState] = []
    events: list[WatchEvent] = []
    one.on_session(states.append)
    await one.create("/mine", ephemeral=True)
    await one.create("/ours")
    for path in ("/mine", "/ours"):
        await one.exists(path, events.append)
    await one.children("/ours", events.append)
    writing = asyncio.ensure_future(one.multi([Set("/ours", b"mine")]))
    await asyncio.sleep(0)
    cut(one)  # whether the write is executed or not, its answer does not come
    await other.create("/ours/child")
    await eventually_async(lambda: SessionState.LOST in states, "the session to be lost")
    with pytest.raises(SessionLost):
        await writing
    await eventually_async(lambda: len(states) == 2, "another session")
    assert states == [SessionState.LOST, SessionState.CONNECTED]
    assert await one.exists("/mine") is None
    kinds = {(EventKind.DELETED, "/mine"), (EventKind.CHILDREN, "/ours")}
    seen = {(each.kind, each.path) for each in events} - {(EventKind.CHANGED, "/ours")}  # if the write was executed
    assert seen == kinds  # what was missed between the sessions
    await one.create("/mine", ephemeral=True)
    await one.close()
    assert await other.exists("/mine") is None
    await other.close()


async def test_reads_wait_for_the_next_session(server: TreeServer, socket: Path) -> None:
    store = await open_store(socket, LONG_MS)
    await store.create("/a", b"1")
    cut(store)
    reads = [asyncio.ensure_future(store.get("/a")) for _ in range(100)]
    assert {(await each).data for each in reads} == {b"1"}
    await store.close()


@pytest.mark.slow
async def test_the_session_of_a_silent_process_ends(server: TreeServer, socket: Path) -> None:
    silent, other = await open_store(socket, SHORT_MS), await open_store(socket, LONG_MS)
    gone = asyncio.Event()
    await silent.create("/mine", ephemeral=True)
    await other.exists("/mine", lambda event: gone.set())
    silence(silent)
    await gone.wait()
    assert await other.exists("/mine") is None
    await silent.close()
    await other.close()


@pytest.mark.slow
async def test_a_session_lives_as_long_as_its_process_speaks(server: TreeServer, socket: Path) -> None:
    store = await open_store(socket, SHORT_MS)
    states: list[SessionState] = []
    store.on_session(states.append)
    await store.create("/mine", ephemeral=True)
    await asyncio.sleep(4 * SHORT_MS / 1000)
    assert await store.exists("/mine") is not None
    assert states == []
    await store.close()


@pytest.mark.slow
async def test_a_server_that_falls_silent_is_left(server: TreeServer, socket: Path) -> None:
    store = await open_store(socket, SHORT_MS)
    lost = asyncio.Event()
    store.on_session(lambda state: lost.set())
    for client in server._clients:
        client._take = lambda message: None  # type: ignore[method-assign]
    await lost.wait()
    await store.close()


async def test_a_server_that_restarts_is_found_again(tmp_path: Path, socket: Path) -> None:
    first = await TreeServer.open(tmp_path, socket)
    store = await open_store(socket, LONG_MS)
    await store.create("/lasting", b"1")
    await store.create("/passing", ephemeral=True)
    await first.close()
    socket.unlink(missing_ok=True)
    second = await TreeServer.open(tmp_path, socket)
    assert (await store.get("/lasting")).data == b"1"
    assert await store.exists("/passing") is None
    await store.close()
    await second.close()


async def test_nobody_at_the_socket(socket: Path) -> None:
    with pytest.raises(StoreUnreachable, match="No such file"):
        await open_store(socket, 200)


async def test_a_thousand_writes_at_once_are_each_done_once_and_in_order(server: TreeServer, socket: Path) -> None:
    store = await open_store(socket, LONG_MS)
    await store.create("/a")
    versions = await asyncio.gather(*(store.set("/a", b"%d" % number) for number in range(1000)))
    assert versions == list(range(1, 1001))
    assert (await store.get("/a")).data == b"999"
    await store.close()


async def test_the_largest_write_of_bytes_that_json_escapes(server: TreeServer, socket: Path) -> None:
    store = await open_store(socket, LONG_MS)
    data = bytes(1_000_000)
    await store.multi([Create("/large", data)])
    assert (await store.get("/large")).data == data
    await store.close()


async def test_only_the_owner_can_open_the_socket(server: TreeServer, socket: Path) -> None:
    assert stat.S_IMODE(socket.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "sent",
    [
        (FRAME_BYTES_MAX + 1).to_bytes(4),
        b"\x00\x00\x00\x02{x",
        pack({}),  # type: ignore[arg-type]
        pack([]),
        pack([1]),
        pack(["1", "ping"]),
        pack([1, "data", "/", None]),  # without a session
        pack([1, "open", 1000]) + pack([2, "open", 1000]),
        pack([1, "open", 1000]) + pack([2, "data", 7, None]),
        pack([1, "open", 1000]) + pack([2, "data", "/", "watch"]),
        pack([1, "open", 1000]) + pack([2, "write", [["create", "/a", "\u1234", False, False]]]),
        pack([1, "open", 1000]) + pack([2, "write", [["drop", "/a"]]]),
        pack([1, "open", 1000]) + pack([2, "write", ["check"]]),
        b"\x00\x00\x10\x00" + b"[" * 4096,
        json.dumps([1, "ping"]).encode(),  # no size
    ],
)
async def test_what_is_no_request_ends_its_connection_only(server: TreeServer, socket: Path, sent: bytes) -> None:
    store = await open_store(socket, LONG_MS)
    reader, writer = await asyncio.open_unix_connection(str(socket))
    writer.write(sent)
    with suppress(ConnectionError):
        while await reader.read(1 << 16):
            pass
    writer.close()
    await store.create("/still-here")
    assert await store.exists("/a") is None
    await store.close()
