"""The share state service: the share partitions that this broker coordinates, for handlers and for its own persister.

    handler, persister ─partitions─▶ ShareStateService ─▶ ShareCoordinator (pure) ─actions─▶ CoordinatorRuntime
                                                                                  └─Prune─▶ deletes old records

Thousands of share partitions, or of state batches, are handed over in slices. Source: Kafka's
`ShareCoordinatorService`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from headrace.broker.coordinator_host.coordinator_runtime import Appends, CoordinatorRuntime
from headrace.coordinators.share_state.coordinator import ShareCoordinator
from headrace.coordinators.share_state.keys import key_text
from headrace.coordinators.share_state.loading import ShareStateLoading
from headrace.coordinators.share_state.persister import (
    InitialState,
    PersisterOutcome,
    SharePartitionKey,
    SharePartitionState,
    StateUpdate,
    Summary,
    TopicIdPartition,
)
from headrace.coordinators.share_state.requests import (
    DeleteState,
    Prune,
    ReadState,
    ReadSummary,
    RecordsWritten,
    Request,
    What,
)
from headrace.coordinators.share_state.settings import ShareStateSettings
from headrace.errors import KafkaError
from headrace.limits import ELEMENTS_PER_SLICE
from headrace.types import TopicPartition

if TYPE_CHECKING:
    from headrace.broker.coordinator_host.internal_topic import InternalTopic
    from headrace.broker.partitions.replica_manager import ReplicaManager
    from headrace.config import BrokerConfig
    from headrace.metadata.deltas import MetadataDelta
    from headrace.metadata.metadata_cache import MetadataCache

log = logging.getLogger(__name__)


class ShareStateService:
    """The share partitions that this broker coordinates. It is a `Persister` for them; without retries."""

    def __init__(
        self,
        config: BrokerConfig,
        topic: InternalTopic,
        *,
        metadata: MetadataCache,
        replicas: ReplicaManager,
        appends: Appends,
        spawn: Callable[[Coroutine[object, object, None]], object],
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
    ) -> None:
        """`topic` is `__share_group_state`."""
        self.topic = topic
        self._metadata, self._replicas, self._loop = metadata, replicas, loop
        self._pruned: dict[int, int] = {}
        self.writes = self.write_requests = self.write_ns = 0
        """Share partitions written, and the requests for them with the time until they are stored."""
        settings = ShareStateSettings(
            updates_per_snapshot=config.share_state_updates_per_snapshot,
            prune_interval_ms=config.share_state_prune_interval_ms,
            cold_snapshot_interval_ms=config.share_state_cold_snapshot_interval_ms,
        )
        self._coordinator = ShareCoordinator(
            settings, lambda key: topic.partition_for(key_text(key)), self._partition_count, now_ms()
        )
        self.runtime: CoordinatorRuntime[ShareStateLoading, RecordsWritten] = CoordinatorRuntime(
            topic.name,
            self._coordinator,
            appends=appends,
            append_timeout_ms=config.share_state_write_timeout_ms,
            spawn=spawn,
            loop=loop,
            now_ms=now_ms,
            perform=self._perform,
        )

    def _partition_count(self, topic_id: bytes) -> int:
        topic = self._metadata.topic_by_id(topic_id)
        return 0 if topic is None else len(topic.partitions)

    def on_metadata(self, delta: MetadataDelta) -> None:
        """Removes the state of deleted topics."""
        if delta.topics_deleted:
            deleted = [each.id for each in delta.topics_deleted]
            self.runtime.run(self._coordinator.forget_topics(deleted, self.runtime.now_ms()))

    @property
    def share_partitions(self) -> int:
        """The number of share partitions that this broker coordinates."""
        return self._coordinator.share_partitions

    @property
    def partition_states(self) -> dict[str, int]:
        """The number of partitions of `__share_group_state` that this broker leads, by state."""
        partitions = self._coordinator.partitions
        return {"loading": len(partitions.loading), "active": partitions.active}

    # Requests: each share partition has its result

    async def initialize(
        self, group_id: str, partitions: Mapping[TopicIdPartition, InitialState]
    ) -> dict[TopicIdPartition, PersisterOutcome]:
        """InitializeShareGroupState."""
        return await self._ask(group_id, partitions.items())

    async def read(
        self, group_id: str, leader_epochs: Mapping[TopicIdPartition, int]
    ) -> dict[TopicIdPartition, SharePartitionState]:
        """ReadShareGroupState."""
        return await self._ask(group_id, ((key, ReadState(epoch)) for key, epoch in leader_epochs.items()))

    async def write(
        self, group_id: str, updates: Mapping[TopicIdPartition, StateUpdate]
    ) -> dict[TopicIdPartition, PersisterOutcome]:
        """WriteShareGroupState."""
        began_s = self._loop.time()
        results = await self._ask(group_id, updates.items())
        self.writes += len(updates)
        self.write_requests += 1
        self.write_ns += int((self._loop.time() - began_s) * 1e9)
        return results

    async def delete(
        self, group_id: str, partitions: Iterable[TopicIdPartition]
    ) -> dict[TopicIdPartition, PersisterOutcome]:
        """DeleteShareGroupState."""
        return await self._ask(group_id, ((key, DeleteState()) for key in partitions))

    async def read_summary(
        self, group_id: str, leader_epochs: Mapping[TopicIdPartition, int]
    ) -> dict[TopicIdPartition, Summary]:
        """ReadShareGroupStateSummary."""
        return await self._ask(group_id, ((key, ReadSummary()) for key in leader_epochs))

    async def _ask(self, group_id: str, wanted: Iterable[tuple[TopicIdPartition, What]]) -> dict[TopicIdPartition, Any]:
        """Asks the coordinator for each share partition, in slices, and waits for all results."""
        answers = _Answers(self._loop)
        some: list[Request] = []
        weight = 0
        for key, what in wanted:
            some.append(Request(SharePartitionKey(group_id, *key), what, answers.expect(key)))
            weight += 1 + (len(what.state_batches) if isinstance(what, StateUpdate) else 0)
            if weight >= ELEMENTS_PER_SLICE:
                self.runtime.run(self._coordinator.submit(some, self.runtime.now_ms()))
                some, weight = [], 0
                await asyncio.sleep(0)
        if some:
            self.runtime.run(self._coordinator.submit(some, self.runtime.now_ms()))
        return await answers.all()

    # Effects

    def _perform(self, effect: object) -> None:
        """Deletes the records of a partition that are not needed any more."""
        if not isinstance(effect, Prune) or self._pruned.get(effect.partition) == effect.before_offset:
            return
        try:
            partition = self._replicas.leader(self.topic.name, effect.partition)
            partition.delete_records(effect.before_offset, self.runtime.now_ms())
        except KafkaError as error:
            log.warning(
                "records of %s before offset %d could not be deleted: %s",
                TopicPartition(self.topic.name, effect.partition),
                effect.before_offset,
                error,
            )
            return
        self._pruned[effect.partition] = effect.before_offset
        self._replicas.logs.checkpoint_log_starts_soon()


class _Answers:
    """The results of requests, which come one by one."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._results: dict[TopicIdPartition, Any] = {}
        self._missing = 0
        self._all: asyncio.Future[None] = loop.create_future()
        self._is_awaited = False

    def expect(self, key: TopicIdPartition) -> Callable[[Any], None]:
        """The function to call with the result of one more share partition."""
        self._missing += 1

        def take(result: Any) -> None:
            self._results[key] = result
            self._missing -= 1
            if not self._missing and self._is_awaited and not self._all.done():
                self._all.set_result(None)

        return take

    async def all(self) -> dict[TopicIdPartition, Any]:
        """The results, when there is one for each."""
        self._is_awaited = True
        if self._missing:
            await self._all
        return self._results
