"""A registration: taken over from our own dead process, waited for when another's, made anew in each session."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from uuid import uuid4

import pytest

from headrace.coordination import paths
from headrace.coordination.embedded import EmbeddedTree
from headrace.coordination.model import Broker
from headrace.coordination.registration import Registration
from headrace.coordination.registry import BrokerIdInUse, ensure_cluster, next_broker_id, register_broker
from headrace.coordination.tree import Create, SessionState, Tree
from headrace.coordination.zookeeper import Ensemble, open_tree
from headrace.coordination.zookeeper_tree import ZooKeeperTree
from tests.coordination.node import BROKER
from tests.coordination.zookeeper_proxy import Proxy
from tests.zookeeper_server import ZooKeeperServer

WAIT_SECONDS = 60
OURS = BROKER._replace(directory="0sjTqGE0QfmGgaQnlg3lPg")


@pytest.fixture
async def tree(tmp_path: Path) -> AsyncIterator[Tree]:
    opened = await EmbeddedTree.open(tmp_path)
    await ensure_cluster(opened)
    yield opened
    await opened.close()


@pytest.fixture
def chroot() -> str:
    return f"/test/{uuid4()}"


@pytest.fixture
async def session(zookeeper_server: ZooKeeperServer, chroot: str) -> AsyncIterator[ZooKeeperTree]:
    """A session on a real ZooKeeper that nothing disturbs."""
    opened = await open_tree(Ensemble(zookeeper_server.address, chroot))
    await ensure_cluster(opened)
    yield opened
    await opened.close()


async def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited {WAIT_SECONDS} s for {what}"
        await asyncio.sleep(0.01)


async def test_ids_that_the_cluster_hands_out_begin_above_the_reserved_ones_and_never_repeat(tree: Tree) -> None:
    assert await next_broker_id(tree, 1000) == 1001
    assert sorted(await asyncio.gather(*(next_broker_id(tree, 1000) for _ in range(5)))) == [
        1002,
        1003,
        1004,
        1005,
        1006,
    ]
    assert (await tree.get(paths.BROKER_SEQUENCE)).version == 6


async def test_what_the_same_data_directory_left_is_taken_over_with_a_new_epoch(tree: Tree) -> None:
    first = await register_broker(tree, OURS, 5)
    second = await register_broker(tree, OURS._replace(is_clean=False), 6)
    assert second.epoch > first.epoch
    node = await tree.get(paths.broker(0))
    assert node.czxid == second.epoch
    assert not paths.decode_broker(0, node.data, node.czxid).is_clean


@pytest.mark.parametrize("left", [None, "another-directory"])
async def test_another_directorys_registration_is_not_taken_over(tree: Tree, left: str | None) -> None:
    await register_broker(tree, BROKER._replace(directory=left), 5)
    with pytest.raises(BrokerIdInUse, match="broker id 0 is registered by another broker: PLAINTEXT://127.0.0.1:9092"):
        await register_broker(tree, OURS, 6)


async def test_a_registration_that_is_no_json_is_anothers(tree: Tree) -> None:
    await tree.create(paths.broker(0), b"{", ephemeral=True)
    with pytest.raises(BrokerIdInUse, match="not JSON"):
        await register_broker(tree, OURS, 6)


async def test_another_directorys_registration_is_waited_for(tree: Tree) -> None:
    first = await register_broker(tree, BROKER, 5)
    registering = asyncio.ensure_future(register_broker(tree, OURS, 6, patience_ms=60_000))
    for _ in range(10):
        await tree.exists("/")
    assert not registering.done()
    await tree.delete(paths.broker(0))
    assert (await registering).epoch > first.epoch


async def test_the_office_of_a_dead_controller_goes_with_its_registration(tree: Tree) -> None:
    await register_broker(tree, OURS, 5)
    await tree.multi([Create(paths.CONTROLLER, paths.encode_controller(0, 5), ephemeral=True)])
    await tree.multi([Create(paths.CONTROLLER_EPOCH, b"7")])
    await register_broker(tree, OURS, 6)
    assert await tree.exists(paths.CONTROLLER) is None
    assert (await tree.get(paths.CONTROLLER_EPOCH)).version == 0


@pytest.mark.slow
async def test_another_brokers_office_stays(
    session: ZooKeeperTree, zookeeper_server: ZooKeeperServer, chroot: str
) -> None:
    dead = await open_tree(Ensemble(zookeeper_server.address, chroot))
    await register_broker(dead, OURS, 5)
    await session.multi([Create(paths.CONTROLLER, paths.encode_controller(1, 5), ephemeral=True)])
    await session.multi([Create(paths.CONTROLLER_EPOCH, b"7")])
    await register_broker(session, OURS, 6)
    assert await session.exists(paths.CONTROLLER) is not None
    await dead.close()
    assert await session.exists(paths.broker(0)) is not None, "the old session took the new registration with it"


@pytest.mark.slow
async def test_a_live_broker_whose_session_ends_is_registered_anew(
    session: ZooKeeperTree, zookeeper_server: ZooKeeperServer, chroot: str
) -> None:
    proxy = await Proxy.start(zookeeper_server.port)
    tree = await open_tree(Ensemble(proxy.address, chroot, session_timeout_ms=1000))
    states: list[SessionState] = []
    tree.on_session(states.append)
    told: list[Broker] = []
    registration = Registration(tree, OURS, lambda: 5, patience_ms=3000)
    registration.on_change(told.append)
    first = await registration.start()
    assert told == [first]
    for turn in range(2):
        gone: list[object] = []
        await session.get(paths.broker(0), gone.append)
        proxy.refuse()
        await until(lambda gone=gone: gone, "the registration to go")  # type: ignore[misc]
        proxy.accept()
        await until(lambda turn=turn: len(told) == turn + 2, "the next registration")  # type: ignore[misc]
    assert [each.epoch for each in told] == sorted({each.epoch for each in told})
    assert (await session.get(paths.broker(0))).czxid == registration.broker.epoch
    await registration.close()
    await tree.close()
    await proxy.close()


@pytest.mark.slow
async def test_two_brokers_on_one_id_are_both_told_and_the_second_begins_when_the_first_ends(
    session: ZooKeeperTree, zookeeper_server: ZooKeeperServer, chroot: str
) -> None:
    first = await open_tree(Ensemble(zookeeper_server.address, chroot))
    await register_broker(first, BROKER, 5)
    with pytest.raises(BrokerIdInUse):
        await register_broker(session, OURS, 6, patience_ms=100)
    second = asyncio.ensure_future(register_broker(session, OURS, 6, patience_ms=60_000))
    await session.get("/")
    await first.close()
    assert (await second).directory == OURS.directory
