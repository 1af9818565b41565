"""The first append of a transaction to a partition: added or verified at the transaction's coordinator."""

import asyncio
from pathlib import Path

import pytest

from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.topics import TRANSACTIONS_TOPIC
from tests.broker.replica_nodes import Nodes, turns
from tests.broker.transactions_at import OLD_PRODUCE, V1_PRODUCE, V2_PRODUCE, producer_at
from tests.eventually import eventually_async

HERE_OR_ELSEWHERE = pytest.mark.parametrize("coordinator", [1, 2], ids=["own coordinator", "other coordinator"])


@HERE_OR_ELSEWHERE
async def test_a_produce_of_version_12_adds_its_partitions(tmp_path: Path, coordinator: int) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        for topic in ("t", "u"):
            await nodes.lead(topic, leader=1, replicas=(1,))
        producer = await producer_at(nodes[coordinator])
        assert await producer.produce(nodes[1], "t", "u") == {"t": ErrorCode.NONE, "u": ErrorCode.NONE}
        assert await producer.produce(nodes[1], "t", sequence=1) == {"t": ErrorCode.NONE}
        assert nodes[1].partition("t").last_stable_offset == 0
        assert await producer.end() is ErrorCode.NONE
        await eventually_async(lambda: nodes[1].partition("t").last_stable_offset == 3)
        await eventually_async(lambda: nodes[1].partition("u").last_stable_offset == 2)


@HERE_OR_ELSEWHERE
@pytest.mark.parametrize("version", [V1_PRODUCE, OLD_PRODUCE])
async def test_a_produce_of_an_older_version_is_verified(tmp_path: Path, coordinator: int, version: int) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        await nodes.lead("t", leader=1, replicas=(1,))
        await nodes.lead("not added", leader=1, replicas=(1,))
        producer = await producer_at(nodes[coordinator])
        assert await producer.add("t") is ErrorCode.NONE
        answers = await producer.produce(nodes[1], "t", "not added", version=version)
        abortable = ErrorCode.TRANSACTION_ABORTABLE if version == V1_PRODUCE else ErrorCode.INVALID_TXN_STATE
        assert answers == {"t": ErrorCode.NONE, "not added": abortable}
        assert nodes[1].partition("not added").log.log_end_offset == 0


async def test_verification_can_be_switched_off_for_older_clients(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 1, transaction_partition_verification_enable="false") as nodes:
        await nodes.lead("t", leader=1, replicas=(1,))
        producer = await producer_at(nodes[1])
        assert await producer.produce(nodes[1], "t", version=V1_PRODUCE) == {"t": ErrorCode.NONE}


@HERE_OR_ELSEWHERE
@pytest.mark.parametrize("version", [V1_PRODUCE, V2_PRODUCE])
async def test_a_fenced_producer_is_told_that_its_epoch_is_old(tmp_path: Path, coordinator: int, version: int) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        await nodes.lead("t", leader=1, replicas=(1,))
        zombie = await producer_at(nodes[coordinator])
        await producer_at(nodes[coordinator], leads=False)
        assert await zombie.produce(nodes[1], "t", version=version) == {"t": ErrorCode.INVALID_PRODUCER_EPOCH}
        assert nodes[1].partition("t").log.log_end_offset == 0


