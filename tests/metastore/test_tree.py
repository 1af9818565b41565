"""One suite for every implementation of the metadata store. A new one is a line in `IMPLEMENTATIONS`."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from uuid import uuid4

import pytest

from headrace.metastore.embedded import EmbeddedStore
from headrace.metastore.store import (
    BadPath,
    BadVersion,
    Check,
    Create,
    Delete,
    EventKind,
    MetadataStore,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    SessionLost,
    Set,
    StoreError,
    WatchEvent,
    ensure_path,
)
from tests.simulation.store import open_alone

Open = Callable[[pytest.FixtureRequest, Path], Awaitable[MetadataStore]]


async def open_on_zookeeper(request: pytest.FixtureRequest, directory: Path) -> MetadataStore:
    from headrace.metastore.zookeeper.connection import open_store
    from headrace.metastore.zookeeper.ensemble import Ensemble

    server = request.getfixturevalue("zookeeper_server")
    return await open_store(Ensemble(server.address, f"/test/{uuid4()}"))


async def open_shared(request: pytest.FixtureRequest, directory: Path) -> MetadataStore:
    """A store on a server of its own, which is closed after it."""
    from headrace.metastore.shared.socket_link import open_store
    from headrace.metastore.shared.tree_server import TreeServer

    sockets = tempfile.TemporaryDirectory()  # the path of a socket has about 100 characters at most
    socket = Path(sockets.name, "tree")
    server = await TreeServer.open(directory, socket)
    store = await open_store(socket, 10_000)
    close = store.close

    async def close_both() -> None:
        await close()
        await server.close()
        sockets.cleanup()

    store.close = close_both  # type: ignore[method-assign]
    return store


IMPLEMENTATIONS: dict[str, Open] = {
    "embedded": lambda _, directory: EmbeddedStore.open(directory),
    "shared": open_shared,
    "simulated": lambda _, directory: open_alone(directory),
    "zookeeper": open_on_zookeeper,
}
SLOW = {"zookeeper": [pytest.mark.slow, pytest.mark.peer]}


@pytest.fixture(params=[pytest.param(name, marks=SLOW.get(name, ())) for name in IMPLEMENTATIONS])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MetadataStore]:
    opened = await IMPLEMENTATIONS[request.param](request, tmp_path)
    yield opened
    await opened.close()


class Watched:
    """Collects the events of one watch."""

    def __init__(self) -> None:
        self.events: list[WatchEvent] = []

    def __call__(self, event: WatchEvent) -> None:
        self.events.append(event)

    async def settled(self, store: MetadataStore) -> list[WatchEvent]:
        """What came by now: an answer of the metadata store comes after the events of what was done before it."""
        await store.exists("/")
        return self.events


async def test_a_node_has_the_value_it_was_made_with_and_version_0(store: MetadataStore) -> None:
    assert await store.create("/a", b"one") == "/a"
    node = await store.get("/a")
    assert (node.data, node.version, node.ephemeral_owner) == (b"one", 0, 0)


async def test_each_set_raises_the_version_by_one(store: MetadataStore) -> None:
    await store.create("/a")
    assert await store.set("/a", b"x") == 1
    assert await store.set("/a", b"y", version=1) == 2
    assert (await store.get("/a")).data == b"y"


async def test_a_set_or_delete_with_an_old_version_is_refused(store: MetadataStore) -> None:
    await store.create("/a")
    await store.set("/a", b"x")
    with pytest.raises(BadVersion):
        await store.set("/a", b"y", version=0)
    with pytest.raises(BadVersion):
        await store.delete("/a", version=0)
    assert (await store.get("/a")).data == b"x"


async def test_a_node_needs_its_parent_and_is_made_once(store: MetadataStore) -> None:
    with pytest.raises(NoNode):
        await store.create("/a/b")
    await store.create("/a")
    await store.create("/a/b")
    with pytest.raises(NodeExists):
        await store.create("/a/b")
    with pytest.raises(NodeExists):
        await store.create("/")


async def test_a_node_that_is_not_there_cannot_be_read_or_written(store: MetadataStore) -> None:
    with pytest.raises(NoNode):
        await store.get("/a")
    with pytest.raises(NoNode):
        await store.set("/a", b"")
    with pytest.raises(NoNode):
        await store.delete("/a")
    with pytest.raises(NoNode):
        await store.children("/a")
    assert await store.exists("/a") is None


async def test_a_node_with_children_cannot_be_deleted(store: MetadataStore) -> None:
    await ensure_path(store, "/a/b")
    with pytest.raises(NotEmpty) as caught:
        await store.delete("/a")
    assert caught.value.path == "/a"
    await store.delete("/a/b")
    await store.delete("/a")
    assert await store.exists("/a") is None


async def test_children_are_names_in_order_and_only_the_direct_ones(store: MetadataStore) -> None:
    for path in ("/a/c", "/a/b/x", "/a.b/y", "/aa"):
        await ensure_path(store, path)
    assert await store.children("/a") == ["b", "c"]
    assert {"a", "a.b", "aa"} <= set(await store.children("/"))


async def test_many_nodes_are_read_at_once_and_missing_ones_are_none(store: MetadataStore) -> None:
    await store.create("/a", b"1")
    found = await store.get_many(["/nope", "/a"])
    assert found[0] is None
    assert found[1] is not None and found[1].data == b"1"


async def test_an_ephemeral_node_has_an_owner_and_no_children(store: MetadataStore) -> None:
    await store.create("/a", ephemeral=True)
    assert (await store.get("/a")).ephemeral_owner != 0
    with pytest.raises(NoChildrenForEphemerals):
        await store.create("/a/b")


async def test_sequential_names_grow_and_are_not_used_again(store: MetadataStore) -> None:
    await store.create("/q")
    first = await store.create("/q/n-", sequential=True)
    assert first == "/q/n-0000000000"
    await store.delete(first)
    await store.create("/q/other")
    assert await store.create("/q/n-", sequential=True) == "/q/n-0000000002"
    assert await store.create("/q/", sequential=True) == "/q/0000000003"


@pytest.mark.parametrize("path", ["", "a", "/a/", "//", "/a//b", "/./a", "/a/..", "/a\0b", "/a\ud83d", "/\udc00/"])
async def test_what_is_not_a_path_is_refused(store: MetadataStore, path: str) -> None:
    asked: list[Callable[[], Awaitable[object]]] = [
        lambda: store.create(path),
        lambda: store.get(path),
        lambda: store.exists(path),
        lambda: store.children(path),
        lambda: store.get_many(["/", path]),
        lambda: store.set(path, b""),
        lambda: store.delete(path),
        lambda: store.multi([Check("/"), Check(path)]),
    ]
    for ask in asked:
        with pytest.raises(BadPath):
            await ask()
    assert await store.create("/still-works") == "/still-works"


@pytest.mark.parametrize("path", ["/.a/a./...", "/é/a b", "/a/..b"])
async def test_what_looks_unlike_a_path_and_is_one_is_written_and_read(store: MetadataStore, path: str) -> None:
    await ensure_path(store, path)
    assert await store.get_many([path, path + "x"]) == [await store.get(path), None]


async def test_a_multi_is_done_in_order(store: MetadataStore) -> None:
    ops: list[Op] = [
        Create("/a"),
        Create("/a/b", b"1"),
        Check("/a/b", 0),
        Set("/a/b", b"2"),
        Delete("/a/b", 1),
        Create("/c"),
    ]
    assert await store.multi(ops) == ["/a", "/a/b", None, 1, None, "/c"]
    assert await store.children("/a") == []


async def test_a_multi_is_done_whole_or_not_at_all_and_says_which_part_failed(store: MetadataStore) -> None:
    await store.create("/guard")
    await store.set("/guard", b"newer")
    with pytest.raises(BadVersion) as caught:
        await store.multi([Create("/a"), Check("/guard", 0), Create("/b")])
    assert (caught.value.index, caught.value.path) == (1, "/guard")
    assert await store.get_many(["/a", "/b"]) == [None, None]


async def test_a_failed_multi_leaves_no_gap_in_sequential_names_and_fires_no_watch(store: MetadataStore) -> None:
    watched = Watched()
    await store.create("/q")
    await store.children("/q", watched)
    with pytest.raises(NoNode):
        await store.multi([Create("/q/n-", sequential=True), Delete("/nope")])
    assert await watched.settled(store) == []
    assert await store.create("/q/n-", sequential=True) == "/q/n-0000000000"


async def test_all_nodes_of_one_multi_share_a_zxid_and_later_writes_have_a_higher_one(store: MetadataStore) -> None:
    await store.multi([Create("/a"), Create("/b")])
    a, b = await store.get("/a"), await store.get("/b")
    assert a.czxid == a.mzxid == b.czxid
    await store.set("/a", b"x")
    changed = await store.get("/a")
    assert changed.czxid == a.czxid < changed.mzxid
    await store.delete("/b")
    await store.create("/b")
    assert (await store.get("/b")).czxid > changed.mzxid


async def test_a_watch_fires_once(store: MetadataStore) -> None:
    watched = Watched()
    await store.create("/a")
    await store.get("/a", watched)
    await store.set("/a", b"1")
    await store.set("/a", b"2")
    assert await watched.settled(store) == [WatchEvent(EventKind.CHANGED, "/a")]


async def test_a_watch_on_what_is_not_there_fires_when_it_comes(store: MetadataStore) -> None:
    watched = Watched()
    assert await store.exists("/a", watched) is None
    await store.create("/a")
    assert await watched.settled(store) == [WatchEvent(EventKind.CREATED, "/a")]


async def test_a_failed_get_sets_no_watch(store: MetadataStore) -> None:
    watched = Watched()
    with pytest.raises(NoNode):
        await store.get("/a", watched)
    await store.create("/a")
    assert await watched.settled(store) == []


async def test_one_watch_on_many_nodes_fires_for_each_that_was_there(store: MetadataStore) -> None:
    watched = Watched()
    await store.multi([Create("/a"), Create("/b")])
    found = await store.get_many(["/a", "/nope", "/b"], watched)
    assert [node is None for node in found] == [False, True, False]
    await store.create("/nope")
    await store.set("/b", b"1")
    await store.delete("/a")
    assert await watched.settled(store) == [
        WatchEvent(EventKind.CHANGED, "/b"),
        WatchEvent(EventKind.DELETED, "/a"),
    ]


async def test_a_watch_on_children_fires_for_coming_and_going_but_not_for_a_new_value(store: MetadataStore) -> None:
    await ensure_path(store, "/a/b")
    watched = Watched()
    await store.children("/a", watched)
    await store.set("/a", b"x")
    await store.set("/a/b", b"x")
    assert await watched.settled(store) == []
    await store.create("/a/c")
    await store.children("/a", watched)
    await store.delete("/a/b")
    assert await watched.settled(store) == [WatchEvent(EventKind.CHILDREN, "/a")] * 2


async def test_deletion_fires_the_watches_on_the_node_and_on_its_children(store: MetadataStore) -> None:
    data, children = Watched(), Watched()
    await store.create("/a")
    await store.get("/a", data)
    await store.children("/a", children)
    await store.delete("/a")
    assert await data.settled(store) == await children.settled(store) == [WatchEvent(EventKind.DELETED, "/a")]


async def test_a_watch_event_arrives_before_the_new_state_can_be_read(store: MetadataStore) -> None:
    seen: list[str] = []
    await store.create("/a")
    await store.get("/a", lambda event: seen.append("event"))
    writing = asyncio.create_task(store.set("/a", b"new"))
    while (await store.get("/a")).data != b"new":
        pass
    seen.append("read")
    await writing
    assert seen == ["event", "read"]


async def test_operations_asked_for_together_are_done_in_that_order(store: MetadataStore) -> None:
    await store.create("/a")
    versions = await asyncio.gather(*(store.set("/a", str(n).encode()) for n in range(50)))
    assert versions == list(range(1, 51))
    assert (await store.get("/a")).data == b"49"


async def test_only_one_of_many_writers_with_the_same_version_wins(store: MetadataStore) -> None:
    await store.create("/a")
    done = await asyncio.gather(*(store.set("/a", b"", version=0) for _ in range(20)), return_exceptions=True)
    assert sorted(type(each).__name__ for each in done) == ["BadVersion"] * 19 + ["int"]


async def test_a_closed_tree_refuses(store: MetadataStore) -> None:
    await store.close()
    with pytest.raises(SessionLost):
        await store.get("/")
    await store.close()
    assert issubclass(SessionLost, StoreError)


async def test_many_nodes_are_read_with_those_that_are_missing(store: MetadataStore) -> None:
    await store.create("/many")
    ops: list[Op] = [Create(f"/many/{number}", b"%d" % number if number % 3 else b"") for number in range(450)]
    await store.multi([each for each in ops if int(each.path[6:]) % 7])
    await store.set("/many/8", b"eight")
    found = await store.get_many([each.path for each in ops])
    assert [None if each is None else each.data for each in found] == [
        b"eight" if number == 8 else None if number % 7 == 0 else b"%d" % number if number % 3 else b""
        for number in range(450)
    ]
    assert found[8] == await store.get("/many/8")
    assert found[9] == await store.get("/many/9")
    with pytest.raises(BadPath):
        await store.get_many([*(each.path for each in ops), "/a//b"])


async def test_many_reads_refuse_what_is_no_path(store: MetadataStore) -> None:
    paths = [f"/many/{number}" for number in range(60)]
    with pytest.raises(BadPath):
        await store.get_many([*paths, "//", *paths])


async def test_a_watch_of_many_reads_fires_for_each_node_that_changes(store: MetadataStore) -> None:
    paths = [f"/n{number}" for number in range(250)]
    await store.multi([Create(path) for path in paths])
    fired: list[WatchEvent] = []
    found = await store.get_many([*paths, "/nope"], fired.append)
    assert [each is None for each in found] == [False] * 250 + [True]
    await store.multi([Set(path, b"x", 0) for path in paths[::50]])
    await store.get("/")
    assert sorted(fired) == sorted(WatchEvent(EventKind.CHANGED, path) for path in paths[::50])


async def test_many_writes_of_one_multi_are_done_in_order_or_not_at_all(store: MetadataStore) -> None:
    paths = [f"/n{number}" for number in range(10)]
    await store.multi([Create(path) for path in paths])
    again: list[Op] = [*(Set(path, b"1", 0) for path in paths), *(Set(path, b"2", 1) for path in paths)]
    refused: list[tuple[Op, type[StoreError]]] = [
        (Set("/n4", b"3", 5), BadVersion),
        (Set("/nope", b"3", 0), NoNode),
        (Check("/n4", 3), BadVersion),
    ]
    for op, error in refused:
        for at in (7, 13):
            with pytest.raises(error) as raised:
                await store.multi([*again[:at], op, *again[at:], Set("/none", b"", 0)])
            assert (raised.value.index, raised.value.path) == (at, op.path)
    assert {each.version for each in await store.get_many(paths) if each is not None} == {0}
    assert await store.multi([Check("/n0", 0), *again, Set("/n0", b"any")]) == [None, *[1] * 10, *[2] * 10, 3]
    assert [each and (each.data, each.version) for each in await store.get_many(paths)] == [
        (b"any", 3),
        *[(b"2", 2)] * 9,
    ]
