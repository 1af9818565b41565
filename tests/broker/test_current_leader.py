"""Who asks the wrong broker is told of the right one. Leadership is moved by hand under a running broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TypeAlias

import pytest

from headrace.broker.app import running
from headrace.broker.services import Services
from headrace.config import parse_broker
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.records.format2.batch import Record, encode_batch
from tests.asker import Asker

Told: TypeAlias = tuple[int, tuple[int, int], list[tuple[int, str, int, str | None]]]

NAME, OTHER = "moves", 7
ELSEWHERE: list[tuple[int, str, int, str | None]] = [(OTHER, "elsewhere.example", 1234, "far")]


class Moved:
    """A broker with one topic, and a client."""

    def __init__(self, broker: Services, asker: Asker) -> None:
        self.broker, self.asker = broker, asker
        self.me = broker.config.broker_id
        self.id = b""

    async def make(self) -> None:
        wish = m.CreateTopicsRequest.CreatableTopic(name=NAME, num_partitions=1, replication_factor=1)
        answer = await self.ask(m.CreateTopicsRequest(topics=[wish], timeout_ms=10_000), 7)
        self.id = answer.topics[0].topic_id  # type: ignore[attr-defined]

    async def ask(self, request: m.ProduceRequest | m.FetchRequest | m.CreateTopicsRequest, version: int) -> object:
        return await asyncio.to_thread(self.asker.ask, request, version)

    async def lead(self, leader: int, epoch: int, *also_in_sync: int) -> None:
        """The controller says who leads."""
        isr = [leader, *also_in_sync]
        metadata = self.broker.metadata
        broker, endpoint = m.UpdateMetadataRequest.UpdateMetadataBroker, m.UpdateMetadataRequest.UpdateMetadataEndpoint
        own = metadata.brokers[self.me].endpoints[0]  # type: ignore[index]
        live = [(self.me, own.host, own.port, None), *ELSEWHERE]
        state = m.UpdateMetadataRequest.UpdateMetadataPartitionState(
            partition_index=0, leader=leader, leader_epoch=epoch, isr=isr, replicas=[self.me, OTHER]
        )
        metadata.apply(
            m.UpdateMetadataRequest(
                controller_id=self.me,
                topic_states=[
                    m.UpdateMetadataRequest.UpdateMetadataTopicState(
                        topic_name=NAME, topic_id=self.id, partition_states=[state]
                    )
                ],
                live_brokers=[
                    broker(id=id_, rack=rack, endpoints=[endpoint(listener=own.listener, host=host, port=port)])
                    for id_, host, port, rack in live
                ],
            )
        )
        led = m.LeaderAndIsrRequest.LeaderAndIsrPartitionState(
            partition_index=0, leader=leader, leader_epoch=epoch, isr=isr, replicas=[self.me, OTHER],
            partition_epoch=epoch,
        )  # fmt: skip
        topic = m.LeaderAndIsrRequest.LeaderAndIsrTopicState(topic_name=NAME, topic_id=self.id, partition_states=[led])
        await self.broker.replicas.apply_leader_and_isr(m.LeaderAndIsrRequest(topic_states=[topic]))

    async def somebody_waits(self) -> None:
        while not len(self.broker.purgatory):  # noqa: ASYNC110 - nothing says so
            await asyncio.sleep(0.01)

    def produce(self) -> m.ProduceRequest:
        records = bytes(encode_batch([Record(0, 1_700_000_000_000, None, b"v", ())]))
        part = m.ProduceRequest.PartitionProduceData(index=0, records=records)
        data = m.ProduceRequest.TopicProduceData(name=NAME, topic_id=self.id, partition_data=[part])
        return m.ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data])

    def fetch(self, *, epoch: int = -1, max_wait_ms: int = 0, session: tuple[int, int] = (0, -1)) -> m.FetchRequest:
        part = m.FetchRequest.FetchPartition(partition=0, partition_max_bytes=1 << 20, current_leader_epoch=epoch)
        topics = [m.FetchRequest.FetchTopic(topic=NAME, topic_id=self.id, partitions=[part])]
        return m.FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            session_id=session[0],
            session_epoch=session[1],
            topics=topics if session[1] <= 0 else [],
        )


@pytest.fixture
async def moved(tmp_path: Path) -> AsyncIterator[Moved]:
    config = parse_broker({"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"})
    async with running(config) as (broker, listeners):
        with Asker(f"{listeners[0].host}:{listeners[0].port}") as asker:
            moved = Moved(broker, asker)
            await moved.make()
            yield moved


def told(answer: object) -> Told:
    """The error, who leads in which epoch, and where brokers are."""
    assert isinstance(answer, m.FetchResponse | m.ProduceResponse)
    (topic,) = answer.responses
    (each,) = (
        topic.partitions if isinstance(topic, m.FetchResponse.FetchableTopicResponse) else topic.partition_responses
    )
    leader = each.current_leader
    nodes = [(node.node_id, node.host, node.port, node.rack) for node in answer.node_endpoints]
    return each.error_code, (leader.leader_id, leader.leader_epoch), nodes


NOTHING: Told = (ErrorCode.NOT_LEADER_OR_FOLLOWER, (-1, -1), [])
NEWS: Told = (ErrorCode.NOT_LEADER_OR_FOLLOWER, (OTHER, 5), ELSEWHERE)


async def test_produce_says_who_leads_from_version_10_on(moved: Moved) -> None:
    await moved.lead(OTHER, 5)
    assert told(await moved.ask(moved.produce(), 9)) == NOTHING
    for version in (10, 13):
        assert told(await moved.ask(moved.produce(), version)) == NEWS


async def test_fetch_says_who_leads_from_version_16_on(moved: Moved) -> None:
    await moved.lead(OTHER, 5)
    for version in (12, 15):
        assert told(await moved.ask(moved.fetch(), version)) == NOTHING
    for version in (16, 18):
        assert told(await moved.ask(moved.fetch(), version)) == NEWS


async def test_a_fenced_fetch_is_told_the_epoch_of_this_broker(moved: Moved) -> None:
    await moved.lead(moved.me, 6)
    error, leader, nodes = told(await moved.ask(moved.fetch(epoch=5), 16))
    assert (error, leader) == (ErrorCode.FENCED_LEADER_EPOCH, (moved.me, 6))
    assert [node[0] for node in nodes] == [moved.me]
    assert told(await moved.ask(moved.fetch(epoch=7), 16)) == (ErrorCode.UNKNOWN_LEADER_EPOCH, (-1, -1), [])


async def test_a_fetch_that_waits_hears_of_a_new_leader(moved: Moved) -> None:
    waiting = asyncio.create_task(moved.ask(moved.fetch(max_wait_ms=60_000), 16))
    await moved.somebody_waits()
    await moved.lead(OTHER, 5)
    assert told(await waiting) == NEWS


async def test_a_session_that_waits_hears_of_a_new_leader(moved: Moved) -> None:
    opened = await moved.ask(moved.fetch(session=(0, 0)), 18)
    session_id: int = opened.session_id  # type: ignore[attr-defined]
    waiting = asyncio.create_task(moved.ask(moved.fetch(max_wait_ms=60_000, session=(session_id, 1)), 18))
    await moved.somebody_waits()
    await moved.lead(OTHER, 5)
    assert told(await waiting) == NEWS


async def test_a_produce_that_waits_hears_of_a_new_leader(moved: Moved) -> None:
    await moved.lead(moved.me, 4, OTHER)
    waiting = asyncio.create_task(moved.ask(moved.produce(), 13))
    await moved.somebody_waits()
    await moved.lead(OTHER, 5)
    assert told(await waiting) == NEWS
