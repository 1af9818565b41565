"""A group's offsets outlive its coordinator: whoever leads `__consumer_offsets` next reads them before it answers."""

import asyncio
from pathlib import Path

from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.topics import OFFSETS_TOPIC
from tests.broker.replica_nodes import Node, Nodes, topic_id
from tests.eventually import eventually_async
from tests.simulation.virtual_time import in_virtual_time


async def commit(node: Node, offset: int) -> ErrorCode:
    partition = m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = m.OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition])
    request = m.OffsetCommitRequest(group_id="g", topics=[topic])
    answer = await node.ask(request, m.OffsetCommitResponse, version=8)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


async def committed(node: Node) -> tuple[ErrorCode, int]:
    topic = m.OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
    answer = await node.ask(m.OffsetFetchRequest(group_id="g", topics=[topic]), m.OffsetFetchResponse, version=7)
    if answer.error_code:
        return ErrorCode(answer.error_code), -1
    return ErrorCode.NONE, answer.topics[0].partitions[0].committed_offset


async def settled(node: Node) -> int:
    """What the coordinator says once it has loaded."""
    for _ in range(10_000):
        code, offset = await committed(node)
        if code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            assert code is ErrorCode.NONE
            return offset
        await asyncio.sleep(0)
    raise AssertionError("it never finished loading")


@in_virtual_time
async def test_offsets_are_there_at_the_next_coordinator_and_never_older(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 3) as nodes:
        await nodes.lead("t", leader=1, replicas=(1, 2, 3))
        await nodes.lead(OFFSETS_TOPIC, leader=1, replicas=(1, 2, 3))
        last = 0
        for turn in range(6):
            coordinator = nodes[turn % 3 + 1]
            await nodes.lead(OFFSETS_TOPIC, leader=coordinator.id)
            assert await settled(coordinator) == (last or -1)
            for _ in range(3):
                last += 1
                assert await commit(coordinator, last) is ErrorCode.NONE
            assert await settled(coordinator) == last
            for node in nodes.up.values():
                if node is not coordinator:
                    assert await committed(node) == (ErrorCode.NOT_COORDINATOR, -1)
                    assert await commit(node, 99) is ErrorCode.NOT_COORDINATOR


@in_virtual_time
async def test_a_commit_is_answered_when_the_replicas_have_it(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2, offsets_commit_timeout_ms="100") as nodes:
        await nodes.lead("t", leader=1, replicas=(1, 2))
        await nodes.lead(OFFSETS_TOPIC, leader=1, replicas=(1, 2))
        assert await settled(nodes[1]) == -1
        assert await commit(nodes[1], 5) is ErrorCode.NONE
        assert nodes[2].partition(OFFSETS_TOPIC).log.log_end_offset == 1
        nodes.cuts = {(1, 2), (2, 1)}
        assert await commit(nodes[1], 6) not in (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR)
        assert await settled(nodes[1]) == 5
        nodes.crash(1)
        await nodes.lead(OFFSETS_TOPIC, leader=2, isr=(2,))
        assert await settled(nodes[2]) == 5


@in_virtual_time
async def test_a_coordinator_that_comes_back_reads_what_the_other_has_written(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        await nodes.lead("t", leader=1, replicas=(1, 2))
        await nodes.lead(OFFSETS_TOPIC, leader=1, replicas=(1, 2))
        assert await settled(nodes[1]) == -1
        assert await commit(nodes[1], 1) is ErrorCode.NONE
        await nodes.lead(OFFSETS_TOPIC, leader=2)
        assert await settled(nodes[2]) == 1
        assert await commit(nodes[2], 2) is ErrorCode.NONE
        await nodes.lead(OFFSETS_TOPIC, leader=1)
        assert await settled(nodes[1]) == 2


@in_virtual_time
async def test_clients_are_told_the_coordinator_of_the_moment(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        await nodes.lead(OFFSETS_TOPIC, leader=1, replicas=(1, 2))

        async def coordinator(asked: int) -> int:
            answer = await nodes[asked].ask(m.FindCoordinatorRequest(key="g"), m.FindCoordinatorResponse, version=3)
            assert not answer.error_code
            return answer.node_id

        assert [await coordinator(1), await coordinator(2)] == [1, 1]
        await nodes.lead(OFFSETS_TOPIC, leader=2)
        await eventually_async(lambda: nodes[1].partition(OFFSETS_TOPIC).state.leader == 2)
        assert [await coordinator(1), await coordinator(2)] == [2, 2]
        assert topic_id(OFFSETS_TOPIC) == nodes[1].partition(OFFSETS_TOPIC).log.topic_id


@in_virtual_time
async def test_offsets_of_a_deleted_topic_go_whoever_deleted_it_and_stay_gone_at_the_next_coordinator(
    tmp_path: Path,
) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        await nodes.lead("t", leader=1, replicas=(1, 2))
        await nodes.lead(OFFSETS_TOPIC, leader=1, replicas=(1, 2))
        assert await settled(nodes[1]) == -1
        assert await commit(nodes[1], 5) is ErrorCode.NONE
        await nodes.delete("t")
        assert await settled(nodes[1]) == -1
        await nodes.lead("t", leader=2, replicas=(1, 2))
        assert await settled(nodes[1]) == -1
        await eventually_async(
            lambda: nodes[2].high_watermark(OFFSETS_TOPIC) == nodes[1].high_watermark(OFFSETS_TOPIC) > 1
        )
        await nodes.lead(OFFSETS_TOPIC, leader=2)
        assert await settled(nodes[2]) == -1
