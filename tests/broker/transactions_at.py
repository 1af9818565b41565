"""A transactional producer that asks nodes by raw requests: initialises, produces, ends."""

from __future__ import annotations

import asyncio

from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.records.format2.batch import Record, encode_batch
from headrace.topics import TRANSACTIONS_TOPIC
from tests.broker.replica_nodes import Connection, Node, topic_id
from tests.eventually import WITHIN_SECONDS

V2_PRODUCE, V1_PRODUCE, OLD_PRODUCE = 13, 11, 10


class TransactionalProducer:
    """One producer with one transactional id, coordinated by `coordinator`."""

    def __init__(self, coordinator: Node, name: str = "x") -> None:
        self.coordinator, self.name = coordinator, name
        self.producer_id, self.epoch = -1, -1

    async def init(self) -> None:
        """InitProducerId, until the coordinator has loaded."""
        async with asyncio.timeout(WITHIN_SECONDS):
            while True:
                answer = await self.coordinator.ask(
                    m.InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=60_000),
                    m.InitProducerIdResponse,
                    version=5,
                )
                if ErrorCode(answer.error_code) is ErrorCode.NONE:
                    break
                assert ErrorCode(answer.error_code).retriable, ErrorCode(answer.error_code)
                await asyncio.sleep(0.002)
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    def batch(self, *, sequence: int = 0, is_transactional: bool = True) -> memoryview:
        """A batch of one record."""
        return memoryview(
            encode_batch(
                [Record(0, 0, None, b"a", ())],
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                base_sequence=sequence,
                is_transactional=is_transactional,
            )
        )

    async def produce(
        self,
        node: Node | Connection,
        *topics: str,
        sequence: int = 0,
        version: int = V2_PRODUCE,
        is_transactional: bool = True,
        has_id: bool = True,
    ) -> dict[str, ErrorCode]:
        """A Produce of one batch to partition 0 of each topic; the error code of each."""
        request = m.ProduceRequest(
            transactional_id=self.name if has_id else None,
            acks=-1,
            timeout_ms=5_000,
            topic_data=[
                m.ProduceRequest.TopicProduceData(
                    name=each,
                    topic_id=topic_id(each),
                    partition_data=[
                        m.ProduceRequest.PartitionProduceData(
                            index=0, records=self.batch(sequence=sequence, is_transactional=is_transactional)
                        )
                    ],
                )
                for each in topics
            ],
        )
        answer = await node.ask(request, m.ProduceResponse, version=version)
        return {
            topic: ErrorCode(each.partition_responses[0].error_code)
            for topic, each in zip(topics, answer.responses, strict=True)
        }

    async def add(self, *topics: str) -> ErrorCode:
        """AddPartitionsToTxn, as a client before transaction.version 2 sends it."""
        answer = await self.coordinator.ask(
            m.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.name,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[
                    m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=each, partitions=[0]) for each in topics
                ],
            ),
            m.AddPartitionsToTxnResponse,
            version=3,
        )
        (first, *_) = answer.results_by_topic_v3_and_below
        return ErrorCode(first.results_by_partition[0].partition_error_code)

    async def end(self, *, is_commit: bool = True, version: int = 5) -> ErrorCode:
        """EndTxn, tried again while the coordinator is busy; takes over the epoch of the next transaction."""
        async with asyncio.timeout(WITHIN_SECONDS):
            while True:
                answer = await self.coordinator.ask(
                    m.EndTxnRequest(
                        transactional_id=self.name,
                        producer_id=self.producer_id,
                        producer_epoch=self.epoch,
                        committed=is_commit,
                    ),
                    m.EndTxnResponse,
                    version=version,
                )
                code = ErrorCode(answer.error_code)
                if code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                    break
                await asyncio.sleep(0.002)
        if version >= 5 and code is ErrorCode.NONE:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return code


async def producer_at(node: Node, name: str = "x", *, leads: bool = True) -> TransactionalProducer:
    """An initialised producer. `leads`: the node is made the only coordinator first."""
    if leads:
        await node.nodes.lead(TRANSACTIONS_TOPIC, leader=node.id, replicas=(node.id,))
    producer = TransactionalProducer(node, name)
    await producer.init()
    return producer