async def test_without_a_coordinator_the_producer_tries_again(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        await nodes.lead("t", leader=1, replicas=(1,))
        producer = await producer_at(nodes[2])
        nodes.cuts = {(1, 2)}
        assert await producer.produce(nodes[1], "t") == {"t": ErrorCode.NOT_ENOUGH_REPLICAS}
        nodes.cuts = set()
        await nodes.delete(TRANSACTIONS_TOPIC)
        assert await producer.produce(nodes[1], "t") == {"t": ErrorCode.NOT_ENOUGH_REPLICAS}
        assert nodes[1].partition("t").log.log_end_offset == 0


async def test_a_marker_between_verification_and_append_refuses_the_batch(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        await nodes.lead("t", leader=1, replicas=(1,))
        producer = await producer_at(nodes[2])
        assert await producer.add("t") is ErrorCode.NONE
        held = nodes.hold(m.AddPartitionsToTxnRequest)
        late = asyncio.ensure_future(producer.produce(nodes[1], "t", version=V1_PRODUCE))
        await eventually_async(lambda: len(nodes.held) == 1)
        marker = m.WriteTxnMarkersRequest.WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            transaction_result=False,
            topics=[m.WriteTxnMarkersRequest.WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
            coordinator_epoch=0,
        )
        await nodes[1].ask(m.WriteTxnMarkersRequest(markers=[marker]), m.WriteTxnMarkersResponse)
        held.set()
        assert await late == {"t": ErrorCode.INVALID_TXN_STATE}
        assert nodes[1].partition("t").last_stable_offset == 1


async def test_the_connections_later_requests_wait_for_the_verification(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        await nodes.lead("t", leader=1, replicas=(1,))
        producer = await producer_at(nodes[2])
        held = nodes.hold(m.AddPartitionsToTxnRequest)
        connection = nodes[1].connection()
        first = asyncio.ensure_future(producer.produce(connection, "t"))
        await eventually_async(lambda: len(nodes.held) == 1)
        second = asyncio.ensure_future(producer.produce(connection, "t", sequence=1))
        await turns(5)
        assert nodes[1].partition("t").log.log_end_offset == 0
        held.set()
        assert (await first, await second) == ({"t": ErrorCode.NONE}, {"t": ErrorCode.NONE})


async def test_questions_to_one_coordinator_share_a_request(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        await nodes.lead("t", leader=1, replicas=(1,))
        producers = [await producer_at(nodes[2], f"x{number}", leads=not number) for number in range(4)]
        held = nodes.hold(m.AddPartitionsToTxnRequest)
        producing = [asyncio.ensure_future(producers[0].produce(nodes[1], "t"))]
        await eventually_async(lambda: len(nodes.held) == 1)
        producing += [asyncio.ensure_future(each.produce(nodes[1], "t")) for each in producers[1:]]
        await turns(3)
        held.set()
        assert await asyncio.gather(*producing) == [{"t": ErrorCode.NONE}] * 4
        asked = [each for each in nodes[1].peers.asked if isinstance(each, m.AddPartitionsToTxnRequest)]
        assert [len(each.transactions) for each in asked] == [1, 3]


async def test_a_transactional_batch_needs_a_transactional_id(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 1) as nodes:
        await nodes.lead("t", leader=1, replicas=(1,))
        producer = await producer_at(nodes[1])
        answer = await producer.produce(nodes[1], "t", has_id=False)
        assert answer == {"t": ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}


async def test_a_batch_outside_the_open_transaction_is_refused(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 1) as nodes:
        await nodes.lead("t", leader=1, replicas=(1,))
        producer = await producer_at(nodes[1])
        assert await producer.produce(nodes[1], "t") == {"t": ErrorCode.NONE}
        answer = await producer.produce(nodes[1], "t", sequence=1, is_transactional=False, has_id=False)
        assert answer == {"t": ErrorCode.INVALID_TXN_STATE}


async def test_the_next_transaction_waits_for_the_markers_of_the_last_one(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        await nodes.lead("t", leader=1, replicas=(1,))
        await nodes.lead("slow", leader=1, replicas=(1, 2))
        producer = await producer_at(nodes[1])
        assert await producer.produce(nodes[1], "slow") == {"slow": ErrorCode.NONE}
        nodes.cuts = {(2, 1), (1, 2)}
        assert await producer.end() is ErrorCode.NONE
        assert await producer.produce(nodes[1], "t") == {"t": ErrorCode.CONCURRENT_TRANSACTIONS}
        again = asyncio.ensure_future(producer.produce(nodes[1], "t"))
        await turns(2)
        nodes.cuts = set()
        assert await again in ({"t": ErrorCode.NONE}, {"t": ErrorCode.CONCURRENT_TRANSACTIONS})
        await eventually_async(lambda: nodes[1].partition("slow").last_stable_offset == 2)
        assert await producer.produce(nodes[1], "t") == {"t": ErrorCode.NONE}


async def test_producers_are_described_with_their_open_transaction(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 1) as nodes:
        await nodes.lead("t", leader=1, replicas=(1,))
        producer = await producer_at(nodes[1])
        assert await producer.produce(nodes[1], "t") == {"t": ErrorCode.NONE}
        topics = [
            m.DescribeProducersRequest.TopicRequest(name=each, partition_indexes=[0]) for each in ("t", "nowhere", "&")
        ]
        answer = await nodes[1].ask(m.DescribeProducersRequest(topics=topics), m.DescribeProducersResponse)
        found, unknown, invalid = (each.partitions[0] for each in answer.topics)
        (state,) = found.active_producers
        assert (state.producer_id, state.producer_epoch) == (producer.producer_id, producer.epoch)
        assert (state.last_sequence, state.coordinator_epoch, state.current_txn_start_offset) == (0, -1, 0)
        assert ErrorCode(unknown.error_code) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert ErrorCode(invalid.error_code) is ErrorCode.INVALID_TOPIC_EXCEPTION
        assert unknown.error_message
        assert await producer.end() is ErrorCode.NONE
        await eventually_async(lambda: nodes[1].partition("t").last_stable_offset == 2)
        answer = await nodes[1].ask(m.DescribeProducersRequest(topics=topics[:1]), m.DescribeProducersResponse)
        (state,) = answer.topics[0].partitions[0].active_producers
        assert (state.current_txn_start_offset, state.coordinator_epoch) == (-1, 0)
        assert state.last_timestamp == nodes.now_ms
