"""Producer ids never repeat, whoever asks, however often brokers restart."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headrace.coordination import paths
from headrace.coordination.embedded import EmbeddedTree
from headrace.coordination.producer_ids import ProducerIds
from headrace.coordination.registry import BrokerIdInUse, ensure_cluster, register_broker
from headrace.coordination.tree import Tree
from headrace.errors import KafkaError
from headrace.types import BrokerId
from tests.coordination.node import BROKER


@pytest.fixture
async def tree(tmp_path: Path) -> AsyncIterator[Tree]:
    opened = await EmbeddedTree.open(tmp_path)
    await ensure_cluster(opened)
    yield opened
    await opened.close()


async def test_two_brokers_never_hand_out_the_same_id(tree: Tree) -> None:
    brokers = [ProducerIds(tree, BrokerId(number)) for number in (0, 1)]
    handed = await asyncio.gather(*(brokers[number % 2].next() for number in range(4500)))
    assert len(set(handed)) == 4500
    assert min(handed) == 0


async def test_a_restarted_broker_takes_a_new_block(tree: Tree) -> None:
    assert [await ProducerIds(tree, BrokerId(0)).next() for _ in range(3)] == [0, 1000, 2000]
    block = paths.decode_producer_ids((await tree.get(paths.PRODUCER_ID_BLOCK)).data)
    assert block == paths.ProducerIdBlock(BrokerId(0), 2000, 2999)


async def test_the_last_block_is_the_last(tree: Tree) -> None:
    last = paths.ProducerIdBlock(BrokerId(0), 2**63 - 2000, 2**63 - 1001)
    await tree.set(paths.PRODUCER_ID_BLOCK, paths.encode_producer_ids(last))
    ids = ProducerIds(tree, BrokerId(0))
    assert await ids.next() == 2**63 - 1000
    for _ in range(999):
        await ids.next()
    with pytest.raises(KafkaError):
        await ids.next()


async def test_the_layout_is_made_once_and_has_every_node_of_kafkas(tree: Tree) -> None:
    await ensure_cluster(tree)
    assert None not in await tree.get_many(paths.PERSISTENT)
    assert (await tree.get(paths.FEATURE)).data == paths.encode_feature()
    assert (await tree.get(paths.TOPICS)).version == 0


async def test_the_cluster_id_is_chosen_once(tree: Tree) -> None:
    first = await ensure_cluster(tree)
    assert await ensure_cluster(tree, "another") == first
    assert len(first) == 22


async def test_a_new_cluster_takes_the_id_that_is_proposed(tmp_path: Path) -> None:
    tree = await EmbeddedTree.open(tmp_path)
    assert await ensure_cluster(tree, "0sjTqGE0QfmGgaQnlg3lPg") == "0sjTqGE0QfmGgaQnlg3lPg"
    assert await ensure_cluster(tree) == "0sjTqGE0QfmGgaQnlg3lPg"
    await tree.close()


async def test_a_broker_id_is_registered_once_and_its_epoch_grows(tree: Tree) -> None:
    first = await register_broker(tree, BROKER, 5)
    with pytest.raises(BrokerIdInUse):
        await register_broker(tree, BROKER, 6)
    await tree.delete(paths.broker(0))
    second = await register_broker(tree, BROKER, 7)
    assert first.epoch < second.epoch
