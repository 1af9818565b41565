"""Instances are stored as versioned JSON, and reach every broker that follows them, with the listeners of each."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from pathlib import Path
from uuid import uuid4

import pytest

from headrace.errors import ErrorCode, InvalidConfig, KafkaError
from headrace.instances.definition import Instance, decode_instance
from headrace.metadata import change_feed
from headrace.metadata.instance_endpoints import ENDPOINTS, decode_endpoints, encode_endpoints
from headrace.metadata.stored_instances import CHANGES, INSTANCES, StoredInstances
from headrace.metadata.znodes import CorruptNode
from headrace.metastore.embedded import EmbeddedStore
from headrace.metastore.store import MetadataStore, Node, Watch
from headrace.types import BrokerId
from tests.eventually import eventually_async
from tests.zookeeper_server import ZooKeeperServer

ACME = Instance("acme", "AAAAAAAAAAAAAAAAAAAAAQ", bytes_in=1000)
ZETA = Instance("zeta", "AAAAAAAAAAAAAAAAAAAAAg")
ONE, TWO = BrokerId(1), BrokerId(2)


@pytest.fixture(params=["embedded", pytest.param("zookeeper", marks=[pytest.mark.slow, pytest.mark.peer])])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MetadataStore]:
    if request.param == "embedded":
        opened: MetadataStore = await EmbeddedStore.open(tmp_path)
    else:
        opened = await on_zookeeper(request.getfixturevalue("zookeeper_server"), str(uuid4()))
    yield opened
    await opened.close()


async def on_zookeeper(server: ZooKeeperServer, name: str) -> MetadataStore:
    from headrace.metastore.zookeeper.connection import open_store
    from headrace.metastore.zookeeper.ensemble import Ensemble

    return await open_store(Ensemble(server.address, f"/instances/{name}"))


class Following(StoredInstances):
    """The instances as one broker knows them."""

    def __init__(self, store: MetadataStore) -> None:
        super().__init__(store)
        self.heard: list[tuple[str, Instance | None]] = []
        self.moved: list[list[str]] = []
        self.on_change(lambda name, instance: self.heard.append((name, instance)))
        self.on_endpoints(self._moved)

    def _moved(self, names: Collection[str]) -> None:
        self.moved.append(sorted(names))

    async def settle(self) -> None:
        """Waits until what was done in this session is known."""
        await self._store.exists("/")  # its answer comes after the events of what was done before
        while tasks := [*self._tasks, *self._feed._tasks]:
            await asyncio.wait(tasks)
            await self._store.exists("/")


@pytest.fixture
async def start(store: MetadataStore) -> AsyncIterator[Callable[[], "asyncio.Future[Following]"]]:
    started: list[Following] = []

    async def begin() -> Following:
        started.append(Following(store))
        await started[-1].start()
        return started[-1]

    yield begin  # type: ignore[misc]
    for each in started:
        await each.close()


Start = Callable[[], "asyncio.Future[Following]"]


async def test_a_cluster_without_instances_has_no_nodes_of_them(store: MetadataStore, start: Start) -> None:
    one = await start()
    for path in (INSTANCES, CHANGES, ENDPOINTS):
        assert await store.exists(path) is None
    assert (one.all(), one.endpoints()) == ([], {})


async def test_the_first_instance_reaches_brokers_that_run_already(store: MetadataStore, start: Start) -> None:
    one, other = await start(), await start()
    await one.create(ACME)
    assert one.get("acme") == ACME  # at once on the broker that made it
    await other.settle()
    assert other.all() == [ACME]
    assert other.heard == [("acme", ACME)]
    assert decode_instance((await store.get(f"{INSTANCES}/acme")).data) == ACME


async def test_changes_and_removals_reach_every_broker(start: Start) -> None:
    one, other = await start(), await start()
    await one.create(ZETA)
    await one.create(ACME)
    assert await other_hears(other) == ["acme", "zeta"]
    after = await one.change("acme", lambda each: each.altered({"bytes_in": 7}))
    assert after == one.get("acme") == ACME.altered({"bytes_in": 7})
    await other.settle()
    assert other.get("acme") == after
    assert await other.change("acme", lambda _: None) is None
    await one.settle()
    assert one.all() == other.all() == [ZETA]
    assert one.heard[-1] == other.heard[-1] == ("acme", None)


async def other_hears(other: Following) -> list[str]:
    await other.settle()
    return [each.name for each in other.all()]


async def test_a_listener_that_comes_late_hears_what_there_is(start: Start) -> None:
    one = await start()
    await one.create(ACME)
    await one.publish(ONE, {"acme": ("h", 9)})
    heard: list[tuple[str, Instance | None]] = []
    moved: list[list[str]] = []
    one.on_change(lambda name, instance: heard.append((name, instance)))
    one.on_endpoints(lambda names: moved.append(sorted(names)))
    assert (heard, moved) == ([("acme", ACME)], [["acme"]])


async def test_a_change_without_effect_writes_nothing(store: MetadataStore, start: Start) -> None:
    one = await start()
    await one.create(ACME)
    before = await store.children(CHANGES)
    assert await one.change("acme", lambda each: each) == ACME
    assert await store.children(CHANGES) == before


async def test_a_second_instance_of_a_name_is_refused(start: Start) -> None:
    one, other = await start(), await start()
    await one.create(ACME)
    with pytest.raises(KafkaError, match="called acme exists") as refused:
        await other.create(ACME)
    assert refused.value.code is ErrorCode.DUPLICATE_RESOURCE


async def test_an_unknown_instance_cannot_be_changed(start: Start) -> None:
    one = await start()
    with pytest.raises(KafkaError, match="no instance called 'acme'") as refused:
        await one.change("acme", lambda _: None)
    assert refused.value.code is ErrorCode.RESOURCE_NOT_FOUND


async def test_what_the_decision_refuses_changes_nothing(start: Start) -> None:
    one = await start()
    await one.create(ACME)
    with pytest.raises(InvalidConfig):
        await one.change("acme", lambda each: each.altered({"bytes_in": 0}))
    assert one.all() == [ACME]


async def test_changes_that_meet_are_all_made(start: Start) -> None:
    one, other = await start(), await start()
    await one.create(ACME.altered({"bytes_in": 1}))

    def more(each: Instance) -> Instance:
        return each.altered({"bytes_in": (each.bytes_in or 0) + 1})

    await asyncio.gather(*(who.change("acme", more) for who in (one, other) for _ in range(5)))
    await one.settle()
    assert one.get("acme") == ACME.altered({"bytes_in": 11})


async def test_an_instance_that_is_made_anew_is_the_new_one(start: Start) -> None:
    one, other = await start(), await start()
    await one.create(ACME)
    await one.change("acme", lambda each: each.altered({"bytes_in": 5}))
    await other.settle()
    await one.change("acme", lambda _: None)
    again = Instance("acme", "AAAAAAAAAAAAAAAAAAAAAw")
    await one.create(again)
    await other.settle()
    assert other.get("acme") == one.get("acme") == again


async def test_a_malformed_definition_leaves_the_known_one_in_force(
    store: MetadataStore, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    one = await start()
    await one.create(ACME)
    await store.set(f"{INSTANCES}/acme", b'{"version":1,"name":"zeta","id":"x"}')
    await one.refresh()
    assert one.get("acme") == ACME
    assert "/headrace/instances/acme is malformed" in caplog.text
    with pytest.raises(InvalidConfig, match="called 'zeta'"):
        await one.change("acme", lambda each: each.altered({"bytes_in": 5}))
    late = await start()
    assert late.all() == []


async def test_missed_notices_and_lost_sessions_are_made_up_for(
    store: MetadataStore, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = await start(), await start()
    await one.create(ACME)
    await other.settle()
    monkeypatch.setattr(change_feed, "NOTIFICATIONS_KEPT_MAX", 1)
    for name in ("b", "c", "d"):
        await store.create(f"{INSTANCES}/{name}", b'{"version":1,"name":"%s","id":"i"}' % name.encode())
    other._on_new_session()
    await other.settle()
    assert [each.name for each in other.all()] == ["acme", "b", "c", "d"]


async def test_listeners_of_all_brokers_are_known_to_all(start: Start) -> None:
    one, other = await start(), await start()
    await one.create(ACME)
    await one.publish(ONE, {"acme": ("a", 1), "zeta": ("a", 2)})
    await other.publish(TWO, {"acme": ("b", 3)})
    await one.settle()
    await other.settle()
    assert one.endpoints() == other.endpoints() == {"acme": {1: ("a", 1), 2: ("b", 3)}, "zeta": {1: ("a", 2)}}
    await one.publish(ONE, {"acme": ("a", 4)})
    await other.settle()
    assert other.endpoints() == {"acme": {1: ("a", 4), 2: ("b", 3)}}
    assert other.moved == [["acme", "zeta"], ["acme"], ["acme", "zeta"]]
    await one.publish(ONE, {})
    await other.settle()
    assert other.endpoints() == {"acme": {2: ("b", 3)}}


async def test_listeners_of_a_broker_go_with_its_session(store: MetadataStore, start: Start) -> None:
    one = await start()
    await one.create(ACME)
    await one.publish(ONE, {"acme": ("a", 1)})
    assert (await store.get(f"{ENDPOINTS}/1")).ephemeral_owner
    await store.delete(f"{ENDPOINTS}/1")
    await one.settle()
    assert one.endpoints() == {}
    one._on_new_session()
    await one.settle()
    assert one.endpoints() == {"acme": {1: ("a", 1)}}


async def test_a_node_of_an_earlier_session_is_replaced(store: MetadataStore, start: Start) -> None:
    one = await start()
    await one.create(ACME)
    await store.create(f"{ENDPOINTS}/1", b'{"acme":["old",1]}')
    await one.settle()
    assert one.endpoints() == {"acme": {1: ("old", 1)}}
    await one.publish(ONE, {"acme": ("new", 2)})
    assert (await store.get(f"{ENDPOINTS}/1")).ephemeral_owner
    await one.settle()
    assert one.endpoints() == {"acme": {1: ("new", 2)}}
    await store.set(f"{ENDPOINTS}/1", b'{"acme":["still","followed"]}')
    await one.settle()
    assert one.endpoints() == {}


@pytest.mark.slow
async def test_brokers_of_other_sessions_follow(zookeeper_server: ZooKeeperServer) -> None:
    name = str(uuid4())
    first, second = [await on_zookeeper(zookeeper_server, name) for _ in range(2)]
    one, other = Following(first), Following(second)
    try:
        await one.start()
        await other.start()
        await one.create(ACME)
        await eventually_async(lambda: asyncio.sleep(0, other.all() == [ACME]), "the instance")
        await one.publish(ONE, {"acme": ("a", 1)})
        await eventually_async(lambda: asyncio.sleep(0, other.endpoints() == {"acme": {1: ("a", 1)}}), "the listener")
    finally:
        await one.close()
        await first.close()
    await eventually_async(lambda: asyncio.sleep(0, other.endpoints() == {}), "the end of the listener")
    await other.close()
    await second.close()


@pytest.mark.parametrize(
    "data",
    [b"", b"[[1,2]]", b"1", b'{"a":1}', b'{"a":["h"]}', b'{"a":["h",0]}', b'{"a":["h",true]}', b'{"a":[1,2]}', b"\xff"],
)
def test_a_malformed_table_of_listeners_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptNode):
        decode_endpoints(data)


async def test_a_change_of_listeners_is_read_once_however_many_there_were_before(
    store: MetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Following(store)
    await one.start()
    await one.create(ACME)
    reads = 0
    get_many = store.get_many

    async def counted(paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        nonlocal reads
        reads += sum(each.startswith(ENDPOINTS) for each in paths)
        return await get_many(paths, watch)

    monkeypatch.setattr(store, "get_many", counted)
    for port in range(1, 21):
        await one.publish(ONE, {"acme": ("a", port)})
        await one.settle()
    assert one.endpoints()["acme"] == {ONE: ("a", 20)}
    assert reads <= 3 * 20  # by the publishing broker, for the watch on the node, and for that on the directory
    await one.close()


async def test_a_change_right_behind_an_answer_is_not_the_last_that_is_heard(
    store: MetadataStore, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch that an answer sets fires before the one who asked goes on with the answer."""
    one, other = await start(), await start()
    await one.create(ACME)
    await one.publish(ONE, {"acme": ("a", 1)})
    await other.settle()
    get_many = store.get_many
    meanwhile = [2]

    async def overtaken(paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        nodes = await get_many(paths, watch)
        if watch is not None and meanwhile and nodes[0] is not None:
            await store.set(paths[0], encode_endpoints({"acme": ("a", meanwhile.pop())}))
            await store.exists("/")  # its answer comes after the event
        return nodes

    monkeypatch.setattr(store, "get_many", overtaken)
    await store.set(f"{ENDPOINTS}/1", encode_endpoints({"acme": ("a", 3)}))
    await one.settle()
    await other.settle()
    assert not meanwhile
    for port in (4, 5):
        await store.set(f"{ENDPOINTS}/1", encode_endpoints({"acme": ("a", port)}))
        for each in (one, other):
            await each.settle()
            assert each.endpoints() == {"acme": {1: ("a", port)}}
