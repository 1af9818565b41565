"""The metadata store operations that create and delete topics. Pure; the paths are Kafka's.

leave            /config/topics/T   /brokers/topics/T
create           /config/topics/T   /brokers/topics/T   .../partitions   .../partitions/P   .../partitions/P/state
add partitions   /brokers/topics/T, and two nodes for each new partition
delete           all of these, the deepest first, and then the mark in /admin/delete_topics
"""

from collections.abc import Iterator, Mapping

from headrace.metadata import znodes
from headrace.metadata.model import PartitionLeadership, Topic
from headrace.metastore.store import Create, Op, Set
from headrace.types import TopicPartition


def make_topic(topic: Topic, settings: Mapping[str, str], *, has_settings: bool) -> list[Op]:
    """Writes a new topic. `has_settings`: the configs of an earlier topic of that name still exist."""
    config_path, config = znodes.config("topics", topic.name), znodes.encode_config(settings)
    return [
        Set(config_path, config) if has_settings else Create(config_path, config),
        Create(znodes.topic(topic.name), znodes.encode_topic(topic)),
        Create(znodes.partitions(topic.name)),
    ]


def leave_topic(topic: Topic, settings: Mapping[str, str], *, has_settings: bool) -> list[Op]:
    """Writes a new topic for the controller to take up, which writes the rest."""
    return make_topic(topic, settings, has_settings=has_settings)[:2]


def make_states(elected: Mapping[TopicPartition, PartitionLeadership]) -> Iterator[Create]:
    """Writes the first state of new partitions."""
    for (topic, number), leadership in elected.items():
        yield Create(znodes.partition(topic, number))
        yield Create(znodes.partition_state(topic, number), znodes.encode_leadership(leadership))


def nodes_of(topic: Topic) -> list[str]:
    """Every node that a topic may have, in an order in which they can be deleted."""
    below = [
        path
        for number in topic.partitions
        for path in (znodes.partition_state(topic.name, number), znodes.partition(topic.name, number))
    ]
    return [*below, znodes.partitions(topic.name), znodes.config("topics", topic.name), znodes.topic(topic.name)]
