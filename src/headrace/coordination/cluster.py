"""What the controller knows of the cluster: the tree's content, read once, then kept up to date by its own writes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headrace.coordination import paths
from headrace.coordination.model import Broker, PartitionLeadership, Replicas, Topic
from headrace.coordination.topics import TopicsView
from headrace.coordination.tree import Tree, Watch
from headrace.types import BrokerId, TopicPartition


@dataclass(slots=True)
class ClusterState:
    """Live brokers, topics, and who leads what."""

    brokers: dict[BrokerId, Broker] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    leadership: dict[TopicPartition, PartitionLeadership] = field(default_factory=dict)
    deleting: set[str] = field(default_factory=set)
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

    def online(self, partition: TopicPartition) -> Mapping[BrokerId, Broker]:
        """The live brokers whose replica of the partition, if they have one, is on a disk that works."""
        failed = [broker for broker, offline in self.offline_replicas.items() if partition in offline]
        if not failed:
            return self.brokers
        return {number: broker for number, broker in self.brokers.items() if number not in failed}

    def forget(self, name: str) -> None:
        """The topic is gone."""
        topic = self.topics.pop(name)
        for number in topic.partitions:
            self.leadership.pop(TopicPartition(name, number), None)
            for offline in self.offline_replicas.values():
                offline.discard(TopicPartition(name, number))
        self.deleting.discard(name)


async def load_brokers(tree: Tree, watch: Watch | None = None) -> dict[BrokerId, Broker]:
    """The live brokers; `watch` fires when one comes or goes. A registration made anew is seen as another child."""
    ids = [int(name) for name in await tree.children(paths.BROKER_IDS, watch)]
    nodes = await tree.get_many([paths.broker(number) for number in ids])
    return {
        BrokerId(number): paths.decode_broker(number, node.data, node.czxid)
        for number, node in zip(ids, nodes, strict=True)
        if node is not None
    }


async def load_cluster(tree: Tree, watch_brokers: Watch) -> ClusterState:
    """Everything that the controller decides on."""
    state = ClusterState(brokers=await load_brokers(tree, watch_brokers))
    names = await tree.children(paths.TOPICS)
    nodes = await tree.get_many([paths.topic(name) for name in names])
    for name, node in zip(names, nodes, strict=True):
        if node is not None:
            state.topics[name] = paths.decode_topic(name, node.data)
    partitions = [partition for partition, _ in state.partitions()]
    states = await tree.get_many([paths.partition_state(*partition) for partition in partitions])
    for partition, found in zip(partitions, states, strict=True):
        if found is not None:
            state.leadership[partition] = paths.decode_leadership(found.data, found.version, found.mzxid)
    state.deleting = set(await tree.children(paths.DELETE_TOPICS)) & set(state.topics)
    return state
