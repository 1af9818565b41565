"""Producer ids never repeat, whoever asks, however often brokers restart."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headrace.errors import KafkaError
from headrace.metadata import znodes
from headrace.metadata.producer_ids import ProducerIds
from headrace.metadata.registry import BrokerIdInUse, ensure_cluster, register_broker
from headrace.metastore.embedded import EmbeddedStore
from headrace.metastore.store import MetadataStore
from headrace.types import BrokerId
from tests.controller.node import BROKER


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[MetadataStore]:
    opened = await EmbeddedStore.open(tmp_path)
    await ensure_cluster(opened)
    yield opened
    await opened.close()


async def test_two_brokers_never_hand_out_the_same_id(store: MetadataStore) -> None:
    brokers = [ProducerIds(store, BrokerId(number)) for number in (0, 1)]
    handed = await asyncio.gather(*(brokers[number % 2].next() for number in range(4500)))
    assert len(set(handed)) == 4500
    assert min(handed) == 0


async def test_a_restarted_broker_takes_a_new_block(store: MetadataStore) -> None:
    assert [await ProducerIds(store, BrokerId(0)).next() for _ in range(3)] == [0, 1000, 2000]
    block = znodes.decode_producer_ids((await store.get(znodes.PRODUCER_ID_BLOCK)).data)
    assert block == znodes.ProducerIdBlock(BrokerId(0), 2000, 2999)


async def test_the_last_block_is_the_last(store: MetadataStore) -> None:
    last = znodes.ProducerIdBlock(BrokerId(0), 2**63 - 2000, 2**63 - 1001)
    await store.set(znodes.PRODUCER_ID_BLOCK, znodes.encode_producer_ids(last))
    ids = ProducerIds(store, BrokerId(0))
    assert await ids.next() == 2**63 - 1000
    for _ in range(999):
        await ids.next()
    with pytest.raises(KafkaError):
        await ids.next()


async def test_the_layout_is_made_once_and_has_every_node_of_kafkas(store: MetadataStore) -> None:
    await ensure_cluster(store)
    assert None not in await store.get_many(znodes.PERSISTENT)
    assert (await store.get(znodes.FEATURE)).data == znodes.encode_feature()
    assert (await store.get(znodes.TOPICS)).version == 0


async def test_the_cluster_id_is_chosen_once(store: MetadataStore) -> None:
    first = await ensure_cluster(store)
    assert await ensure_cluster(store, "another") == first
    assert len(first) == 22


async def test_a_new_cluster_takes_the_id_that_is_proposed(tmp_path: Path) -> None:
    store = await EmbeddedStore.open(tmp_path)
    assert await ensure_cluster(store, "0sjTqGE0QfmGgaQnlg3lPg") == "0sjTqGE0QfmGgaQnlg3lPg"
    assert await ensure_cluster(store) == "0sjTqGE0QfmGgaQnlg3lPg"
    await store.close()


async def test_a_broker_id_is_registered_once_and_its_epoch_grows(store: MetadataStore) -> None:
    first = await register_broker(store, BROKER, 5)
    with pytest.raises(BrokerIdInUse):
        await register_broker(store, BROKER, 6)
    await store.delete(znodes.broker(0))
    second = await register_broker(store, BROKER, 7)
    assert first.epoch < second.epoch
