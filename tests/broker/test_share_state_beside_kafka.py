"""The requests between brokers about share state: a share coordinator of ours answers as Apache Kafka's does.

A broker alone refuses them, so ours are asked of a node of a cluster.
"""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.codec.message import Message
from headrace.topics import SHARE_STATE_TOPIC
from tests.asker import Asker
from tests.broker.replica_nodes import Nodes, topic_id
from tests.eventually import eventually
from tests.wire import Wire

pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.xdist_group("apache-kafka")]

UNKNOWN = b"x" * 16
NOT_YET = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)


class Requests:
    """Requests of one group about one topic."""

    def __init__(self, group: str, topic: bytes) -> None:
        self.group, self.topic = group, topic

    def initialize(self, partition: int, state_epoch: int, start: int, topic: bytes | None = None) -> Message:
        """InitializeShareGroupState."""
        kind = m.InitializeShareGroupStateRequest
        data = kind.PartitionData(partition=partition, state_epoch=state_epoch, start_offset=start)
        topics = [kind.InitializeStateData(topic_id=topic or self.topic, partitions=[data])]
        return kind(group_id=self.group, topics=topics)

    def read(self, partition: int, leader_epoch: int, topic: bytes | None = None) -> Message:
        """ReadShareGroupState."""
        kind = m.ReadShareGroupStateRequest
        data = kind.PartitionData(partition=partition, leader_epoch=leader_epoch)
        return kind(group_id=self.group, topics=[kind.ReadStateData(topic_id=topic or self.topic, partitions=[data])])

    def write(
        self,
        partition: int,
        state_epoch: int,
        leader_epoch: int,
        start: int,
        *batches: tuple[int, int, int, int],
        done: int = 0,
    ) -> Message:
        """WriteShareGroupState."""
        kind = m.WriteShareGroupStateRequest
        data = kind.PartitionData(
            partition=partition,
            state_epoch=state_epoch,
            leader_epoch=leader_epoch,
            start_offset=start,
            delivery_complete_count=done,
            state_batches=[
                kind.StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
                for first, last, state, count in batches
            ],
        )
        return kind(group_id=self.group, topics=[kind.WriteStateData(topic_id=self.topic, partitions=[data])])

    def delete(self, partition: int) -> Message:
        """DeleteShareGroupState."""
        kind = m.DeleteShareGroupStateRequest
        data = kind.PartitionData(partition=partition)
        return kind(group_id=self.group, topics=[kind.DeleteStateData(topic_id=self.topic, partitions=[data])])

    def summary(self, partition: int, topic: bytes | None = None) -> Message:
        """ReadShareGroupStateSummary."""
        kind = m.ReadShareGroupStateSummaryRequest
        data = kind.PartitionData(partition=partition, leader_epoch=0)
        topics = [kind.ReadStateSummaryData(topic_id=topic or self.topic, partitions=[data])]
        return kind(group_id=self.group, topics=topics)

    def all(self) -> Iterator[Message]:
        """Everything that is compared, in order."""
        yield from (self.summary(0), self.read(0, 0), self.write(0, 0, 0, 0), self.delete(0))
        yield from (self.initialize(5, 1, 0), self.initialize(-1, 1, 0), self.initialize(0, 1, 0, UNKNOWN))
        yield from (self.read(-1, 0), self.write(-1, 0, 0, 0), self.delete(-1), self.summary(-1))
        yield from (self.summary(7), self.delete(7), self.summary(0, UNKNOWN), self.read(0, 0, UNKNOWN))
        # epochs
        yield from (self.initialize(0, 3, 5), self.summary(0), self.read(0, 2), self.read(0, 1), self.summary(0))
        yield from (self.initialize(0, 2, 9), self.write(0, 3, 1, 6), self.write(0, 2, 2, 6))
        # batches
        yield from (self.write(0, 3, 2, 6, (6, 9, 2, 1), (10, 14, 0, 2), done=4), self.read(0, 2), self.summary(0))
        yield from (self.write(0, 3, 2, -1, (8, 12, 4, 3), done=5), self.read(0, -1), self.summary(0))
        yield from (self.write(0, 9, 9, 11, done=2), self.read(0, 2), self.read(0, 9), self.summary(0))
        yield self.write(0, -1, -1, -1, (20, 25, 0, 1), (22, 23, 2, 1), (26, 27, 0, 1))
        yield from (self.read(0, 9), self.write(0, 3, 9, 30), self.read(0, 9))
        # anew
        yield from (self.initialize(0, 4, -1), self.read(0, 9), self.summary(0), self.write(0, 4, 8, 0))
        yield from (self.write(0, 4, 9, 0, (0, 3, 2, 1), done=4), self.read(0, 9), self.delete(0), self.summary(0))
        yield from (self.read(0, 9), self.initialize(0, 0, 0), self.summary(0), self.delete(0))
        # without partitions
        yield m.WriteShareGroupStateRequest(group_id="")
        reads, initializes = m.ReadShareGroupStateRequest, m.InitializeShareGroupStateRequest
        yield reads(group_id=self.group, topics=[reads.ReadStateData(topic_id=self.topic)])
        yield initializes(group_id=self.group, topics=[initializes.InitializeStateData(topic_id=self.topic)])
        yield m.DeleteShareGroupStateRequest(group_id=self.group)


def results(response: Any) -> list[Any]:
    """The results of the partitions, whatever the topic's id."""
    return [partition for topic in response.results for partition in topic.partitions]


async def test_share_state_is_kept_as_apache_kafka_keeps_it(tmp_path: Path, apache_kafka: str) -> None:
    name = f"state-{uuid.uuid4().hex[:8]}"
    with Wire(apache_kafka) as wire:
        assert wire.create_topic(name) == 0
    with Asker(apache_kafka) as asker:
        named = m.MetadataRequest.MetadataRequestTopic(name=name)
        theirs = asker.ask(m.MetadataRequest(topics=[named]), 12).topics[0].topic_id

        def is_ready() -> bool:
            asker.ask(m.FindCoordinatorRequest(key_type=2, coordinator_keys=[f"g:{'A' * 22}:0"]), 6)
            (found,) = results(asker.ask(Requests(name, theirs).summary(0), 1))
            return found.error_code not in NOT_YET

        eventually(is_ready, "Apache Kafka's share coordinator")
        settings = {"share.coordinator.state.topic.min.isr": "1"}
        async with Nodes(tmp_path, 1, **settings) as nodes:
            await nodes.lead("t", leader=1, replicas=(1,))
            await nodes.lead(SHARE_STATE_TOPIC, leader=1, replicas=(1,))
            pairs = zip(Requests(name, topic_id("t")).all(), Requests(name, theirs).all(), strict=True)
            for number, (ours, asked) in enumerate(pairs):
                expected = results(asker.ask(asked, asked.VERSIONS[-1]))
                answer = getattr(m, type(ours).__name__.replace("Request", "Response"))
                assert results(await nodes[1].ask(ours, answer)) == expected, (number, ours)
