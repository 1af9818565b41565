"""`__consumer_offsets` as the group coordinator needs it: made when first asked for, appended to, read back.

The coordinator leads the groups of those partitions that this broker leads: when it becomes a partition's leader the
partition is read, when it is no longer, the partition's groups are let go.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from headrace.broker.group_shell import OFFSETS_TOPIC
from headrace.broker.topic_wishes import make_topics
from headrace.config import BrokerConfig
from headrace.coordination.topics import NewTopic
from headrace.errors import ErrorCode, KafkaError, StorageError
from headrace.records.header import read_header
from headrace.types import TopicPartition

if TYPE_CHECKING:
    from headrace.broker.group_shell import GroupShell
    from headrace.broker.partition import Partition
    from headrace.broker.parts import Broker

_ACKS_ALL = -1
CREATE_TIMEOUT_MS = 10_000
"""How long the controller is given to make the topic; a client asks again."""


class OffsetsTopic:
    """The topic's hands: `OffsetsHost` of the group shell."""

    broker: Broker
    """Set before anything is asked."""

    def __init__(self) -> None:
        self._led: dict[int, int] = {}  # partition -> the leader epoch in which it was loaded

    def append_internal(self, partition: int, batch: bytearray) -> asyncio.Future[int]:
        """Appends with acks=all; the base offset. The future is done already when no follower has to be waited for."""
        broker = self.broker
        written: asyncio.Future[int] = broker.loop.create_future()
        try:
            leader = broker.replicas.leader(OFFSETS_TOPIC, partition)
            view = memoryview(batch)
            appended = leader.append(view, read_header(view), now_ms=broker.now_ms(), acks=_ACKS_ALL)
        except KafkaError as error:
            written.set_exception(error)
            return written
        leader.touch_appended(broker.purgatory.touch)
        if leader.high_watermark > appended.last_offset:
            written.set_result(appended.base_offset)
        else:
            waiting = _WaitingAppend(leader, appended.base_offset, appended.last_offset, written)
            broker.purgatory.wait(waiting, [leader.key], broker.config.offsets_commit_timeout_ms)
        return written

    def partition_count(self) -> int:
        """What the topic has; a setting that was changed since it was made does not move its groups."""
        topic = self.broker.metadata.topic(OFFSETS_TOPIC)
        return len(topic.partitions) if topic is not None else self.broker.config.offsets_topic_num_partitions

    async def ensure_offsets_topic(self) -> None:
        """Makes the topic if it is not there. Raises `KafkaError`."""
        broker = self.broker
        if broker.metadata.topic(OFFSETS_TOPIC) is not None:
            return
        wish = offsets_topic_wish(broker.config, is_alone=broker.is_alone)
        error = (await make_topics(broker, [wish]))[OFFSETS_TOPIC]
        if error is not None and error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise error

    def leadership_changed(self, key: TopicPartition) -> None:
        """Something about a partition's leader changed: loads or lets go of its groups, if it has any."""
        if key.topic != OFFSETS_TOPIC:
            return
        groups: GroupShell = self.broker.groups
        partition = self.broker.replicas.find(key)
        if partition is not None and partition.is_leader:
            if self._led.get(key.partition) != partition.leader_epoch:
                self._led[key.partition] = partition.leader_epoch
                self.broker.spawn(groups.load_partition(key.partition, partition.log))
        elif self._led.pop(key.partition, None) is not None:
            groups.unload_partition(key.partition)


def offsets_topic_wish(config: BrokerConfig, *, is_alone: bool) -> NewTopic:
    """The topic as Apache Kafka makes it: compacted, stored as the coordinator wrote it. On a broker alone it has one
    replica."""
    return NewTopic(
        OFFSETS_TOPIC,
        config.offsets_topic_num_partitions,
        1 if is_alone else config.offsets_topic_replication_factor,
        configs={
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        },
    )


class _WaitingAppend:
    """An append of the coordinator until the replicas have it; `Operation` of the purgatory."""

    def __init__(self, partition: Partition, base_offset: int, last_offset: int, written: asyncio.Future[int]) -> None:
        self._partition, self._epoch = partition, partition.leader_epoch
        self._base_offset, self._last_offset, self._written = base_offset, last_offset, written

    def try_complete(self) -> bool:
        """Done once the high watermark has passed, or another leader is in charge."""
        if self._written.done():
            return True
        if not self._partition.is_leader or self._partition.leader_epoch != self._epoch:
            self._written.set_exception(KafkaError("another broker leads now", ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return True
        if self._partition.log.failure is not None:
            self._written.set_exception(StorageError(self._partition.log.failure))
            return True
        if self._partition.high_watermark <= self._last_offset:
            return False
        self._written.set_result(self._base_offset)
        return True

    def expire(self) -> None:
        """The replicas were too slow."""
        if not self._written.done():
            self._written.set_exception(KafkaError("not replicated in time", ErrorCode.REQUEST_TIMED_OUT))
