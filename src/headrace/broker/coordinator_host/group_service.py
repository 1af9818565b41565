"""The group service: the interface of handlers to this broker's group coordinator.

    handler ─request, reply─▶ GroupService ─▶ GroupCoordinator (pure) ─actions─▶ CoordinatorRuntime

Source: Kafka's `GroupCoordinatorService`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING

from headrace.broker.coordinator_host.coordinator_runtime import Appends, CoordinatorRuntime
from headrace.coordinators.groups.actions import Then
from headrace.coordinators.groups.coordinator import GroupCoordinator, Left
from headrace.coordinators.groups.loading import Loading
from headrace.errors import ErrorCode
from headrace.types import TopicPartition

if TYPE_CHECKING:
    from headrace.broker.coordinator_host.internal_topic import InternalTopic
    from headrace.config import BrokerConfig
    from headrace.coordinators.groups.commits import FetchedOffset
    from headrace.coordinators.groups.describing import GroupDescription, GroupOverview, Position
    from headrace.coordinators.groups.members import Join
    from headrace.coordinators.groups.replies import Reply
    from headrace.coordinators.runtime import TransactionalProducer
    from headrace.metadata.deltas import MetadataDelta
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
        *,
        appends: Appends,
        spawn: Callable[[Coroutine[object, object, None]], object],
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
        new_id: Callable[[], str] = _random_id,
    ) -> None:
        """`topic` is `__consumer_offsets`."""
        self.topic = topic
        self._coordinator = GroupCoordinator(config, topic.partition_for, new_id, now_ms())
        self.runtime: CoordinatorRuntime[Loading, Then] = CoordinatorRuntime(
            topic.name,
            self._coordinator,
            appends=appends,
            append_timeout_ms=config.offsets_commit_timeout_ms,
            spawn=spawn,
            loop=loop,
            now_ms=now_ms,
        )

    def on_metadata(self, delta: MetadataDelta) -> None:
        """Deletes the offsets of deleted topics in the groups that this broker coordinates. As in Apache Kafka, each
        coordinator does so upon UpdateMetadata, whichever broker or tool requested the deletion.

        A coordinator that was down reads the tombstones that another coordinator wrote meanwhile. If no replica of the
        partition was up, there are none: a topic that is still being deleted is reported at the start; offsets of a
        topic that is gone by then remain until they expire, as in Apache Kafka.
        """
        if delta.topics_deleted:
            self.runtime.run(self._coordinator.forget_topics(delta.names_deleted, self.runtime.now_ms()))

    # requests

    def join(self, event: Join, reply: Reply) -> None:
        """JoinGroup; `reply` is called now or when the rebalance completes."""
        self.runtime.run(self._coordinator.join(event, reply, self.runtime.now_ms()))

    def sync(self, request: m.SyncGroupRequest, reply: Reply) -> None:
        """SyncGroup; `reply` is called now or when the assignment is stored."""
        self.runtime.run(self._coordinator.sync(request, reply, self.runtime.now_ms()))

    def commit(self, request: m.OffsetCommitRequest, reply: Reply) -> None:
        """OffsetCommit; `reply` is called when the offsets are stored."""
        self.runtime.run(self._coordinator.commit(request, reply, self.runtime.now_ms()))

    def heartbeat(self, request: m.HeartbeatRequest) -> ErrorCode:
        """Heartbeat, answered at once."""
        return self._coordinator.heartbeat(request, self.runtime.now_ms())

    def leave(self, group_id: str, members: Iterable[m.LeaveGroupRequest.MemberIdentity]) -> Left:
        """LeaveGroup, answered at once."""
        left, actions = self._coordinator.leave(group_id, members, self.runtime.now_ms())
        self.runtime.run(actions)
        return left

    def fetch_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None, require_stable: bool
    ) -> tuple[ErrorCode, list[FetchedOffset]]:
        """OffsetFetch of one group, answered at once."""
        return self._coordinator.fetch_offsets(group_id, partitions, require_stable)

    # transactions

    def partition_of(self, group_id: str) -> TopicPartition:
        """The partition of `__consumer_offsets` with the group's offsets."""
        return TopicPartition(self.topic.name, self.topic.partition_for(group_id))

    def commit_in_transaction(
        self, request: m.TxnOffsetCommitRequest, producer: TransactionalProducer, reply: Reply
    ) -> None:
        """TxnOffsetCommit; `reply` is called when the offsets are stored."""
        self.runtime.run(self._coordinator.commit_in_transaction(request, producer, reply, self.runtime.now_ms()))

    def availability(self, partition: int) -> ErrorCode:
        """NONE if this broker serves the groups of a partition of `__consumer_offsets`, else the reason."""
        return self._coordinator.partitions.availability(partition)

    def end_transaction(self, producer_id: int, partition: int, *, is_commit: bool) -> None:
        """Commits or drops the offsets of a transaction whose marker is durable in a partition of
        `__consumer_offsets`."""
        self._coordinator.end_transaction(producer_id, partition, is_commit=is_commit)

    # administration

    def overview(self) -> tuple[ErrorCode, list[GroupOverview]]:
        """ListGroups: every group that this broker coordinates."""
        return self._coordinator.overview()

    def positions(self) -> list[Position]:
        """Returns all offsets committed by groups of this coordinator."""
        return self._coordinator.positions()

    def describe(self, group_id: str) -> GroupDescription:
        """DescribeGroups of one group."""
        return self._coordinator.describe(group_id)

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
