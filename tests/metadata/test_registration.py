"""A registration: taken over from our own dead process, waited for when another's, made anew in each session."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest

from headrace.metadata import znodes
from headrace.metadata.model import Broker
from headrace.metadata.registration import Registration
from headrace.metadata.registry import BrokerIdInUse, ensure_cluster, next_broker_id, register_broker
from headrace.metastore.embedded import EmbeddedStore
from headrace.metastore.store import Create, MetadataStore, SessionState
from headrace.metastore.zookeeper.connection import open_store
from headrace.metastore.zookeeper.ensemble import Ensemble
from headrace.metastore.zookeeper.store import ZooKeeperStore
from tests.controller.node import BROKER
from tests.eventually import eventually_async
from tests.metastore.zookeeper_proxy import Proxy
from tests.zookeeper_server import ZooKeeperServer

OURS = BROKER._replace(directory="0sjTqGE0QfmGgaQnlg3lPg")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[MetadataStore]:
    opened = await EmbeddedStore.open(tmp_path)
    await ensure_cluster(opened)
    yield opened
    await opened.close()


@pytest.fixture
def chroot() -> str:
    return f"/test/{uuid4()}"


@pytest.fixture
async def session(zookeeper_server: ZooKeeperServer, chroot: str) -> AsyncIterator[ZooKeeperStore]:
    """A session on a real ZooKeeper that nothing disturbs."""
    opened = await open_store(Ensemble(zookeeper_server.address, chroot))
    await ensure_cluster(opened)
    yield opened
    await opened.close()


async def test_ids_that_the_cluster_hands_out_begin_above_the_reserved_ones_and_never_repeat(
    store: MetadataStore,
) -> None:
    assert await next_broker_id(store, 1000) == 1001
    assert sorted(await asyncio.gather(*(next_broker_id(store, 1000) for _ in range(5)))) == [
        1002,
        1003,
        1004,
        1005,
        1006,
    ]
    assert (await store.get(znodes.BROKER_SEQUENCE)).version == 6


async def test_what_the_same_data_directory_left_is_taken_over_with_a_new_epoch(store: MetadataStore) -> None:
    first = await register_broker(store, OURS, 5)
    second = await register_broker(store, OURS._replace(is_clean=False), 6)
    assert second.epoch > first.epoch
    node = await store.get(znodes.broker(0))
    assert node.czxid == second.epoch
    assert not znodes.decode_broker(0, node.data, node.czxid).is_clean


@pytest.mark.parametrize("left", [None, "another-directory"])
async def test_another_directorys_registration_is_not_taken_over(store: MetadataStore, left: str | None) -> None:
    await register_broker(store, BROKER._replace(directory=left), 5)
    with pytest.raises(
        BrokerIdInUse, match="broker id 0 is registered by another broker at PLAINTEXT://127.0.0.1:9092;"
    ):
        await register_broker(store, OURS, 6)


async def test_a_registration_that_is_no_json_is_anothers(store: MetadataStore) -> None:
    await store.create(znodes.broker(0), b"{", ephemeral=True)
    with pytest.raises(BrokerIdInUse, match="not JSON"):
        await register_broker(store, OURS, 6)


async def test_another_directorys_registration_is_waited_for(store: MetadataStore) -> None:
    first = await register_broker(store, BROKER, 5)
    registering = asyncio.ensure_future(register_broker(store, OURS, 6, patience_ms=60_000))
    for _ in range(10):
        await store.exists("/")
    assert not registering.done()
    await store.delete(znodes.broker(0))
    assert (await registering).epoch > first.epoch


async def test_the_controller_node_of_a_dead_broker_goes_with_its_registration(store: MetadataStore) -> None:
    await register_broker(store, OURS, 5)
    await store.multi([Create(znodes.CONTROLLER, znodes.encode_controller(0, 5), ephemeral=True)])
    await store.multi([Create(znodes.CONTROLLER_EPOCH, b"7")])
    await register_broker(store, OURS, 6)
    assert await store.exists(znodes.CONTROLLER) is None
    assert (await store.get(znodes.CONTROLLER_EPOCH)).version == 0


@pytest.mark.slow
async def test_another_brokers_controller_node_stays(
    session: ZooKeeperStore, zookeeper_server: ZooKeeperServer, chroot: str
) -> None:
    dead = await open_store(Ensemble(zookeeper_server.address, chroot))
    await register_broker(dead, OURS, 5)
    await session.multi([Create(znodes.CONTROLLER, znodes.encode_controller(1, 5), ephemeral=True)])
    await session.multi([Create(znodes.CONTROLLER_EPOCH, b"7")])
    await register_broker(session, OURS, 6)
    assert await session.exists(znodes.CONTROLLER) is not None
    await dead.close()
    assert await session.exists(znodes.broker(0)) is not None, "the old session took the new registration with it"


@pytest.mark.slow
async def test_a_live_broker_whose_session_ends_is_registered_anew(
    session: ZooKeeperStore, zookeeper_server: ZooKeeperServer, chroot: str
) -> None:
    proxy = await Proxy.start(zookeeper_server.port)
    store = await open_store(Ensemble(proxy.address, chroot, session_timeout_ms=1000))
    states: list[SessionState] = []
    store.on_session(states.append)
    told: list[Broker] = []
    registration = Registration(store, OURS, lambda: 5, patience_ms=3000)
    registration.on_change(told.append)
    first = await registration.start()
    assert told == [first]
    for turn in range(2):
        gone: list[object] = []
        await session.get(znodes.broker(0), gone.append)
        proxy.refuse()
        await eventually_async(lambda gone=gone: gone, "the registration to go")
        proxy.accept()
        await eventually_async(lambda turn=turn: len(told) == turn + 2, "the next registration")
    assert [each.epoch for each in told] == sorted({each.epoch for each in told})
    assert (await session.get(znodes.broker(0))).czxid == registration.broker.epoch == registration.epoch()
    await registration.close()
    await store.close()
    await proxy.close()


@pytest.mark.slow
async def test_two_brokers_on_one_id_are_both_told_and_the_second_begins_when_the_first_ends(
    session: ZooKeeperStore, zookeeper_server: ZooKeeperServer, chroot: str
) -> None:
    first = await open_store(Ensemble(zookeeper_server.address, chroot))
    await register_broker(first, BROKER, 5)
    with pytest.raises(BrokerIdInUse):
        await register_broker(session, OURS, 6, patience_ms=100)
    second = asyncio.ensure_future(register_broker(session, OURS, 6, patience_ms=60_000))
    await session.get("/")
    await first.close()
    assert (await second).directory == OURS.directory
