"""Appends until they are durable: what a produce and an offset commit are told when things change meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from headrace.errors import ErrorCode
from headrace.log.directories.moving import LogMove
from headrace.protocol import messages as m
from headrace.records.format2.batch import Record, encode_batch
from headrace.topics import OFFSETS_TOPIC
from headrace.types import LeaderEpoch
from tests.broker.replica_nodes import Node, Nodes, topic_id, turns
from tests.eventually import WITHIN_SECONDS, eventually_async
from tests.simulation.virtual_time import in_virtual_time

Ask = Callable[[Node], Awaitable[ErrorCode]]


async def produced(node: Node) -> ErrorCode:
    """A produce with acks=all to `t`."""
    records = memoryview(encode_batch([Record(0, 0, None, b"a", ())]))
    part = m.ProduceRequest.PartitionProduceData(index=0, records=records)
    topic = m.ProduceRequest.TopicProduceData(topic_id=topic_id("t"), partition_data=[part])
    request = m.ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[topic])
    answer = await node.ask(request, m.ProduceResponse)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


async def committed(node: Node) -> ErrorCode:
    """An offset commit."""
    partition = m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    topic = m.OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition])
    answer = await node.ask(m.OffsetCommitRequest(group_id="g", topics=[topic]), m.OffsetCommitResponse, version=8)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


async def is_loaded(node: Node) -> None:
    """The node serves its groups."""
    async with asyncio.timeout(WITHIN_SECONDS):
        while await committed(node) is not ErrorCode.NONE:  # noqa: ASYNC110 - what is waited for tells nobody
            await asyncio.sleep(0)


BOTH = pytest.mark.parametrize(
    ("topic", "ask"), [("t", produced), (OFFSETS_TOPIC, committed)], ids=["produce", "commit"]
)


async def waiting_at_the_leader(nodes: Nodes, topic: str, ask: Ask) -> asyncio.Future[ErrorCode]:
    """A request at node 1 that waits for node 2, which is cut off."""
    await nodes.lead("t", leader=1, replicas=(1, 2))
    await nodes.lead(OFFSETS_TOPIC, leader=1, replicas=(1, 2))
    await is_loaded(nodes[1])
    nodes.cuts = {(1, 2), (2, 1)}
    end_offset = nodes[1].partition(topic).log.log_end_offset
    waiting = asyncio.ensure_future(ask(nodes[1]))
    await eventually_async(lambda: nodes[1].partition(topic).log.log_end_offset == end_offset + 1)
    await turns(5)
    assert not waiting.done()
    return waiting


@BOTH
@in_virtual_time
async def test_a_change_of_directory_goes_unnoticed(tmp_path: Path, topic: str, ask: Ask) -> None:
    async with Nodes(tmp_path, 2, offsets_commit_timeout_ms="5000") as nodes:
        waiting = await waiting_at_the_leader(nodes, topic, ask)
        log = nodes[1].partition(topic).log
        other = tmp_path / "other disk"
        other.mkdir()
        move = LogMove(nodes[1].logs.files, log, other)
        move.begin()
        assert move.swap(nodes.now_ms)
        nodes[1].purgatory.touch(nodes[1].partition(topic).key)
        await turns(5)
        assert not waiting.done()
        nodes.cuts = set()
        assert await waiting is ErrorCode.NONE
        assert log.directory.parent == other
        assert nodes[2].partition(topic).log.log_end_offset == log.log_end_offset


@BOTH
@in_virtual_time
async def test_a_new_epoch_of_the_same_leader_changes_nothing(tmp_path: Path, topic: str, ask: Ask) -> None:
    async with Nodes(tmp_path, 2, offsets_commit_timeout_ms="5000") as nodes:
        waiting = await waiting_at_the_leader(nodes, topic, ask)
        await nodes.lead(topic, leader=1)
        await turns(5)
        assert not waiting.done()
        nodes.cuts = set()
        assert await waiting is ErrorCode.NONE


@BOTH
@in_virtual_time
async def test_another_leader_takes_the_request_over(tmp_path: Path, topic: str, ask: Ask) -> None:
    async with Nodes(tmp_path, 2, offsets_commit_timeout_ms="5000") as nodes:
        waiting = await waiting_at_the_leader(nodes, topic, ask)
        await nodes.lead(topic, leader=2)
        assert await waiting in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR)


@BOTH
@in_virtual_time
async def test_leadership_that_was_lost_and_came_back_promises_nothing_of_before(
    tmp_path: Path, topic: str, ask: Ask
) -> None:
    """Both changes may come before the request is looked at again."""
    async with Nodes(tmp_path, 2, offsets_commit_timeout_ms="5000") as nodes:
        waiting = await waiting_at_the_leader(nodes, topic, ask)
        partition = nodes[1].partition(topic)
        partition.state.step_down()
        state = nodes.states[topic]
        partition.apply(state._replace(leader_epoch=LeaderEpoch(state.leader_epoch + 1)), nodes.now_ms)
        assert partition.is_leader
        nodes[1].purgatory.touch(partition.key)
        assert await waiting in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR)


@pytest.mark.parametrize(
    ("topic", "ask", "told"),
    [
        ("t", produced, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
        (OFFSETS_TOPIC, committed, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
    ids=["produce", "commit"],
)
@in_virtual_time
async def test_an_isr_that_is_too_small_once_the_record_is_committed_is_told(
    tmp_path: Path, topic: str, ask: Ask, told: ErrorCode
) -> None:
    async with Nodes(tmp_path, 2, offsets_commit_timeout_ms="5000") as nodes:
        waiting = await waiting_at_the_leader(nodes, topic, ask)
        partition = nodes[1].partition(topic)
        partition.state.follower_fetched(nodes[2].id, partition.log.log_end_offset, nodes.now_ms)
        partition.state.min_insync_replicas = 2
        state = nodes.states[topic]
        partition.apply(state._replace(isr=(nodes[1].id,), partition_epoch=state.partition_epoch + 1), nodes.now_ms)
        nodes[1].purgatory.touch(partition.key)
        assert await waiting is told
