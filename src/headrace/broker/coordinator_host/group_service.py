"""The group service: the interface of handlers to this broker's group coordinator.

    handler ─request, reply─▶ GroupService ─▶ GroupCoordinator (pure) ─actions─▶ CoordinatorRuntime

Source: Kafka's `GroupCoordinatorService`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING

from headrace.broker.coordinator_host.coordinator_runtime import Appends, CoordinatorRuntime
from headrace.broker.coordinator_host.topics_view import TopicsView
from headrace.coordinators.groups.coordinator import GroupCoordinator
from headrace.coordinators.groups.group_event import Then
from headrace.coordinators.groups.loading import GroupLoading
from headrace.errors import ErrorCode
from headrace.in_slices import in_slices
from headrace.types import TopicPartition

if TYPE_CHECKING:
    from headrace.broker.coordinator_host.group_effects import GroupEffects
    from headrace.broker.coordinator_host.internal_topic import InternalTopic
    from headrace.config import BrokerConfig
    from headrace.coordinators.groups.classic.describing import ClassicGroupDescription
    from headrace.coordinators.groups.classic.members import Join
    from headrace.coordinators.groups.classic.requests import Left
    from headrace.coordinators.groups.commits import FetchedOffset
    from headrace.coordinators.groups.group import GroupOverview, GroupPosition
    from headrace.coordinators.groups.group_event import Actions
    from headrace.coordinators.groups.replies import Reply
    from headrace.coordinators.runtime import TransactionalProducer
    from headrace.metadata.deltas import MetadataDelta
    from headrace.metadata.group_configs import GroupConfigs
    from headrace.metadata.metadata_cache import MetadataCache
    from headrace.protocol import messages as m


def _random_id() -> str:
    from uuid import uuid4  # its import inspects the platform, which would cost time at the start

    return str(uuid4())


class GroupService:
    """The groups that this broker coordinates."""

    def __init__(
        self,
        config: BrokerConfig,
        topic: InternalTopic,
        metadata: MetadataCache,
        *,
        appends: Appends,
        spawn: Callable[[Coroutine[object, object, None]], object],
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
        new_id: Callable[[], str] = _random_id,
        group_configs: GroupConfigs | None = None,
    ) -> None:
        """`topic` is `__consumer_offsets`. Without `group_configs`, groups have none of their own."""
        self.topic = topic
        self._topics = TopicsView(metadata)
        number = None if group_configs is None else group_configs.number
        self._coordinator = GroupCoordinator(
            config,
            topic.partition_for,
            new_id,
            now_ms(),
            self._topics,
            number,
            lambda partition: appends.high_watermark(TopicPartition(topic.name, partition)),
        )
        self._spawn, self._loop = spawn, loop
        self._effects: GroupEffects | None = None
        self.runtime: CoordinatorRuntime[GroupLoading, Then] = CoordinatorRuntime(
            topic.name,
            self._coordinator,
            appends=appends,
            append_timeout_ms=config.offsets_commit_timeout_ms,
            spawn=spawn,
            loop=loop,
            now_ms=now_ms,
            perform=self._perform,
        )

    def on_metadata(self, delta: MetadataDelta) -> None:
        """Deletes the offsets of deleted topics in the groups that this broker coordinates. As in Apache Kafka, each
        coordinator does so upon UpdateMetadata, whichever broker or tool requested the deletion.

        A coordinator that was down reads the tombstones that another coordinator wrote meanwhile. If no replica of the
        partition was up, there are none: a topic that is still being deleted is reported at the start; offsets of a
        topic that is gone by then remain until they expire, as in Apache Kafka.
        """
        changed = self._topics.apply(delta)
        if delta.topics_deleted:
            self.runtime.run(self._coordinator.forget_topics(delta.names_deleted, self.runtime.now_ms()))
        if changed:
            self.request(lambda coordinator, now_ms: coordinator.topics_changed(changed, now_ms))

    @property
    def coordinator(self) -> GroupCoordinator:
        """The coordinator's state, for requests that only read it."""
        return self._coordinator

    def close(self) -> None:
        """Stops the coordinator, and what it has computed on threads."""
        self.runtime.close()
        if self._effects is not None:
            self._effects.close()

    def _perform(self, effect: object) -> None:
        if self._effects is None:
            from headrace.broker.coordinator_host.group_effects import GroupEffects  # with the first large group

            self._effects = GroupEffects(self._topics, self.request, self._spawn, self._loop)
        self._effects.perform(effect)

    # requests

    def request(self, decide: Callable[[GroupCoordinator, int], Actions]) -> None:
        """Executes what the coordinator decides about a request, given the time. The answer is among the actions."""
        self.runtime.run(decide(self._coordinator, self.runtime.now_ms()))

    def join(self, event: Join, reply: Reply) -> None:
        """JoinGroup; `reply` is called now or when the rebalance completes."""
        self.runtime.run(self._coordinator.classic.join(event, reply, self.runtime.now_ms()))

    def sync(self, request: m.SyncGroupRequest, reply: Reply) -> None:
        """SyncGroup; `reply` is called now or when the assignment is stored."""
        self.runtime.run(self._coordinator.classic.sync(request, reply, self.runtime.now_ms()))

    def commit(self, request: m.OffsetCommitRequest, api_version: int, reply: Reply) -> None:
        """OffsetCommit; `reply` is called when the offsets are stored."""
        self.runtime.run(self._coordinator.commit(request, api_version, reply, self.runtime.now_ms()))

    def heartbeat(self, request: m.HeartbeatRequest) -> ErrorCode:
        """Heartbeat, answered at once."""
        return self._coordinator.classic.heartbeat(request, self.runtime.now_ms())

    def leave(self, group_id: str, members: Iterable[m.LeaveGroupRequest.MemberIdentity]) -> Left:
        """LeaveGroup, answered at once."""
        left, actions = self._coordinator.classic.leave(group_id, members, self.runtime.now_ms())
        self.runtime.run(actions)
        return left

    def fetch_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None,
        require_stable: bool,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> tuple[ErrorCode, list[FetchedOffset]]:
        """OffsetFetch of one group, answered at once."""
        return self._coordinator.fetch_offsets(group_id, partitions, require_stable, member_id, member_epoch)

    async def look_up(self, names: Iterable[str]) -> None:
        """Reads topics, in slices: what a group needs of them is kept until they change."""
        async for name in in_slices(names):
            topic = self._topics.by_name(name)
            if topic is not None:
                _ = topic.hash

    # transactions

    def partition_of(self, group_id: str) -> TopicPartition:
        """The partition of `__consumer_offsets` with the group's offsets."""
        return TopicPartition(self.topic.name, self.topic.partition_for(group_id))

    def commit_in_transaction(
        self, request: m.TxnOffsetCommitRequest, api_version: int, producer: TransactionalProducer, reply: Reply
    ) -> None:
        """TxnOffsetCommit; `reply` is called when the offsets are stored."""
        now_ms = self.runtime.now_ms()
        self.runtime.run(self._coordinator.commit_in_transaction(request, api_version, producer, reply, now_ms))

    def availability(self, partition: int) -> ErrorCode:
        """NONE if this broker serves the groups of a partition of `__consumer_offsets`, else the reason."""
        return self._coordinator.partitions.availability(partition)

    def end_transaction(self, producer_id: int, partition: int, *, is_commit: bool) -> None:
        """Commits or drops the offsets of a transaction whose marker is durable in a partition of
        `__consumer_offsets`."""
        self._coordinator.end_transaction(producer_id, partition, is_commit=is_commit)

    # administration

    def overview(self, prefix: str = "") -> tuple[ErrorCode, list[GroupOverview]]:
        """ListGroups: every group that this broker coordinates; those of an instance, by the prefix of its names."""
        return self._coordinator.overview(prefix)

    def positions(self) -> list[GroupPosition]:
        """Returns all offsets committed by groups of this coordinator."""
        return self._coordinator.positions()

    def describe(self, group_id: str) -> ClassicGroupDescription:
        """DescribeGroups of one group."""
        return self._coordinator.classic.describe(group_id)

    def delete_group(self, group_id: str) -> ErrorCode:
        """DeleteGroups of one group."""
        error, actions = self._coordinator.delete_group(group_id, self.runtime.now_ms())
        self.runtime.run(actions)
        return error

    def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> tuple[ErrorCode, dict[TopicPartition, ErrorCode]]:
        """OffsetDelete of existing partitions: returns an error for the whole request, or one per partition."""
        error, results, actions = self._coordinator.delete_offsets(group_id, partitions, self.runtime.now_ms())
        self.runtime.run(actions)
        return error, results
