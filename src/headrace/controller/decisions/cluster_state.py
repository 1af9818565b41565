"""The controller's state of the cluster: live brokers, topics, leaderships. Pure; `controller.loading` loads it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.controller.decisions.topics import ClusterTopics, flat_name
from headrace.metadata.model import Broker, PartitionLeadership, Replicas, Topic
from headrace.types import BrokerId, TopicPartition

_NO_BROKER: frozenset[BrokerId] = frozenset()


class Liveness(NamedTuple):
    """The part of the state that concerns live brokers."""

    brokers: dict[BrokerId, Broker]
    shutting_down: set[BrokerId]
    offline_replicas: dict[BrokerId, set[TopicPartition]]
    suspected: set[BrokerId]


def _is_same(before: Broker, now: Broker | None) -> bool:
    return now is not None and now.epoch == before.epoch


class TopicsByName(dict[str, Topic]):
    """Topics by name, with an index by `flat_name`, in which each new topic looks for a collision."""

    def __init__(self, topics: Mapping[str, Topic] | None = None) -> None:
        super().__init__()
        self.flat_names: dict[str, dict[str, None]] = {}
        for name, topic in (topics or {}).items():
            self[name] = topic

    def __setitem__(self, name: str, topic: Topic) -> None:
        super().__setitem__(name, topic)
        self.flat_names.setdefault(flat_name(name), {})[name] = None

    def remove(self, name: str) -> Topic:
        """Removes a topic."""
        same = self.flat_names[flat_name(name)]
        del same[name]
        if not same:
            del self.flat_names[flat_name(name)]
        return super().pop(name)


@dataclass(slots=True)
class ClusterState:
    """Live brokers, topics, and partition leaderships. The next controller does not know the fields that are not in
    the metadata store."""

    brokers: dict[BrokerId, Broker] = field(default_factory=dict)
    topics: TopicsByName = field(default_factory=TopicsByName)
    leadership: dict[TopicPartition, PartitionLeadership] = field(default_factory=dict)
    deleting: set[str] = field(default_factory=set)
    shutting_down: set[BrokerId] = field(default_factory=set)
    """Live brokers that have requested a controlled shutdown. Not in the metadata store."""
    offline_replicas: dict[BrokerId, set[TopicPartition]] = field(default_factory=dict)
    """Replicas of live brokers on failed log directories. Not in the metadata store."""

    suspected: set[BrokerId] = field(default_factory=set)
    """Live brokers that refuse the controller's connections and are not fenced. Not in the metadata store."""

    min_insync_replicas: Callable[[str], int] = lambda _topic: 1
    """The topic's `min.insync.replicas`."""

    is_complete: bool = True
    """Whether every topic in the metadata store is here. A topic whose node is malformed is not."""

    def replace_brokers(self, brokers: Mapping[BrokerId, Broker]) -> Liveness:
        """Replaces the live brokers, and drops the state of brokers that are gone or registered anew. Returns the
        previous state for `restore_brokers`."""
        before = Liveness(self.brokers, self.shutting_down, self.offline_replicas, self.suspected)
        same = {number for number, each in self.brokers.items() if _is_same(each, brokers.get(number))}
        self.brokers = {number: self.brokers[number] if number in same else each for number, each in brokers.items()}
        self.shutting_down, self.suspected = self.shutting_down & same, self.suspected & same
        self.offline_replicas = {each: offline for each, offline in self.offline_replicas.items() if each in same}
        return before

    def restore_brokers(self, before: Liveness) -> None:
        """Restores the live brokers, because the elections that follow from the new ones could not be written."""
        self.brokers, self.shutting_down, self.offline_replicas, self.suspected = before

    @property
    def not_preferred(self) -> set[BrokerId]:
        """The live brokers that leadership is not given back to."""
        return self.shutting_down | self.suspected

    def view(self) -> ClusterTopics:
        """The view for decisions about topics."""
        return ClusterTopics(self.topics.keys(), self.topics.flat_names, self.deleting, self.brokers)

    def partitions(self) -> Iterable[tuple[TopicPartition, Replicas]]:
        """Every partition of every topic."""
        for topic in self.topics.values():
            for number, replicas in topic.partitions.items():
                yield TopicPartition(topic.name, number), replicas

    def replicas(self, partition: TopicPartition) -> Replicas | None:
        """The replicas of a partition, or None if it does not exist."""
        topic = self.topics.get(partition.topic)
        return None if topic is None else topic.partitions.get(partition.partition)

    def online(self, partition: TopicPartition) -> Mapping[BrokerId, Broker]:
        """The live brokers without those whose replica of the partition is on a failed log directory."""
        failed = self.failed_at(partition)
        if not failed:
            return self.brokers
        return {number: broker for number, broker in self.brokers.items() if number not in failed}

    def failed_at(self, partition: TopicPartition) -> frozenset[BrokerId]:
        """The live brokers whose replica of the partition is on a failed log directory."""
        if not self.offline_replicas:
            return _NO_BROKER
        return frozenset(broker for broker, offline in self.offline_replicas.items() if partition in offline)

    def min_isr(self, partition: TopicPartition) -> int:
        """`min.insync.replicas` of a partition that exists, but at most the number of its replicas."""
        replicas = self.topics[partition.topic].partitions[partition.partition].replicas
        return min(self.min_insync_replicas(partition.topic), len(replicas))

    def at(self, broker_id: BrokerId) -> list[TopicPartition]:
        """The partitions that have a replica on a broker."""
        return [partition for partition, replicas in self.partitions() if broker_id in replicas.replicas]

    def moving(self) -> list[TopicPartition]:
        """The partitions that are being reassigned."""
        return [
            TopicPartition(topic.name, number)
            for topic in self.topics.values()
            for number, replicas in topic.partitions.items()
            if replicas.adding or replicas.removing
        ]

    def put(self, partition: TopicPartition, replicas: Replicas) -> None:
        """Replaces the replicas of a partition."""
        topic = self.topics[partition.topic]
        partitions = {**topic.partitions, partition.partition: replicas}
        self.topics[partition.topic] = topic._replace(partitions=partitions)

    def forget(self, name: str) -> None:
        """Removes a deleted topic."""
        topic = self.topics.remove(name)
        for number in topic.partitions:
            self.leadership.pop(TopicPartition(name, number), None)
        for offline in self.offline_replicas.values():
            offline -= {TopicPartition(name, number) for number in topic.partitions}
        self.deleting.discard(name)
