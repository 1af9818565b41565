"""The positions of all partitions of this broker that clients of Kafka 0.7 may use (`headrace.kafka07.enable`).

Leaders and followers keep an index each, so that a new leader has the positions of the old one. Brokers without such a
topic import none of this.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from headrace.broker.kafka07.anchors import forget_anchors
from headrace.broker.kafka07.partition_positions import PartitionPositions
from headrace.broker.partitions.partition import Partition
from headrace.broker.partitions.replica_manager import ReplicaManager
from headrace.config import TopicConfig
from headrace.errors import KafkaError, NotLeaderOrFollower, UnknownTopicOrPartition
from headrace.in_slices import Turns
from headrace.limits import CONVERTING_AT_ONCE_MAX
from headrace.metadata.deltas import MetadataDelta, TopicIdentity
from headrace.metadata.metadata_cache import MetadataCache
from headrace.metadata.znodes import CorruptNode
from headrace.metastore.store import MetadataStore, StoreError
from headrace.types import TopicPartition

log = logging.getLogger(__name__)

T = TypeVar("T")
KEEP_S = 1.0
"""How often the indexes are brought up to their logs."""
KEPT_AT_ONCE = 32
"""Partitions that are kept at the same time: most of what they wait for is the metadata store."""
_KEPT_PER_TURN = 50


class PositionIndexes:
    """The position indexes of this broker."""

    def __init__(
        self,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        store: MetadataStore,
        loop: asyncio.AbstractEventLoop,
        spawn: Callable[[Coroutine[object, object, None]], object],
    ) -> None:
        self._replicas, self._store, self._loop, self._spawn = replicas, store, loop, spawn
        self._threads = ThreadPoolExecutor(CONVERTING_AT_ONCE_MAX, "kafka07")
        self._partitions: dict[TopicPartition, PartitionPositions] = {}
        self._topics: set[str] = set()  # those that were here since the last deletion
        self._told: dict[TopicPartition, str] = {}
        for partition in replicas:
            self._changed(partition.key, partition)
        replicas.on_leadership(self._changed)
        replicas.configs.on_change(self._configured)
        metadata.on_change(self._metadata_changed)

    def leader(self, topic: str, number: int) -> PartitionPositions:
        """The positions of a partition that this broker leads.

        Raises as `ReplicaManager.leader`, and UnknownTopicOrPartition if clients of Kafka 0.7 may not use the topic.
        """
        partition = self._replicas.leader(topic, number)
        if not partition.log.config.kafka07_enable:
            raise UnknownTopicOrPartition(
                f"topic {topic} is not for clients of Kafka 0.7: set headrace.kafka07.enable=true"
            )
        self._changed(partition.key, partition)
        return self._partitions[partition.key]

    async def keep(self) -> None:
        """Keep the indexes up with their logs until it is cancelled."""
        while True:
            await asyncio.sleep(KEEP_S)
            await self.keep_once()

    async def keep_once(self) -> None:
        """Bring all indexes up to their logs, KEPT_AT_ONCE at a time."""
        left = iter(list(self._partitions.items()))
        turns = Turns(_KEPT_PER_TURN)

        async def keep_rest() -> None:
            for key, each in left:
                if self._partitions.get(key) is each:
                    await self._keep(key, each)
                await turns.count()  # an index that is up with its log waits for nothing

        async with asyncio.TaskGroup() as group:
            for _ in range(min(KEPT_AT_ONCE, len(self._partitions))):
                group.create_task(keep_rest())

    def close(self) -> None:
        """Stop the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _keep(self, key: TopicPartition, each: PartitionPositions) -> None:
        try:
            await each.keep()
        except NotLeaderOrFollower:
            pass  # a follower, whose leader has yet to begin
        except (KafkaError, StoreError, CorruptNode, OSError) as error:
            said = f"{type(error).__name__}: {error}"
            if self._told.get(key) != said:
                self._told[key] = said
                log.warning("the positions of %s for clients of Kafka 0.7 are not kept: %s", key, said)
        except Exception:  # a bug must not end the broker, whose task this is
            log.exception("the positions of %s for clients of Kafka 0.7 could not be kept", key)
        else:
            self._told.pop(key, None)

    def on_a_thread(self, work: Callable[[], T]) -> Awaitable[T]:
        """See `OnAThread`."""
        return self._loop.run_in_executor(self._threads, work)

    def _changed(self, key: TopicPartition, partition: Partition | None) -> None:
        if partition is None or not partition.log.config.kafka07_enable:
            if self._partitions.pop(key, None) is not None:
                self._told.pop(key, None)
                if partition is not None:
                    partition.log.positions = None
            return
        self._topics.add(key.topic)
        known = self._partitions.get(key)
        if known is None or known.partition is not partition:
            self._partitions[key] = PartitionPositions(partition, self._store, self.on_a_thread)

    def _configured(self, topic: str, config: TopicConfig) -> None:
        if config.kafka07_enable or any(key.topic == topic for key in self._partitions):
            for partition in self._replicas:
                if partition.key.topic == topic:
                    self._changed(partition.key, partition)

    def _metadata_changed(self, delta: MetadataDelta) -> None:
        for topic in delta.topics_deleted if self._topics else ():
            if topic.name in self._topics:
                self._topics.discard(topic.name)
                self._spawn(self._forget(topic))

    async def _forget(self, topic: TopicIdentity) -> None:
        try:
            await forget_anchors(self._store, topic)
        except (StoreError, CorruptNode) as error:  # they are of no use to a new topic of that name, with another id
            log.info("the anchors of deleted topic %s are left: %s", topic.name, type(error).__name__)
