"""What the controller knows of the cluster, as its decisions see it. Pure; `loading` reads it from the tree."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headrace.coordination.model import Broker, PartitionLeadership, Replicas, Topic
from headrace.coordination.topics import TopicsView
from headrace.types import BrokerId, TopicPartition


@dataclass(slots=True)
class ClusterState:
    """Live brokers, topics, and who leads what. What is not in the tree is known to one controller only."""

    brokers: dict[BrokerId, Broker] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    leadership: dict[TopicPartition, PartitionLeadership] = field(default_factory=dict)
    deleting: set[str] = field(default_factory=set)
    shutting_down: set[BrokerId] = field(default_factory=set)
    """Live brokers that have asked to stop: not in the tree."""
    offline_replicas: dict[BrokerId, set[TopicPartition]] = field(default_factory=dict)
    """What live brokers have on log directories that failed: not in the tree."""

    def view(self) -> TopicsView:
        """What a decision about topics needs."""
        return TopicsView(self.topics.keys(), self.deleting, self.brokers)

    def partitions(self) -> Iterable[tuple[TopicPartition, Replicas]]:
        """Every partition of every topic."""
        for topic in self.topics.values():
            for number, replicas in topic.partitions.items():
                yield TopicPartition(topic.name, number), replicas

    def replicas(self, partition: TopicPartition) -> Replicas | None:
        """The replicas of a partition, or None where there is none of that name and number."""
        topic = self.topics.get(partition.topic)
        return None if topic is None else topic.partitions.get(partition.partition)

    def online(self, partition: TopicPartition) -> Mapping[BrokerId, Broker]:
        """The live brokers whose replica of the partition, if they have one, is on a disk that works."""
        failed = [broker for broker, offline in self.offline_replicas.items() if partition in offline]
        if not failed:
            return self.brokers
        return {number: broker for number, broker in self.brokers.items() if number not in failed}

    def at(self, broker_id: BrokerId) -> list[TopicPartition]:
        """The partitions that have a replica at a broker."""
        return [partition for partition, replicas in self.partitions() if broker_id in replicas.replicas]

    def moving(self) -> list[TopicPartition]:
        """The partitions that are being reassigned."""
        return [partition for partition, replicas in self.partitions() if replicas.is_moving]

    def put(self, partition: TopicPartition, replicas: Replicas) -> None:
        """Gives a partition other replicas."""
        topic = self.topics[partition.topic]
        partitions = {**topic.partitions, partition.partition: replicas}
        self.topics[partition.topic] = topic._replace(partitions=partitions)

    def forget(self, name: str) -> None:
        """The topic is gone."""
        topic = self.topics.pop(name)
        for number in topic.partitions:
            self.leadership.pop(TopicPartition(name, number), None)
        for offline in self.offline_replicas.values():
            offline -= {TopicPartition(name, number) for number in topic.partitions}
        self.deleting.discard(name)
