"""TxnOffsetCommit: pending until the marker, dropped with an abort, over failovers and deletions."""

import asyncio
from pathlib import Path

import pytest

from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.topics import OFFSETS_TOPIC
from headrace.types import TopicPartition
from tests.broker.replica_nodes import Node, Nodes, turns
from tests.broker.transactions_at import TransactionalProducer, producer_at
from tests.eventually import eventually_async

T0 = TopicPartition("t", 0)


async def commit(
    producer: TransactionalProducer,
    node: Node,
    offset: int,
    *,
    group: str = "g",
    topic: str = "t",
    member: str = "",
    generation: int = -1,
    instance: str | None = None,
    version: int = 5,
    metadata: str = "",
) -> ErrorCode:
    """TxnOffsetCommit of partition 0 of a topic."""
    partition = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=metadata
    )
    request = m.TxnOffsetCommitRequest(
        transactional_id=producer.name,
        group_id=group,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        generation_id=generation,
        member_id=member,
        group_instance_id=instance,
        topics=[m.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )
    answer = await node.ask(request, m.TxnOffsetCommitResponse, version=version)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


def fetched(node: Node, *, stable: bool = False, group: str = "g") -> tuple[ErrorCode, int]:
    """OffsetFetch of t-0."""
    error, (found,) = node.groups.fetch_offsets(group, [T0], require_stable=stable)
    assert error is ErrorCode.NONE
    return found.error, found.offset


async def ready(nodes: Nodes, *, replicas: tuple[int, ...] = (1,)) -> TransactionalProducer:
    """Node 1 leads t, the offsets and the transactions; a producer is initialised."""
    await nodes.lead("t", leader=1, replicas=(1,))
    await nodes.lead(OFFSETS_TOPIC, leader=1, replicas=replicas)
    await eventually_async(lambda: nodes[1].groups.availability(0) is ErrorCode.NONE)
    return await producer_at(nodes[1])


@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
async def test_offsets_are_pending_until_the_end_of_the_transaction(tmp_path: Path, is_commit: bool) -> None:
    async with Nodes(tmp_path, 1) as nodes:
        producer = await ready(nodes)
        assert await commit(producer, nodes[1], 5) is ErrorCode.NONE
        assert fetched(nodes[1]) == (ErrorCode.NONE, -1)
        assert fetched(nodes[1], stable=True) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
        assert await producer.end(is_commit=is_commit) is ErrorCode.NONE
        await eventually_async(lambda: fetched(nodes[1], stable=True)[0] is ErrorCode.NONE)
        assert fetched(nodes[1]) == (ErrorCode.NONE, 5 if is_commit else -1)


@pytest.mark.parametrize("transaction_version", [0, 2])
async def test_a_marker_of_an_older_epoch_does_not_end_the_transaction(
    tmp_path: Path, transaction_version: int
) -> None:
    """Nor does a late one of transaction.version 2, which has the epoch of the transaction after its own."""
    async with Nodes(tmp_path, 1) as nodes:
        producer = await ready(nodes)
        assert await commit(producer, nodes[1], 4) is ErrorCode.NONE
        assert await producer.end() is ErrorCode.NONE
        await eventually_async(lambda: fetched(nodes[1], stable=True) == (ErrorCode.NONE, 4))
        assert await commit(producer, nodes[1], 5) is ErrorCode.NONE
        late = producer.epoch if transaction_version == 2 else producer.epoch - 1
        marker = m.WriteTxnMarkersRequest.WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=late,
            transaction_result=True,
            topics=[m.WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=OFFSETS_TOPIC, partition_indexes=[0])],
            transaction_version=transaction_version,
        )
        answer = await nodes[1].ask(m.WriteTxnMarkersRequest(markers=[marker]), m.WriteTxnMarkersResponse)
        assert answer.markers[0].topics[0].partitions[0].error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert fetched(nodes[1], stable=True) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
        assert await producer.end(is_commit=False) is ErrorCode.NONE
        await eventually_async(lambda: fetched(nodes[1], stable=True) == (ErrorCode.NONE, 4))


async def test_a_plain_commit_that_is_being_written_is_not_unstable(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        await ready(nodes, replicas=(1, 2))
        nodes.cuts = {(1, 2), (2, 1)}
        partition = m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
        topic = m.OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition])
        request = m.OffsetCommitRequest(group_id="g", topics=[topic])
        committing = asyncio.ensure_future(nodes[1].ask(request, m.OffsetCommitResponse, version=8))
        await turns(3)
        assert not committing.done()
        assert fetched(nodes[1], stable=True) == (ErrorCode.NONE, -1)
        nodes.cuts = set()
        await committing


async def test_the_latest_commit_of_a_transaction_counts(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 1) as nodes:
        producer = await ready(nodes)
        assert await commit(producer, nodes[1], 5) is ErrorCode.NONE
        assert await commit(producer, nodes[1], 7) is ErrorCode.NONE
        assert await producer.end() is ErrorCode.NONE
        await eventually_async(lambda: fetched(nodes[1]) == (ErrorCode.NONE, 7))


async def test_a_failed_write_leaves_the_earlier_commit_of_the_transaction(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2, min_insync_replicas="2") as nodes:
        producer = TransactionalProducer(nodes[1])
        await nodes.lead("t", leader=1, replicas=(1,))
        await nodes.lead(OFFSETS_TOPIC, leader=1, replicas=(1, 2))
        await nodes.lead("__transaction_state", leader=1, replicas=(1, 2))
        await eventually_async(lambda: nodes[1].groups.availability(0) is ErrorCode.NONE)
        await producer.init()
        assert await commit(producer, nodes[1], 5) is ErrorCode.NONE
        await nodes.lead(OFFSETS_TOPIC, leader=1, isr=(1,))
        assert await commit(producer, nodes[1], 7) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        await nodes.lead(OFFSETS_TOPIC, leader=1, isr=(1, 2))
        assert await producer.end() is ErrorCode.NONE
        await eventually_async(lambda: fetched(nodes[1]) == (ErrorCode.NONE, 5))


