"""The operations on the tree by which the controller makes and deletes topics. Pure; the paths are Kafka's.

made      /config/topics/T   /brokers/topics/T   .../partitions   .../partitions/P   .../partitions/P/state
grown     /brokers/topics/T, and the new partitions' two nodes each
deleted   all of these, the deepest first, and then the mark in /admin/delete_topics
"""

from collections.abc import Iterator, Mapping

from headrace.coordination import paths
from headrace.coordination.model import PartitionLeadership, Topic
from headrace.coordination.tree import Create, Op, Set
from headrace.types import TopicPartition


def make_topic(topic: Topic, settings: Mapping[str, str], *, has_settings: bool) -> list[Op]:
    """Writes a new topic; `has_settings` when settings of an earlier topic of that name are still there."""
    config_path, config = paths.config("topics", topic.name), paths.encode_config(settings)
    return [
        Set(config_path, config) if has_settings else Create(config_path, config),
        Create(paths.topic(topic.name), paths.encode_topic(topic)),
        Create(paths.partitions(topic.name)),
    ]


def make_states(elected: Mapping[TopicPartition, PartitionLeadership]) -> Iterator[Create]:
    """Writes the first state of new partitions."""
    for (topic, number), leadership in elected.items():
        yield Create(paths.partition(topic, number))
        yield Create(paths.partition_state(topic, number), paths.encode_leadership(leadership))


def nodes_of(topic: Topic) -> list[str]:
    """Every node that a topic may have, in the order in which they can be deleted."""
    below = [
        path
        for number in topic.partitions
        for path in (paths.partition_state(topic.name, number), paths.partition(topic.name, number))
    ]
    return [*below, paths.partitions(topic.name), paths.config("topics", topic.name), paths.topic(topic.name)]
