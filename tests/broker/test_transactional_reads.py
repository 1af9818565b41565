"""Readers of committed records: what they get, what they wait for, and the end that they are told."""

import asyncio
from pathlib import Path

from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from tests.broker.replica_nodes import Node, Nodes, turns
from tests.broker.transactions_at import producer_at
from tests.eventually import eventually_async

UNCOMMITTED, COMMITTED = 0, 1


async def fetch(
    node: Node, offset: int, *, isolation: int = COMMITTED, max_wait_ms: int = 0, min_bytes: int = 1
) -> m.FetchResponse.PartitionData:
    """A full Fetch of t-0."""
    partition = m.FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = m.FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=1 << 20,
        isolation_level=isolation,
        session_epoch=-1,
        topics=[m.FetchRequest.FetchTopic(topic="t", partitions=[partition])],
    )
    answer = await node.ask(request, m.FetchResponse, version=12)
    return answer.responses[0].partitions[0]


async def latest(node: Node, isolation: int) -> int:
    """ListOffsets of the end of t-0."""
    partition = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topic = m.ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[partition])
    request = m.ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=[topic])
    answer = await node.ask(request, m.ListOffsetsResponse, version=8)
    found = answer.topics[0].partitions[0]
    assert ErrorCode(found.error_code) is ErrorCode.NONE
    return found.offset


async def test_a_reader_of_committed_records_gets_nothing_of_an_open_transaction(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 1) as nodes:
        await nodes.lead("t", leader=1, replicas=(1,))
        nodes[1].append("t", "before")
        producer = await producer_at(nodes[1])
        await producer.produce(nodes[1], "t")
        nodes[1].append("t", "after")
        found = await fetch(nodes[1], 1)
        assert (found.last_stable_offset, found.high_watermark, found.aborted_transactions) == (1, 3, [])
        assert not found.records
        assert (await fetch(nodes[1], 1, isolation=UNCOMMITTED)).aborted_transactions is None
        assert await latest(nodes[1], COMMITTED) == 1
        assert await latest(nodes[1], UNCOMMITTED) == 3


async def test_a_waiting_fetch_counts_bytes_up_to_the_last_stable_offset(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 1) as nodes:
        await nodes.lead("t", leader=1, replicas=(1,))
        producer = await producer_at(nodes[1])
        waiting = asyncio.ensure_future(fetch(nodes[1], 0, max_wait_ms=20_000))
        await producer.produce(nodes[1], "t")
        await turns(5)
        assert not waiting.done()
        assert await producer.end() is ErrorCode.NONE
        found = await waiting
        assert found.last_stable_offset == 2
        assert found.records


async def test_a_fetch_names_the_aborted_transactions_of_its_records(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        await nodes.lead("t", leader=1, replicas=(1, 2))
        producer = await producer_at(nodes[1])
        await producer.produce(nodes[1], "t")
        aborted_id = producer.producer_id
        assert await producer.end(is_commit=False) is ErrorCode.NONE
        await eventually_async(lambda: nodes[1].partition("t").last_stable_offset == 2)
        nodes[1].append("t", "after")
        await eventually_async(lambda: nodes[1].high_watermark("t") == 3)
        (aborted,) = (await fetch(nodes[1], 0)).aborted_transactions or []
        assert (aborted.producer_id, aborted.first_offset) == (aborted_id, 0)
        assert (await fetch(nodes[1], 2)).aborted_transactions == []
        await nodes.lead("t", leader=2)
        await eventually_async(lambda: nodes[2].high_watermark("t") == 3)
        (aborted,) = (await fetch(nodes[2], 0)).aborted_transactions or []
        assert (aborted.producer_id, aborted.first_offset) == (aborted_id, 0)
