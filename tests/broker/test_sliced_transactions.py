"""Large transactional requests are handled in slices: the event loop has turns in between.

The turns are counted, and not timed. Decoding and encoding a large message take turns too.
"""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.broker.handlers import describe_transactions
from headrace.coordinators.transactions.transaction import TransactionState
from headrace.errors import ErrorCode
from headrace.in_slices import Turns
from headrace.limits import ELEMENTS_PER_SLICE
from headrace.protocol import messages as m
from headrace.topics import OFFSETS_TOPIC
from headrace.types import TopicPartition
from tests.broker.replica_nodes import Nodes
from tests.broker.transactions_at import producer_at
from tests.eventually import eventually_async

SLICES = 20
COUNT = SLICES * ELEMENTS_PER_SLICE
TURNS_MIN = 55
"""Sliced, a request takes at least 62 turns; handled in one turn, up to 52, most of them for coding."""


class TurnCounter:
    """Counts the turns of the event loop."""

    def __init__(self) -> None:
        self.turns = 0

    async def __aenter__(self) -> "TurnCounter":
        self._task = asyncio.ensure_future(self._count())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()

    async def _count(self) -> None:
        while True:
            self.turns += 1
            await asyncio.sleep(0)


@pytest.mark.parametrize("shape", ["one transaction", "many transactions"])
@pytest.mark.parametrize("verify_only", [False, True])
async def test_partitions_are_added_in_slices(tmp_path: Path, shape: str, verify_only: bool) -> None:
    Request = m.AddPartitionsToTxnRequest
    async with Nodes(tmp_path, 1) as nodes:
        await nodes.lead("t", leader=1, replicas=(1,))
        producer = await producer_at(nodes[1])
        topics = [[Request.AddPartitionsToTxnTopic(name="t", partitions=list(range(COUNT)))]]
        if shape == "many transactions":
            topics = [[Request.AddPartitionsToTxnTopic(name="t", partitions=[0])]] * (COUNT // 3)
        transactions = [
            Request.AddPartitionsToTxnTransaction(
                transactional_id=producer.name if not number else f"unknown-{number}",
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                verify_only=verify_only,
                topics=each,
            )
            for number, each in enumerate(topics)
        ]
        async with TurnCounter() as counter:
            answer = await nodes[1].ask(Request(transactions=transactions), m.AddPartitionsToTxnResponse)
        found = [
            ErrorCode(each.partition_error_code)
            for result in answer.results_by_transaction
            for each in result.topic_results[0].results_by_partition
        ]
        if shape == "one transaction":
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert found == [ErrorCode.OPERATION_NOT_ATTEMPTED] + [unknown] * (COUNT - 1)
        else:
            first = ErrorCode.TRANSACTION_ABORTABLE if verify_only else ErrorCode.NONE
            assert found == [first] + [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * (COUNT // 3 - 1)
        assert counter.turns > TURNS_MIN


async def test_offsets_are_looked_up_in_slices(tmp_path: Path) -> None:
    Request = m.TxnOffsetCommitRequest
    async with Nodes(tmp_path, 1) as nodes:
        await nodes.lead("t", leader=1, replicas=(1,))
        await nodes.lead(OFFSETS_TOPIC, leader=1, replicas=(1,))
        await eventually_async(lambda: nodes[1].groups.availability(0) is ErrorCode.NONE)
        producer = await producer_at(nodes[1])
        request = Request(
            transactional_id=producer.name,
            group_id="g",
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            topics=[
                Request.TxnOffsetCommitRequestTopic(
                    name="t",
                    partitions=[
                        Request.TxnOffsetCommitRequestPartition(partition_index=number, committed_offset=7)
                        for number in range(COUNT)
                    ],
                )
            ],
        )
        async with TurnCounter() as counter:
            answer = await nodes[1].ask(request, m.TxnOffsetCommitResponse)
        found = {each.partition_index: ErrorCode(each.error_code) for each in answer.topics[0].partitions}
        assert found == {0: ErrorCode.NONE, **dict.fromkeys(range(1, COUNT), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}
        assert counter.turns > TURNS_MIN


async def test_markers_are_written_in_slices(tmp_path: Path) -> None:
    Request = m.WriteTxnMarkersRequest
    async with Nodes(tmp_path, 1) as nodes:
        await nodes.lead("t", leader=1, replicas=(1,))
        topic = Request.WritableTxnMarkerTopic(name="t", partition_indexes=list(range(COUNT)))
        marker = Request.WritableTxnMarker(producer_id=7, producer_epoch=0, topics=[topic])
        async with TurnCounter() as counter:
            answer = await nodes[1].ask(Request(markers=[marker]), m.WriteTxnMarkersResponse)
        (topic_result,) = answer.markers[0].topics
        found = [ErrorCode(each.error_code) for each in topic_result.partitions]
        assert found == [ErrorCode.NONE] + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * (COUNT - 1)
        assert counter.turns > TURNS_MIN


async def test_transactions_are_described_in_slices(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 1) as nodes:
        producer = await producer_at(nodes[1])
        ids = [producer.name, *(f"unknown-{number}" for number in range(COUNT - 1))]
        async with TurnCounter() as counter:
            answer = await nodes[1].ask(
                m.DescribeTransactionsRequest(transactional_ids=ids), m.DescribeTransactionsResponse
            )
        found = [ErrorCode(each.error_code) for each in answer.transaction_states]
        assert found == [ErrorCode.NONE] + [ErrorCode.TRANSACTIONAL_ID_NOT_FOUND] * (COUNT - 1)
        assert counter.turns > TURNS_MIN


async def test_the_topics_of_one_transaction_are_checked_in_slices() -> None:
    """A transaction of thousands of topics took as many decisions in one turn."""
    count, asked = 3 * ELEMENTS_PER_SLICE, 0

    class Context:
        """A coordinator with one transaction, and an admission that permits everything."""

        services: Any

        def permits(self, *_: object) -> bool:
            nonlocal asked
            asked += 1
            return True

        def describe(self, name: str) -> tuple[ErrorCode, Any]:
            partitions = {TopicPartition(f"topic-{number}", 0) for number in range(count)}
            found: Any = SimpleNamespace(
                partitions=partitions,
                state=TransactionState.ONGOING,
                timeout_ms=1,
                started_ms=1,
                producer_id=1,
                producer_epoch=0,
            )
            return ErrorCode.NONE, found

    context: Any = Context()
    context.services = SimpleNamespace(admission=context, transactions=context)
    async with TurnCounter() as counter:
        state = await describe_transactions._describe(context, "x", Turns())
    assert (len(state.topics), asked) == (count, count)
    assert counter.turns >= 3
