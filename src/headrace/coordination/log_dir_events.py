"""Data directories that fail, as the brokers and the controller speak of them.

    broker       makes /log_dir_event_notification/log_dir_event_N {"version":1,"broker":0,"event":1}
    controller   sees it, asks that broker with LeaderAndIsr for all it has, and removes the node
    broker       answers KAFKA_STORAGE_ERROR for each partition that it cannot serve
    controller   elects another leader for these, or none, and tells everybody

The same answer to any other LeaderAndIsr, at a start above all, has the same effect; NONE for a partition that was
offline takes that back. Source: Kafka's `KafkaController` (`processLogDirEventNotification`,
`processLeaderAndIsrResponseReceived`).
"""

from headrace.coordination import paths
from headrace.coordination.cluster import ClusterState
from headrace.coordination.tree import NoNode, Tree, Watch
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.types import BrokerId, TopicPartition


async def announce(tree: Tree, broker_id: BrokerId) -> None:
    """Has the controller ask this broker what it can still, or again, serve."""
    await tree.create(paths.LOG_DIR_EVENT_PREFIX, paths.encode_log_dir_event(broker_id), sequential=True)


async def take_events(tree: Tree, watch: Watch) -> set[BrokerId]:
    """The brokers that have something to say; their nodes are gone. `watch` fires at the next event."""
    names = await tree.children(paths.LOG_DIR_EVENTS, watch)
    found = [f"{paths.LOG_DIR_EVENTS}/{name}" for name in names]
    nodes = await tree.get_many(found)
    brokers = set()
    for path, node in zip(found, nodes, strict=True):
        if node is None:
            continue
        try:
            brokers.add(paths.decode_log_dir_event(node.data))
        except paths.CorruptNode:
            pass  # nobody knows whom it is of
        try:
            await tree.delete(path)
        except NoNode:
            continue
    return brokers


def note_answers(state: ClusterState, broker_id: BrokerId, response: m.LeaderAndIsrResponse) -> set[TopicPartition]:
    """Takes over which partitions a broker could serve; those of which that has changed."""
    names = {topic.id: topic.name for topic in state.topics.values()}
    offline = state.offline_replicas.setdefault(broker_id, set())
    changed = set()
    for topic in response.topics:
        for each in topic.partition_errors:
            partition = TopicPartition(each.topic_name or names.get(topic.topic_id, ""), each.partition_index)
            if each.error_code == ErrorCode.KAFKA_STORAGE_ERROR and partition not in offline:
                offline.add(partition)
                changed.add(partition)
            elif each.error_code == ErrorCode.NONE and partition in offline:
                offline.discard(partition)
                changed.add(partition)
    if not offline:
        del state.offline_replicas[broker_id]
    return changed