async def test_offsets_survive_a_failover_of_the_group_coordinator_and_wait_for_the_marker(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        producer = await ready(nodes, replicas=(1, 2))
        assert await commit(producer, nodes[1], 5) is ErrorCode.NONE
        await nodes.lead(OFFSETS_TOPIC, leader=2)
        await eventually_async(lambda: nodes[2].groups.availability(0) is ErrorCode.NONE)
        assert fetched(nodes[2], stable=True) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
        assert await producer.end() is ErrorCode.NONE
        await eventually_async(lambda: fetched(nodes[2], stable=True) == (ErrorCode.NONE, 5))


@pytest.mark.parametrize("version", [0, 3, 4])
async def test_an_older_client_adds_the_group_first(tmp_path: Path, version: int) -> None:
    async with Nodes(tmp_path, 1) as nodes:
        producer = await ready(nodes)
        refused = ErrorCode.TRANSACTION_ABORTABLE if version >= 4 else ErrorCode.INVALID_TXN_STATE
        assert await commit(producer, nodes[1], 5, version=version) is refused
        added = await nodes[1].ask(
            m.AddOffsetsToTxnRequest(
                transactional_id=producer.name,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                group_id="g",
            ),
            m.AddOffsetsToTxnResponse,
            version=3,
        )
        assert ErrorCode(added.error_code) is ErrorCode.NONE
        assert await commit(producer, nodes[1], 5, version=version) is ErrorCode.NONE
        assert await producer.end(version=3) is ErrorCode.NONE
        await eventually_async(lambda: fetched(nodes[1]) == (ErrorCode.NONE, 5))


async def test_wrong_groups_members_and_topics_are_refused(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 1) as nodes:
        producer = await ready(nodes)
        node = nodes[1]
        assert await commit(producer, node, 1, topic="nowhere") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await commit(producer, node, 1, group="") is ErrorCode.INVALID_GROUP_ID
        assert await commit(producer, node, 1, generation=1, member="who") is ErrorCode.ILLEGAL_GENERATION
        assert await commit(producer, node, 1, metadata="x" * 5000) is ErrorCode.OFFSET_METADATA_TOO_LARGE
        joined = await join(node)
        assert await commit(producer, node, 1, generation=1, member="who") is ErrorCode.UNKNOWN_MEMBER_ID
        assert await commit(producer, node, 1, generation=7, member=joined) is ErrorCode.ILLEGAL_GENERATION
        fenced = await commit(producer, node, 1, generation=1, member="who", instance="i")
        assert fenced is ErrorCode.FENCED_INSTANCE_ID
        assert await commit(producer, node, 1, generation=1, member=joined, instance="i") is ErrorCode.NONE
        assert await commit(producer, node, 2) is ErrorCode.NONE  # without a member, as clients before version 3


async def join(node: Node) -> str:
    """A static member joins the group g alone; its member id."""
    protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    request = m.JoinGroupRequest(
        group_id="g",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=1_000,
        group_instance_id="i",
        protocol_type="consumer",
        protocols=[protocol],
    )
    answer = await node.ask(request, m.JoinGroupResponse, version=5)
    assert ErrorCode(answer.error_code) is ErrorCode.NONE
    return answer.member_id


async def test_a_group_that_no_broker_serves_yet_is_told_so(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        producer = await ready(nodes)
        assert await commit(producer, nodes[2], 5) is ErrorCode.NOT_COORDINATOR


async def test_a_fenced_producer_commits_no_offsets(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 1) as nodes:
        zombie = await ready(nodes)
        await producer_at(nodes[1], leads=False)
        assert await commit(zombie, nodes[1], 5) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert nodes[1].partition(OFFSETS_TOPIC).log.log_end_offset == 0


async def test_deleted_offsets_of_an_open_transaction_do_not_come_back(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        producer = await ready(nodes, replicas=(1, 2))
        assert await commit(producer, nodes[1], 5) is ErrorCode.NONE
        assert nodes[1].groups.delete_group("g") is ErrorCode.NONE
        end = nodes[1].partition(OFFSETS_TOPIC).log.log_end_offset
        assert end == 2  # the commit, and its tombstone
        await eventually_async(lambda: nodes[2].partition(OFFSETS_TOPIC).log.log_end_offset == 2)
        await nodes.lead(OFFSETS_TOPIC, leader=2)
        await eventually_async(lambda: nodes[2].groups.availability(0) is ErrorCode.NONE)
        assert fetched(nodes[2], stable=True) == (ErrorCode.NONE, -1)
        assert await producer.end() is ErrorCode.NONE
        await eventually_async(lambda: nodes[2].partition(OFFSETS_TOPIC).log.log_end_offset == 3)
        await turns(3)
        assert fetched(nodes[2]) == (ErrorCode.NONE, -1)


async def test_offsets_of_an_open_transaction_keep_the_group_and_do_not_expire(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 1, offsets_retention_minutes="1") as nodes:
        producer = await ready(nodes)
        assert await commit(producer, nodes[1], 5) is ErrorCode.NONE
        nodes.now_ms += 30 * 60_000
        nodes[1].groups.runtime.run(nodes[1].groups._coordinator.tick(nodes.now_ms))
        assert fetched(nodes[1], stable=True) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
        assert len(nodes[1].groups.overview()[1]) == 1
