"""Topics that log files are imported into: creates missing ones, refuses unfit ones, and warns about their settings.

`partition_import` writes the records of one partition.
"""

from collections.abc import Collection, Mapping

from headrace.client.core.cluster import Cluster
from headrace.client.operations.admin import RESOURCE_TOPIC, Admin, NewTopic
from headrace.client.operations.partition_import import Imported
from headrace.errors import ErrorCode, KafkaError, UnknownTopicOrPartition
from headrace.types import TopicPartition

TopicSettings = dict[str, str | None]
"""The values of a topic's settings, by Kafka's names."""


class ImportRefused(Exception):
    """A topic cannot take the records."""


class TooFewPartitions(ImportRefused):
    """The topic has fewer partitions than the source."""

    def __init__(self, topic: str, count: int, needed: int) -> None:
        super().__init__(f"topic {topic} has {count} partitions, {needed} are needed")
        self.topic: str = topic
        self.needed: int = needed


class PartitionNotEmpty(ImportRefused):
    """The partition has records already."""

    def __init__(self, partition: TopicPartition) -> None:
        super().__init__(f"{partition} is not empty")


def prepare_topics(
    cluster: Cluster,
    targets: Collection[TopicPartition],
    configs: Mapping[str, str | None],
    *,
    may_hold_records: bool,
    dry_run: bool,
) -> set[str]:
    """Creates missing topics, with `configs`, and returns their names; with `dry_run` only validates. Raises
    `TooFewPartitions`, and `PartitionNotEmpty` unless targets may hold records."""
    admin = Admin(cluster)
    created = set()
    for topic in sorted({each.topic for each in targets}):
        wanted = [each for each in targets if each.topic == topic]
        needed = max(each.partition for each in wanted) + 1
        try:
            count = len(admin.describe_topic(topic).partitions)
        except UnknownTopicOrPartition:
            created.add(topic)
            given = {name: value for name, value in configs.items() if value is not None}
            admin.create_topics([NewTopic(topic, needed, -1, given)], validate_only=dry_run)
            continue
        if count < needed:
            raise TooFewPartitions(topic, count, needed)
        held = [each for each, (_, end) in admin.watermarks(wanted).items() if end > 0]
        if held and not may_hold_records:
            raise PartitionNotEmpty(held[0])
    return created


def topic_settings(cluster: Cluster, topics: Collection[str]) -> dict[str, TopicSettings]:
    """The settings of each topic; none if the topic does not exist (in a dry run)."""
    admin = Admin(cluster)
    found: dict[str, TopicSettings] = {}
    for topic in topics:
        try:
            found[topic] = {entry.name: entry.value for entry in admin.describe_configs(RESOURCE_TOPIC, topic)}
        except KafkaError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            found[topic] = {}
    return found


def warnings_of(settings: Mapping[str, TopicSettings], imported: Collection[Imported], now_ms: float) -> list[str]:
    """Warnings about topics that replace timestamps, or will soon delete the imported records."""
    warnings = []
    for topic, values in sorted(settings.items()):
        newest_ms = max((each.newest_ms for each in imported if each.partition.topic == topic), default=-1)
        retention_ms = int(values.get("retention.ms") or -1)
        if values.get("message.timestamp.type") == "LogAppendTime":
            warnings.append(f"{topic}: timestamps are new, since its message.timestamp.type is LogAppendTime")
        elif retention_ms >= 0 and 0 <= newest_ms < now_ms - retention_ms:
            warnings.append(f"{topic}: all records are older than its retention.ms={retention_ms} and will be deleted")
    return warnings
