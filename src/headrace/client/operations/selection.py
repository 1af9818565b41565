"""The brokers and partitions that a user names, checked against the cluster. Pure."""

from collections.abc import Collection, Iterable

from headrace.client.core.metadata import ClusterView
from headrace.client.operations.health import partitions_of
from headrace.types import TopicPartition


class NotThere(ValueError):
    """A broker, topic or partition that the cluster does not have."""


def check_brokers(view: ClusterView, brokers: Collection[int]) -> None:
    """Raises NotThere for the lowest id that is not a live broker."""
    if unknown := set(brokers) - set(view.brokers):
        there = ", ".join(map(str, sorted(view.brokers)))
        raise NotThere(f"broker {min(unknown)} does not exist; the brokers are: {there}")


def partitions_named(view: ClusterView, names: Iterable[str]) -> set[TopicPartition]:
    """The partitions that `TOPIC` and `TOPIC:PARTITION` name. Raises NotThere."""
    by_topic: dict[str, set[TopicPartition]] = {}
    for partition, _ in partitions_of(view):
        by_topic.setdefault(partition.topic, set()).add(partition)
    chosen: set[TopicPartition] = set()
    for name in names:
        topic, colon, number = name.rpartition(":")
        found = by_topic.get(name, set())
        if not found and colon and number.isdecimal():
            found = {TopicPartition(topic, int(number))} & by_topic.get(topic, set())
        if not found:
            raise NotThere(f"topic or partition {name} does not exist; give TOPIC or TOPIC:PARTITION")
        chosen |= found
    return chosen
