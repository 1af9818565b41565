"""The marker sender: a broker that does not answer delays nobody else, and partitions that are gone need no marker."""

import asyncio
from pathlib import Path

from headrace.coordinators.transactions.actions import SendMarkers
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.types import TopicPartition
from tests.broker.replica_nodes import Nodes, turns
from tests.broker.transactions_at import producer_at
from tests.eventually import WITHIN_SECONDS, eventually_async


async def test_markers_that_waited_for_a_silent_broker_go_to_the_new_leader(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 3) as nodes:
        for topic in ("t", "u"):
            await nodes.lead(topic, leader=2, replicas=(2, 3))
        producers = [await producer_at(nodes[1], name, leads=name == "x") for name in ("x", "y")]
        for producer, topic in zip(producers, ("t", "u"), strict=True):
            assert await producer.produce(nodes[2], topic) == {topic: ErrorCode.NONE}
        first = nodes.hold(m.WriteTxnMarkersRequest)
        assert await producers[0].end() is ErrorCode.NONE
        await eventually_async(lambda: len(nodes.held) == 1)
        assert await producers[1].end() is ErrorCode.NONE
        await nodes.lead("u", leader=3)
        nodes.hold(m.WriteTxnMarkersRequest)  # broker 2 would not answer the next request either
        nodes.cuts = {(2, 1)}
        first.set()
        await eventually_async(lambda: nodes[3].partition("u").last_stable_offset == 2)


async def test_a_partition_that_a_new_topic_of_the_name_does_not_have_needs_no_marker(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 1) as nodes:
        await nodes.lead("t", leader=1, replicas=(1,))
        sender = nodes[1].transactions.markers
        gone = frozenset((TopicPartition("t", 7), TopicPartition("deleted", 0)))
        sender.perform(SendMarkers("x", 0, 0, 1, 0, True, gone, 2))
        assert sender.pending == 1
        await eventually_async(lambda: sender.pending == 0)


async def test_questions_that_waited_for_a_silent_coordinator_are_answered_with_the_first(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        await nodes.lead("t", leader=1, replicas=(1,))
        producers = [await producer_at(nodes[2], f"x{number}", leads=not number) for number in range(3)]
        first = nodes.hold(m.AddPartitionsToTxnRequest)
        producing = [asyncio.ensure_future(producers[0].produce(nodes[1], "t"))]
        await eventually_async(lambda: len(nodes.held) == 1)
        producing += [asyncio.ensure_future(each.produce(nodes[1], "t")) for each in producers[1:]]
        await turns(3)
        nodes.hold(m.AddPartitionsToTxnRequest)  # the coordinator would not answer the next request either
        nodes.cuts = {(2, 1)}
        first.set()
        async with asyncio.timeout(WITHIN_SECONDS):
            assert await asyncio.gather(*producing) == [{"t": ErrorCode.NOT_ENOUGH_REPLICAS}] * 3
