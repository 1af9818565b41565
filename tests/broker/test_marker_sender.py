"""The marker sender: a broker that does not answer delays nobody else, and partitions that are gone need no marker."""

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest

from headrace.coordinators.transactions.actions import SendMarkers
from headrace.coordinators.transactions.transaction import TransactionState
from headrace.errors import ErrorCode
from headrace.limits import MARKERS_SENT_PER_TURN_MAX
from headrace.protocol import messages as m
from headrace.topics import TRANSACTIONS_TOPIC
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


@pytest.mark.parametrize("is_again", [False, True], ids=["at once", "again"])
async def test_thousands_of_markers_leave_the_event_loop_to_others(tmp_path: Path, is_again: bool) -> None:
    """As after a failover, with transactions whose outcome is decided; and again, when their leader was not known."""
    count = 5 * MARKERS_SENT_PER_TURN_MAX
    async with Nodes(tmp_path, 1) as nodes:
        await nodes.lead("t", leader=-1 if is_again else 1, replicas=(1,))
        sender, log, written = nodes[1].transactions.markers, nodes[1].partition("t").log, [0]
        for number in range(count):
            sender.perform(SendMarkers(f"x{number}", 0, 0, number, 0, True, frozenset({TopicPartition("t", 0)}), 2))
        if is_again:
            await eventually_async(lambda: bool(sender._retries))
            await nodes.lead("t", leader=1)
        async with asyncio.timeout(20):
            while sender.pending:
                written.append(log.log_end_offset)
                await asyncio.sleep(0)
        assert log.log_end_offset == count
        assert max(after - before for before, after in pairwise(written)) <= MARKERS_SENT_PER_TURN_MAX


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


async def test_markers_of_a_log_that_failed_after_the_decision_go_to_the_next_leader(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        for topic in ("t", "u"):
            await nodes.lead(topic, leader=1, replicas=(1, 2))
        producer = await producer_at(nodes[1])
        assert await producer.produce(nodes[1], "t", "u") == dict.fromkeys(("t", "u"), ErrorCode.NONE)
        failed = nodes[1].partition("t").log
        failed.failure = "the disk failed"
        assert await producer.end() is ErrorCode.NONE, "the decision is stored"
        await eventually_async(lambda: nodes[1].partition("u").last_stable_offset == 2)
        assert nodes[1].transactions.markers.pending == 1
        await nodes.lead("t", leader=2, isr=(2,))
        await eventually_async(lambda: nodes[1].transactions.markers.pending == 0)
        assert nodes[2].partition("t").log.log_end_offset == 2
        error, found = nodes[1].transactions.describe(producer.name)
        assert error is ErrorCode.NONE
        assert found is not None
        assert found.state is TransactionState.COMPLETE_COMMIT


async def test_a_coordinators_log_that_fails_after_the_markers_is_completed_by_the_next(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 2) as nodes:
        await nodes.lead("t", leader=2, replicas=(2,))
        producer = await producer_at(nodes[1])
        await nodes.lead(TRANSACTIONS_TOPIC, leader=1, replicas=(1, 2), isr=(1, 2))
        assert await producer.produce(nodes[2], "t") == {"t": ErrorCode.NONE}
        answered = nodes.hold(m.WriteTxnMarkersRequest)
        assert await producer.end() is ErrorCode.NONE
        await eventually_async(lambda: len(nodes.held) == 1)
        nodes[1].partition(TRANSACTIONS_TOPIC).log.failure = "the disk failed"
        answered.set()
        await eventually_async(lambda: nodes[1].transactions.markers.pending == 0)
        await nodes.lead(TRANSACTIONS_TOPIC, leader=2, isr=(2,))

        def is_complete() -> bool:
            found = nodes[2].transactions.describe(producer.name)[1]
            return found is not None and found.state is TransactionState.COMPLETE_COMMIT

        await eventually_async(is_complete)


async def test_two_transactions_of_one_producer_id_both_get_their_markers(tmp_path: Path) -> None:
    """Only damaged records can say so. An answer has one result for each producer."""
    async with Nodes(tmp_path, 2) as nodes:
        for topic in ("t", "u"):
            await nodes.lead(topic, leader=2, replicas=(2,))
        sender = nodes[1].transactions.markers
        for name, topic in (("x", "t"), ("y", "u")):
            sender.perform(SendMarkers(name, 0, 0, 1, 0, True, frozenset({TopicPartition(topic, 0)}), 0))
        await eventually_async(lambda: sender.pending == 0)
        assert [nodes[2].partition(topic).log.log_end_offset for topic in ("t", "u")] == [1, 1]
