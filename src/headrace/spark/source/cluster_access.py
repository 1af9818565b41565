"""Access to a cluster for Spark reads: kafka.* options as client settings, and offset lookups.

headrace's client uses these kafka.* options. It ignores others, which users of the connector set for the Java consumer:

    client.id                              the name in the broker's logs and quotas
    request.timeout.ms                     how long one request may take
    default.api.timeout.ms                 how long one question may take, with retries
    retry.backoff.ms, retry.backoff.max.ms pause between retries
    metadata.max.age.ms                    how long a leader is taken for one
    socket.connection.setup.timeout.ms     how long a connection may take
    security.protocol, ssl.*, sasl.*       see `headrace.client.security`
    isolation.level                        read_uncommitted (as in the connector) or read_committed
    max.partition.fetch.bytes              how much to ask for at once
    client.rack                            read from replicas in this rack
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from headrace.client.consumer.fetching import READ_COMMITTED, READ_UNCOMMITTED, FetchSizes
from headrace.client.core.cluster import Cluster
from headrace.client.core.metadata import ClusterView
from headrace.client.core.settings import ClientSettings, parse_addresses
from headrace.client.operations.admin import EARLIEST, LATEST, Admin
from headrace.client.security.client_options import client_settings as make_settings
from headrace.errors import ErrorCode, InvalidConfig
from headrace.spark.option_values import client_refusal
from headrace.spark.source.options import Assign, OptionError, Selection, SourceOptions, Subscribe, SubscribePattern
from headrace.types import TopicPartition

_ISOLATION_LEVELS: Final = MappingProxyType({"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED})


def connect(options: SourceOptions, *, waits_for_brokers: bool = True) -> Cluster:
    """A client of the cluster, which connects when needed. Raises OptionError for settings that cannot be used."""
    try:
        parse_addresses(options.bootstrap_servers)
    except ValueError as wrong:
        raise OptionError("kafka.bootstrap.servers", options.bootstrap_servers, str(wrong)) from wrong
    settings = client_settings(options.client_settings).replace(waits_for_brokers=waits_for_brokers)
    return Cluster(options.bootstrap_servers, settings)


def client_settings(given: Mapping[str, str]) -> ClientSettings:
    """The client settings in the kafka.* options, without their prefix. Reads files of keys and secrets.

    Each task has a client of its own, so a task that begins while brokers restart has to wait for them.
    """
    try:
        return make_settings(given, ClientSettings(client_id="headrace-spark", waits_for_brokers=True), prefix="kafka.")
    except InvalidConfig as wrong:
        raise client_refusal(given, wrong) from None


def isolation_level(given: Mapping[str, str]) -> int:
    """The isolation level of Fetch and ListOffsets requests."""
    name = given.get("isolation.level", "read_uncommitted").strip().lower()
    if name not in _ISOLATION_LEVELS:
        raise OptionError("kafka.isolation.level", name, "is read_uncommitted or read_committed")
    return _ISOLATION_LEVELS[name]


def fetch_sizes(given: Mapping[str, str]) -> FetchSizes:
    """The fetch sizes of a task."""
    return FetchSizes(
        partition_max_bytes=whole_setting(given, "max.partition.fetch.bytes", FetchSizes().partition_max_bytes),
    )


def whole_setting(given: Mapping[str, str], key: str, default: int) -> int:
    """A kafka.* option that is a whole number."""
    value = given.get(key, str(default)).strip()
    if not (value.isascii() and value.isdigit()):
        raise OptionError(f"kafka.{key}", value, "is a whole number")
    return int(value)


def refresh(cluster: Cluster, selection: Selection) -> None:
    """Refresh the metadata of the selected topics, to see new partitions (a pattern refreshes it anyway)."""
    match selection:
        case Assign(partitions):
            names = sorted({partition.topic for partition in partitions})
        case Subscribe(topics):
            names = list(topics)
        case SubscribePattern():
            return
    deadline = cluster.deadline()
    cluster.retry(lambda: cluster.refresh(names, deadline), deadline)


def existing(selection: Selection, view: ClusterView) -> Selection:
    """The part of a selection that exists in this metadata."""
    sizes = {name: len(topic.partitions) for name, topic in view.topics.items() if topic.error == ErrorCode.NONE}
    match selection:
        case Assign(partitions):
            return Assign(tuple(one for one in partitions if one.partition < sizes.get(one.topic, 0)))
        case Subscribe(topics):
            return Subscribe(tuple(topic for topic in topics if topic in sizes))
        case SubscribePattern():
            return selection


@dataclass(frozen=True, slots=True)
class ClusterBounds:
    """`offsets.LogBounds` of a cluster."""

    cluster: Cluster
    isolation_level: int = READ_UNCOMMITTED

    def partitions_of(self, selection: Selection) -> list[TopicPartition]:
        """The partitions that exist now. UnknownTopicOrPartition names a topic that does not."""
        admin = Admin(self.cluster)
        match selection:
            case Assign(partitions):
                for partition in partitions:
                    self.cluster.partition(partition)
                return list(partitions)
            case Subscribe(topics):
                return [partition for topic in topics for partition in admin.partitions_of(topic)]
            case SubscribePattern(pattern):
                matching = [topic.name for topic in admin.list_topics() if re.fullmatch(pattern, topic.name)]
                return [partition for topic in matching for partition in admin.partitions_of(topic)]

    def earliest(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Log start offsets."""
        return self._list_offsets(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """High watermarks, or with read_committed last stable offsets."""
        return self._list_offsets(dict.fromkeys(partitions, LATEST))

    def at_time(self, timestamps_ms: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int | None]:
        """The first offset at or after each time; None if there is none."""
        found = self._list_offsets(timestamps_ms)
        return {partition: None if offset < 0 else offset for partition, offset in found.items()}

    def _list_offsets(self, requested: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        found = Admin(self.cluster).list_offsets(requested, isolation_level=self.isolation_level)
        return {partition: int(answer.offset) for partition, answer in found.items()}
