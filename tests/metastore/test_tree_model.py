"""Each tree against a dict: any sequence of multis gives the same results, errors, nodes and watch events."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.metastore.embedded import EmbeddedStore
from headrace.metastore.shared.socket_link import open_store as open_shared
from headrace.metastore.shared.tree_server import TreeServer
from headrace.metastore.store import (
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
    OpResult,
    Set,
    StoreError,
    WatchEvent,
    parent_of,
)
from tests.examples import examples
from tests.zookeeper_server import ZooKeeperServer


@dataclass(frozen=True)
class Entry:
    data: bytes = b""
    version: int = 0
    ephemeral: bool = False
    children_made: int = 0


@dataclass
class Model:
    """The metadata store as it is meant, in the fewest words."""

    nodes: dict[str, Entry] = field(default_factory=lambda: {"/": Entry()})
    events: list[WatchEvent] = field(default_factory=list)

    def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        before = dict(self.nodes)
        self.events = []
        results: list[OpResult] = []
        try:
            for op in ops:
                results.append(self.apply(op))  # noqa: PERF401
        except StoreError as error:
            self.nodes, self.events, error.index = before, [], len(results)
            raise
        return results

    def apply(self, op: Op) -> OpResult:
        if isinstance(op, Create):
            return self.create(op)
        entry = self.nodes.get(op.path)
        if entry is None:
            raise NoNode(op.path)
        if op.version not in (-1, entry.version):
            raise BadVersion(op.path)
        if isinstance(op, Set):
            self.nodes[op.path] = replace(entry, data=op.data, version=entry.version + 1)
            self.events.append(WatchEvent(EventKind.CHANGED, op.path))
            return entry.version + 1
        if isinstance(op, Delete):
            if op.path == "/" or self.children(op.path):
                raise NotEmpty(op.path)
            del self.nodes[op.path]
            self.events += [WatchEvent(EventKind.DELETED, op.path), WatchEvent(EventKind.CHILDREN, parent_of(op.path))]
        return None

    def create(self, op: Create) -> str:
        parent = parent_of(op.path)
        if parent not in self.nodes:
            raise NoNode(op.path)
        above = self.nodes[parent]
        if above.ephemeral:
            raise NoChildrenForEphemerals(op.path)
        path = f"{op.path}{above.children_made:010d}" if op.sequential else op.path
        if path in self.nodes:
            raise NodeExists(path)
        self.nodes[path] = Entry(op.data, 0, op.ephemeral)
        self.nodes[parent] = replace(above, children_made=above.children_made + 1)
        self.events += [WatchEvent(EventKind.CREATED, path), WatchEvent(EventKind.CHILDREN, parent)]
        return path

    def children(self, path: str) -> list[str]:
        return sorted(each.rpartition("/")[2] for each in self.nodes if each != "/" and parent_of(each) == path)

    def fired(self, watched: set[tuple[str, bool]]) -> list[WatchEvent]:
        """The events that watches on (path, its children?) get, each watch once."""
        seen, left = [], set(watched)
        for event in self.events:
            keys = [(event.path, event.kind is EventKind.CHILDREN)]
            if event.kind is EventKind.DELETED:
                keys.append((event.path, True))
            for key in keys:
                if key in left:
                    left.discard(key)
                    seen.append(event)
        return seen


PATHS = st.sampled_from(["/a", "/b", "/a/a", "/a/b", "/a/a/a", "/b/a", "/a/s-0000000000", "/a/s-0000000001"])
VERSIONS = st.sampled_from([-1, -1, -1, 0, 1, 2])
OPS = st.one_of(
    st.builds(Create, PATHS, st.binary(max_size=3), st.booleans()),
    st.builds(Create, st.sampled_from(["/a/s-", "/s-"]), st.binary(max_size=1), st.booleans(), st.just(True)),
    st.builds(Set, PATHS, st.binary(max_size=3), VERSIONS),
    st.builds(Delete, PATHS, VERSIONS),
    st.builds(Check, PATHS, VERSIONS),
)
REOPEN = "reopen"
STEPS = st.lists(st.one_of(st.lists(OPS, min_size=1, max_size=4), st.just(REOPEN)), max_size=25)


async def outcome_of(store: MetadataStore, ops: Sequence[Op]) -> object:
    try:
        return await store.multi(ops)
    except StoreError as error:
        return type(error), error.path, error.index


def expected_of(model: Model, ops: Sequence[Op]) -> object:
    try:
        return model.multi(ops)
    except StoreError as error:
        return type(error), error.path, error.index


async def compare(
    reopen: Callable[[], Awaitable[MetadataStore]], steps: list[list[Op] | str], own: tuple[str, ...] = ()
) -> None:
    """`own`: the children of the root that the metadata store made for itself."""
    store = await reopen()
    model = Model()
    model.nodes["/"] = Entry(children_made=len(own))
    for step in steps:
        if isinstance(step, str):
            await store.close()
            store = await reopen()
            model.nodes = {path: entry for path, entry in model.nodes.items() if not entry.ephemeral}
            continue
        events: list[WatchEvent] = []
        watched = {(path, False) for path in ["/a", "/a/b", "/b"]}
        for path, _ in watched:
            await store.exists(path, events.append)
        for path in {"/", "/a"} & set(model.nodes):
            await store.children(path, events.append)
            watched.add((path, True))
        assert await outcome_of(store, step) == expected_of(model, step)
        await asyncio.sleep(0)
        assert events[: len(model.fired(watched))] == model.fired(watched)
    for path, entry in model.nodes.items():
        node = await store.get(path)
        assert (node.data, node.version, bool(node.ephemeral_owner)) == (entry.data, entry.version, entry.ephemeral)
        assert [name for name in await store.children(path) if name not in own] == model.children(path)
    await store.close()


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(STEPS)
def test_the_embedded_one_is_like_the_model(steps: list[list[Op] | str]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(compare(lambda: EmbeddedStore.open(Path(directory)), steps))


@pytest.mark.slow
@settings(max_examples=examples(30), deadline=None)
@given(STEPS)
def test_a_shared_one_is_like_the_model(steps: list[list[Op] | str]) -> None:
    async def run() -> None:
        with tempfile.TemporaryDirectory() as directory:
            server = await TreeServer.open(Path(directory), Path(directory, "tree"))
            await compare(lambda: open_shared(Path(directory, "tree"), 60_000), steps, own=("headrace",))
            await server.close()

    asyncio.run(run())


@pytest.mark.slow
@settings(max_examples=examples(40), deadline=None)
@given(steps=STEPS)
def test_a_zookeeper_is_like_the_model(zookeeper_server: ZooKeeperServer, steps: list[list[Op] | str]) -> None:
    from headrace.metastore.zookeeper.connection import open_store
    from headrace.metastore.zookeeper.ensemble import Ensemble

    ensemble = Ensemble(zookeeper_server.address, f"/model/{uuid4()}")
    asyncio.run(compare(lambda: open_store(ensemble), steps, own=("headrace",)))
