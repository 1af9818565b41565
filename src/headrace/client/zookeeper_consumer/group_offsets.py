"""Where a group's offsets are: in ZooKeeper, in Kafka's offsets topic, or in both while a group moves to the topic.

    offsets_storage      zookeeper      kafka           kafka
    dual_commit_enabled                 False           True
    read                 ZooKeeper      the topic       the greater of both
    write                ZooKeeper      the topic       the topic, then ZooKeeper

In the topic they are those of a simple consumer: without a member or a generation, so that the coordinator fences
nobody. A consumer therefore asks ZooKeeper whether its session lives before it writes there: after a long sleep it
would move the offsets of its successor. Source: Kafka 0.8.2's `ZookeeperConsumerConnector`, which does not ask.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from headrace.client.consumer.group_session import GroupSession, GroupTimes
from headrace.client.consumer.membership import Membership
from headrace.client.core.cluster import Cluster
from headrace.client.core.timing import Deadline
from headrace.client.zookeeper_consumer.group_registry import GroupRegistry
from headrace.client.zookeeper_consumer.settings import KAFKA, ConnectorSettings
from headrace.types import Offset, TopicPartition

_COMMIT_TIMEOUT_MS = 10_000
"""Kafka's `offsets.channel.socket.timeout.ms`. No rebalance begins meanwhile."""


class OffsetStorage:
    """The committed offsets of a group. Writes only what has changed since this consumer read or wrote it."""

    def __init__(self, group: str, registry: GroupRegistry, cluster: Cluster, settings: ConnectorSettings) -> None:
        self._registry = registry
        self._in_kafka: GroupSession | None = None
        if settings.offsets_storage == KAFKA:
            times = GroupTimes()
            member = Membership(group, (), times.session_timeout_ms, times.max_poll_interval_ms)
            self._in_kafka = GroupSession(cluster, member, times)
        self._in_zookeeper = self._in_kafka is None or settings.dual_commit_enabled
        self._known: dict[TopicPartition, Offset] = {}

    def read(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Offset]:
        """The committed offsets, without partitions that have none. Raises KafkaError."""
        found = self._registry.read_offsets(partitions) if self._in_zookeeper else {}
        if self._in_kafka is not None and partitions:
            for partition, place in self._in_kafka.committed(list(partitions)).items():
                found[partition] = max(Offset(place.offset), found.get(partition, Offset(place.offset)))
        self.forget(partitions)
        self._known.update(found)
        return found

    def write(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Commit. Raises KafkaError; NoNode if the session ended."""
        changed = {partition: offset for partition, offset in offsets.items() if self._known.get(partition) != offset}
        if not changed:
            return
        if self._in_kafka is not None:
            self._registry.check_registered()
            self._in_kafka.commit(changed, Deadline.after_ms(_COMMIT_TIMEOUT_MS))
        if self._in_zookeeper:
            self._registry.write_offsets(changed)
        self._known.update(changed)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Others may write these from now on."""
        for partition in partitions:
            self._known.pop(partition, None)

    def close(self) -> None:
        """Close the connection to the coordinator."""
        if self._in_kafka is not None:
            self._in_kafka.close()
