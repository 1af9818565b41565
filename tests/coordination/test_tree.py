"""One suite for every implementation of the tree. A new one is a line in `IMPLEMENTATIONS`."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from uuid import uuid4

import pytest

from headrace.coordination.embedded import EmbeddedTree
from headrace.coordination.tree import (
    BadPath,
    BadVersion,
    Check,
    Create,
    Delete,
    EventKind,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionLost,
    Set,
    Tree,
    TreeError,
    WatchEvent,
    ensure_path,
)
from tests.simulation.tree import open_alone

Open = Callable[[pytest.FixtureRequest, Path], Awaitable[Tree]]


async def open_on_zookeeper(request: pytest.FixtureRequest, directory: Path) -> Tree:
    from headrace.coordination.zookeeper import Ensemble, open_tree

    server = request.getfixturevalue("zookeeper_server")
    return await open_tree(Ensemble(server.address, f"/test/{uuid4()}"))


IMPLEMENTATIONS: dict[str, Open] = {
    "embedded": lambda _, directory: EmbeddedTree.open(directory),
    "simulated": lambda _, directory: open_alone(directory),
    "zookeeper": open_on_zookeeper,
}
SLOW = {"zookeeper": [pytest.mark.slow]}


@pytest.fixture(params=[pytest.param(name, marks=SLOW.get(name, ())) for name in IMPLEMENTATIONS])
async def tree(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Tree]:
    opened = await IMPLEMENTATIONS[request.param](request, tmp_path)
    yield opened
    await opened.close()


class Watched:
    """Collects the events of one watch."""

    def __init__(self) -> None:
        self.events: list[WatchEvent] = []

    def __call__(self, event: WatchEvent) -> None:
        self.events.append(event)

    async def settled(self, tree: Tree) -> list[WatchEvent]:
        """What came by now: an answer of the tree comes after the events of what was done before it."""
        await tree.exists("/")
        return self.events


async def test_a_node_has_the_value_it_was_made_with_and_version_0(tree: Tree) -> None:
    assert await tree.create("/a", b"one") == "/a"
    node = await tree.get("/a")
    assert (node.data, node.version, node.ephemeral_owner) == (b"one", 0, 0)


async def test_each_set_raises_the_version_by_one(tree: Tree) -> None:
    await tree.create("/a")
    assert await tree.set("/a", b"x") == 1
    assert await tree.set("/a", b"y", version=1) == 2
    assert (await tree.get("/a")).data == b"y"


async def test_a_set_or_delete_with_an_old_version_is_refused(tree: Tree) -> None:
    await tree.create("/a")
    await tree.set("/a", b"x")
    with pytest.raises(BadVersion):
        await tree.set("/a", b"y", version=0)
    with pytest.raises(BadVersion):
        await tree.delete("/a", version=0)
    assert (await tree.get("/a")).data == b"x"


async def test_a_node_needs_its_parent_and_is_made_once(tree: Tree) -> None:
    with pytest.raises(NoNode):
        await tree.create("/a/b")
    await tree.create("/a")
    await tree.create("/a/b")
    with pytest.raises(NodeExists):
        await tree.create("/a/b")
    with pytest.raises(NodeExists):
        await tree.create("/")


async def test_a_node_that_is_not_there_cannot_be_read_or_written(tree: Tree) -> None:
    with pytest.raises(NoNode):
        await tree.get("/a")
    with pytest.raises(NoNode):
        await tree.set("/a", b"")
    with pytest.raises(NoNode):
        await tree.delete("/a")
    with pytest.raises(NoNode):
        await tree.children("/a")
    assert await tree.exists("/a") is None


async def test_a_node_with_children_cannot_be_deleted(tree: Tree) -> None:
    await ensure_path(tree, "/a/b")
    with pytest.raises(NotEmpty) as caught:
        await tree.delete("/a")
    assert caught.value.path == "/a"
    await tree.delete("/a/b")
    await tree.delete("/a")
    assert await tree.exists("/a") is None


async def test_children_are_names_in_order_and_only_the_direct_ones(tree: Tree) -> None:
    for path in ("/a/c", "/a/b/x", "/a.b/y", "/aa"):
        await ensure_path(tree, path)
    assert await tree.children("/a") == ["b", "c"]
    assert {"a", "a.b", "aa"} <= set(await tree.children("/"))


async def test_many_nodes_are_read_at_once_and_missing_ones_are_none(tree: Tree) -> None:
    await tree.create("/a", b"1")
    found = await tree.get_many(["/nope", "/a"])
    assert found[0] is None
    assert found[1] is not None and found[1].data == b"1"


async def test_an_ephemeral_node_has_an_owner_and_no_children(tree: Tree) -> None:
    await tree.create("/a", ephemeral=True)
    assert (await tree.get("/a")).ephemeral_owner != 0
    with pytest.raises(NoChildrenForEphemerals):
        await tree.create("/a/b")


async def test_sequential_names_grow_and_are_not_used_again(tree: Tree) -> None:
    await tree.create("/q")
    first = await tree.create("/q/n-", sequential=True)
    assert first == "/q/n-0000000000"
    await tree.delete(first)
    await tree.create("/q/other")
    assert await tree.create("/q/n-", sequential=True) == "/q/n-0000000002"
    assert await tree.create("/q/", sequential=True) == "/q/0000000003"


@pytest.mark.parametrize("path", ["", "a", "/a/", "//", "/a//b", "/./a", "/a/..", "/a\0b"])
async def test_what_is_not_a_path_is_refused(tree: Tree, path: str) -> None:
    with pytest.raises(BadPath):
        await tree.create(path)


async def test_a_multi_is_done_in_order(tree: Tree) -> None:
    ops = [Create("/a"), Create("/a/b", b"1"), Check("/a/b", 0), Set("/a/b", b"2"), Delete("/a/b", 1), Create("/c")]
    assert await tree.multi(ops) == ["/a", "/a/b", None, 1, None, "/c"]
    assert await tree.children("/a") == []


async def test_a_multi_is_done_whole_or_not_at_all_and_says_which_part_failed(tree: Tree) -> None:
    await tree.create("/guard")
    await tree.set("/guard", b"newer")
    with pytest.raises(BadVersion) as caught:
        await tree.multi([Create("/a"), Check("/guard", 0), Create("/b")])
    assert (caught.value.index, caught.value.path) == (1, "/guard")
    assert await tree.get_many(["/a", "/b"]) == [None, None]


async def test_a_failed_multi_leaves_no_gap_in_sequential_names_and_fires_no_watch(tree: Tree) -> None:
    watched = Watched()
    await tree.create("/q")
    await tree.children("/q", watched)
    with pytest.raises(NoNode):
        await tree.multi([Create("/q/n-", sequential=True), Delete("/nope")])
    assert await watched.settled(tree) == []
    assert await tree.create("/q/n-", sequential=True) == "/q/n-0000000000"


async def test_all_nodes_of_one_multi_share_a_zxid_and_later_writes_have_a_higher_one(tree: Tree) -> None:
    await tree.multi([Create("/a"), Create("/b")])
    a, b = await tree.get("/a"), await tree.get("/b")
    assert a.czxid == a.mzxid == b.czxid
    await tree.set("/a", b"x")
    changed = await tree.get("/a")
    assert changed.czxid == a.czxid < changed.mzxid
    await tree.delete("/b")
    await tree.create("/b")
    assert (await tree.get("/b")).czxid > changed.mzxid


async def test_a_watch_fires_once(tree: Tree) -> None:
    watched = Watched()
    await tree.create("/a")
    await tree.get("/a", watched)
    await tree.set("/a", b"1")
    await tree.set("/a", b"2")
    assert await watched.settled(tree) == [WatchEvent(EventKind.CHANGED, "/a")]


async def test_a_watch_on_what_is_not_there_fires_when_it_comes(tree: Tree) -> None:
    watched = Watched()
    assert await tree.exists("/a", watched) is None
    await tree.create("/a")
    assert await watched.settled(tree) == [WatchEvent(EventKind.CREATED, "/a")]


async def test_a_failed_get_sets_no_watch(tree: Tree) -> None:
    watched = Watched()
    with pytest.raises(NoNode):
        await tree.get("/a", watched)
    await tree.create("/a")
    assert await watched.settled(tree) == []


async def test_one_watch_on_many_nodes_fires_for_each_that_was_there(tree: Tree) -> None:
    watched = Watched()
    await tree.multi([Create("/a"), Create("/b")])
    found = await tree.get_many(["/a", "/nope", "/b"], watched)
    assert [node is None for node in found] == [False, True, False]
    await tree.create("/nope")
    await tree.set("/b", b"1")
    await tree.delete("/a")
    assert await watched.settled(tree) == [
        WatchEvent(EventKind.CHANGED, "/b"),
        WatchEvent(EventKind.DELETED, "/a"),
    ]


async def test_a_watch_on_children_fires_for_coming_and_going_but_not_for_a_new_value(tree: Tree) -> None:
    await ensure_path(tree, "/a/b")
    watched = Watched()
    await tree.children("/a", watched)
    await tree.set("/a", b"x")
    await tree.set("/a/b", b"x")
    assert await watched.settled(tree) == []
    await tree.create("/a/c")
    await tree.children("/a", watched)
    await tree.delete("/a/b")
    assert await watched.settled(tree) == [WatchEvent(EventKind.CHILDREN, "/a")] * 2


async def test_deletion_fires_the_watches_on_the_node_and_on_its_children(tree: Tree) -> None:
    data, children = Watched(), Watched()
    await tree.create("/a")
    await tree.get("/a", data)
    await tree.children("/a", children)
    await tree.delete("/a")
    assert await data.settled(tree) == await children.settled(tree) == [WatchEvent(EventKind.DELETED, "/a")]


async def test_a_watch_event_arrives_before_the_new_state_can_be_read(tree: Tree) -> None:
    seen: list[str] = []
    await tree.create("/a")
    await tree.get("/a", lambda event: seen.append("event"))
    writing = asyncio.create_task(tree.set("/a", b"new"))
    while (await tree.get("/a")).data != b"new":
        pass
    seen.append("read")
    await writing
    assert seen == ["event", "read"]


async def test_operations_asked_for_together_are_done_in_that_order(tree: Tree) -> None:
    await tree.create("/a")
    versions = await asyncio.gather(*(tree.set("/a", str(n).encode()) for n in range(50)))
    assert versions == list(range(1, 51))
    assert (await tree.get("/a")).data == b"49"


async def test_only_one_of_many_writers_with_the_same_version_wins(tree: Tree) -> None:
    await tree.create("/a")
    done = await asyncio.gather(*(tree.set("/a", b"", version=0) for _ in range(20)), return_exceptions=True)
    assert sorted(type(each).__name__ for each in done) == ["BadVersion"] * 19 + ["int"]


async def test_a_closed_tree_refuses(tree: Tree) -> None:
    await tree.close()
    with pytest.raises(SessionLost):
        await tree.get("/")
    await tree.close()
    assert issubclass(SessionLost, TreeError)
