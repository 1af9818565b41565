"""Administration: topics, their settings, offsets, and groups.

Each call retries retriable errors until `api_timeout_ms` has passed, and otherwise raises a KafkaError that names the
topic, group or partition. A call with several topics stops at the first failure and names the topic.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar, Unpack

from headrace.client.core.cluster import Cluster
from headrace.client.core.failures import error_for
from headrace.client.core.metadata import ClusterView, TopicInfo
from headrace.client.core.option_types import ClientOptions
from headrace.client.core.settings import ClientSettings
from headrace.client.core.timing import Deadline
from headrace.client.security.arguments import settings_of
from headrace.errors import ErrorCode, InvalidConfig, known_code
from headrace.protocol import messages as m
from headrace.protocol.codec.message import Message
from headrace.types import BrokerId, Offset, TopicPartition

EARLIEST = -2
LATEST = -1
MAX_TIMESTAMP = -3

R = TypeVar("R", bound=Message)

RESOURCE_TOPIC = 2
RESOURCE_BROKER = 4
RESOURCE_LOGGER = 8
RESOURCE_CLIENT_METRICS = 16
RESOURCE_GROUP = 32
_SET, _DELETE = 0, 1
_DEFAULT_SOURCE = 5
SOURCE_TOPIC = 1
"""A setting of the topic itself."""
_BROKER_DEFAULT = -1


class NewTopic(NamedTuple):
    """A topic to create; -1 takes the broker's default."""

    name: str
    partitions: int = _BROKER_DEFAULT
    replication_factor: int = _BROKER_DEFAULT
    configs: Mapping[str, str] = {}


class ConfigEntry(NamedTuple):
    """One setting of a topic or broker; `value` is None where it is secret."""

    name: str
    value: str | None
    is_default: bool
    read_only: bool
    is_sensitive: bool
    source: int = -1
    """Kafka's number of where the value is set; see `SOURCE_TOPIC`."""


class OffsetAndTime(NamedTuple):
    """An offset found by time, with the timestamp of its record; -1 and -1 if there is no such record."""

    offset: Offset
    timestamp_ms: int
    leader_epoch: int


class LogDir(NamedTuple):
    """A directory of one broker with the bytes of each partition in it; -1 if the size is unknown. A failed
    directory has an `error` and no other information."""

    broker: BrokerId
    path: str
    partition_bytes: Mapping[TopicPartition, int]
    total_bytes: int
    usable_bytes: int
    error: ErrorCode = ErrorCode.NONE


class Admin:
    """Administrative calls on one cluster; any thread may use it, one at a time."""

    cluster: Cluster

    def __init__(
        self,
        bootstrap: str | Sequence[str] | Mapping[str, object] | Cluster | None = None,
        settings: ClientSettings | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        """`bootstrap` is HOST:PORT, several of them, or a mapping with `bootstrap.servers` and other settings."""
        self._owns_cluster = not isinstance(bootstrap, Cluster)
        if isinstance(bootstrap, Cluster):
            self.cluster = bootstrap
        else:
            address, _, client = settings_of("client", bootstrap, None, settings, options)
            self.cluster = Cluster(address, client)

    def __enter__(self) -> Admin:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections, unless the caller provided the cluster."""
        if self._owns_cluster:
            self.cluster.close()

    def interrupt(self) -> None:
        """Fail the call in progress, unless the caller provided the cluster. Any thread may call."""
        if self._owns_cluster:
            self.cluster.interrupt()

    # -- topics

    def list_topics(self, *, internal: bool = False) -> list[TopicInfo]:
        """Every topic, by name; Kafka's own (`__consumer_offsets`) with `internal`."""
        topics = self.describe_cluster().topics.values()
        return sorted((topic for topic in topics if internal or not topic.is_internal), key=lambda topic: topic.name)

    def describe_topic(self, name: str) -> TopicInfo:
        """One topic, with fresh metadata. Raises UnknownTopicOrPartition if there is none."""
        self.cluster.forget(name)
        return self.cluster.topic(name)

    def describe_cluster(self) -> ClusterView:
        """Brokers, controller and all topics, with fresh metadata."""
        deadline = self.cluster.deadline()
        return self.cluster.retry(lambda: self.cluster.refresh(None, deadline), deadline)

    def create_topics(self, topics: Iterable[NewTopic], *, validate_only: bool = False) -> None:
        """Create topics and wait until their partitions have leaders. An error names its topic."""
        new = list(topics)
        deadline = self.cluster.deadline()
        self.cluster.retry(lambda: self._create(new, validate_only, deadline), deadline)
        if not validate_only:
            for topic in new:
                self._await_leaders(topic.name, deadline)

    def create_topic(
        self,
        name: str,
        partitions: int = _BROKER_DEFAULT,
        replication_factor: int = _BROKER_DEFAULT,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create one topic; see `create_topics`."""
        self.create_topics([NewTopic(name, partitions, replication_factor, configs or {})])

    def delete_topics(self, names: Collection[str]) -> None:
        """Delete topics and wait until the metadata no longer has them."""
        deadline = self.cluster.deadline()
        self.cluster.retry(lambda: self._delete(names, deadline), deadline)
        for name in names:
            while not deadline.expired and self._exists(name, deadline):
                deadline.sleep_ms(self.cluster.settings.retry_backoff_ms)
            self.cluster.forget(name)

    def create_partitions(self, name: str, count: int, *, validate_only: bool = False) -> None:
        """Grow a topic to `count` partitions."""
        deadline = self.cluster.deadline()
        request = m.CreatePartitionsRequest(
            topics=[m.CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count, assignments=None)],
            timeout_ms=self.cluster.settings.request_timeout_ms,
            validate_only=validate_only,
        )

        def attempt() -> None:
            answer = self.cluster.call_controller(request, m.CreatePartitionsResponse, deadline)
            for result in answer.results:
                _check(result.error_code, f"topic {result.name}", result.error_message)

        self.cluster.retry(attempt, deadline)
        self.cluster.forget(name)

    # -- settings

    def describe_configs(self, resource_type: int, name: str) -> list[ConfigEntry]:
        """All settings of a resource, by name. The name of a broker is its id as text; "" stands for all brokers."""
        deadline = self.cluster.deadline()
        requested = m.DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=resource_type, resource_name=name, configuration_keys=None
        )
        request = m.DescribeConfigsRequest(resources=[requested])
        result = self.cluster.retry(lambda: self._describe_configs(request, resource_type, name, deadline), deadline)
        entries = [
            ConfigEntry(
                entry.name,
                entry.value,
                entry.config_source == _DEFAULT_SOURCE or entry.is_default,
                entry.read_only,
                entry.is_sensitive,
                entry.config_source,
            )
            for entry in result.configs
        ]
        return sorted(entries)

    def alter_configs(
        self, resource_type: int, name: str, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Set settings, or reset them to their defaults with None. Other settings do not change. Names as of
        `describe_configs`."""
        deadline = self.cluster.deadline()
        altered = [
            m.IncrementalAlterConfigsRequest.AlterableConfig(
                name=key, config_operation=_DELETE if value is None else _SET, value=value
            )
            for key, value in changes.items()
        ]
        resource = m.IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=resource_type, resource_name=name, configs=altered
        )
        request = m.IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)

        def attempt() -> None:
            answer = self._ask_owner(request, m.IncrementalAlterConfigsResponse, resource_type, name, deadline)
            for result in answer.responses:
                _check(result.error_code, f"settings of {name}", result.error_message)

        self.cluster.retry(attempt, deadline)

    def list_config_resources(self, resource_type: int) -> list[str]:
        """The names of the resources of a type, by name: of groups and subscriptions those that set something."""
        deadline = self.cluster.deadline()
        request = m.ListConfigResourcesRequest(resource_types=[resource_type])

        def attempt() -> list[str]:
            answer = self.cluster.call_any(request, m.ListConfigResourcesResponse, deadline)
            _check(answer.error_code, "the resources", None)
            return sorted(each.resource_name for each in answer.config_resources)

        return self.cluster.retry(attempt, deadline)

    # -- offsets

    def list_offsets(
        self, requested: Mapping[TopicPartition, int], *, isolation_level: int = 0
    ) -> dict[TopicPartition, OffsetAndTime]:
        """For each partition: the start (EARLIEST), the end (LATEST), the newest time (MAX_TIMESTAMP), or the first
        record at or after a time in ms; its offset is -1 if there is none."""
        deadline = self.cluster.deadline()
        found: dict[TopicPartition, OffsetAndTime] = {}

        def attempt() -> None:
            missing = {partition: when for partition, when in requested.items() if partition not in found}
            for leader, partitions in self._by_leader(missing, deadline).items():
                found.update(self._list_offsets(leader, partitions, isolation_level, deadline))

        self.cluster.retry(attempt, deadline)
        return {partition: found[partition] for partition in requested}

    def watermarks(
        self, partitions: Iterable[TopicPartition], *, isolation_level: int = 0
    ) -> dict[TopicPartition, tuple[Offset, Offset]]:
        """The first offset and the end (exclusive) of each partition, for consumers of an isolation level."""
        wanted = list(partitions)
        starts = self.list_offsets(dict.fromkeys(wanted, EARLIEST))
        ends = self.list_offsets(dict.fromkeys(wanted, LATEST), isolation_level=isolation_level)
        return {partition: (starts[partition].offset, ends[partition].offset) for partition in wanted}

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, Offset]:
        """Delete each partition's records below an offset, which may be at most the high watermark (LATEST: all).

        Returns the new log start offsets. Raises OffsetOutOfRange beyond a partition's end, and POLICY_VIOLATION for a
        topic that is compacted only.
        """
        deadline = self.cluster.deadline()
        found: dict[TopicPartition, Offset] = {}

        def attempt() -> None:
            missing = {partition: offset for partition, offset in before.items() if partition not in found}
            for leader, partitions in self._by_leader(missing, deadline).items():
                found.update(self._delete_records(leader, partitions, deadline))

        self.cluster.retry(attempt, deadline)
        return {partition: found[partition] for partition in before}

    def describe_log_dirs(self) -> list[LogDir]:
        """The directories of each broker, with the sizes of their partitions."""
        deadline = self.cluster.deadline()
        brokers = self.cluster.refresh([], deadline).brokers
        return [found for broker in sorted(brokers) for found in self._log_dirs(broker, deadline)]

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        """The topic's partitions."""
        return [TopicPartition(topic, info.partition) for info in self.cluster.topic(topic).partitions]

    # -- helpers

    def _create(self, topics: list[NewTopic], validate_only: bool, deadline: Deadline) -> None:
        request = m.CreateTopicsRequest(
            topics=[_creatable(topic) for topic in topics],
            timeout_ms=self.cluster.settings.request_timeout_ms,
            validate_only=validate_only,
        )
        answer = self.cluster.call_controller(request, m.CreateTopicsResponse, deadline)
        for result in answer.topics:
            _check(result.error_code, f"topic {result.name}", result.error_message)

    def _await_leaders(self, name: str, deadline: Deadline) -> None:
        def attempt() -> None:
            info = self.cluster.refresh([name], deadline).topics.get(name)
            code = info.error if info else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            _check(code, f"topic {name}", None)
            if info is None or len(info.available) < len(info.partitions) or not info.partitions:
                _check(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {name}", "just created")

        self.cluster.retry(attempt, deadline, wait_for_topic=True)

    def _delete(self, names: Collection[str], deadline: Deadline) -> None:
        timeout_ms = self.cluster.settings.request_timeout_ms
        request = m.DeleteTopicsRequest(topic_names=list(names), timeout_ms=timeout_ms)
        answer = self.cluster.call_controller(request, m.DeleteTopicsResponse, deadline)
        for result in answer.responses:
            _check(result.error_code, f"topic {result.name}", result.error_message)

    def _exists(self, name: str, deadline: Deadline) -> bool:
        info = self.cluster.refresh([name], deadline).topics.get(name)
        return info is not None and info.error != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _describe_configs(
        self, request: m.DescribeConfigsRequest, resource_type: int, name: str, deadline: Deadline
    ) -> m.DescribeConfigsResponse.DescribeConfigsResult:
        result = self._ask_owner(request, m.DescribeConfigsResponse, resource_type, name, deadline).results[0]
        _check(result.error_code, f"settings of {name}", result.error_message)
        return result

    def _ask_owner(self, request: Message, response: type[R], resource_type: int, name: str, deadline: Deadline) -> R:
        """The answer of the broker that has the resource: any, or the one that it is about."""
        if resource_type not in (RESOURCE_BROKER, RESOURCE_LOGGER) or not name:
            return self.cluster.call_any(request, response, deadline)
        if not name.isdecimal():
            raise InvalidConfig(f"broker {name!r} is not a broker id: expected a number")
        self.cluster.refresh([], deadline)
        return self.cluster.call(BrokerId(int(name)), request, response, deadline)

    def _by_leader(
        self, requested: Mapping[TopicPartition, int], deadline: Deadline
    ) -> dict[BrokerId, dict[TopicPartition, int]]:
        by_leader: dict[BrokerId, dict[TopicPartition, int]] = {}
        for partition, when in requested.items():
            by_leader.setdefault(self.cluster.leader(partition, deadline), {})[partition] = when
        return by_leader

    def _log_dirs(self, broker: BrokerId, deadline: Deadline) -> Iterable[LogDir]:
        request = m.DescribeLogDirsRequest(topics=None)
        ask = self.cluster.call
        answer = self.cluster.retry(lambda: ask(broker, request, m.DescribeLogDirsResponse, deadline), deadline)
        _check(answer.error_code, f"log directories of broker {broker}", None)
        for each in answer.results:
            sizes = {
                TopicPartition(topic.name, part.partition_index): part.partition_size
                for topic in each.topics
                for part in topic.partitions
            }
            error = known_code(each.error_code)
            yield LogDir(broker, each.log_dir, sizes, each.total_bytes, each.usable_bytes, error)

    def _delete_records(
        self, leader: BrokerId, before: Mapping[TopicPartition, int], deadline: Deadline
    ) -> dict[TopicPartition, Offset]:
        topics: dict[str, list[m.DeleteRecordsRequest.DeleteRecordsPartition]] = {}
        for (topic, index), offset in before.items():
            part = m.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=index, offset=offset)
            topics.setdefault(topic, []).append(part)
        request = m.DeleteRecordsRequest(
            topics=[m.DeleteRecordsRequest.DeleteRecordsTopic(name=name, partitions=p) for name, p in topics.items()],
            timeout_ms=self.cluster.settings.request_timeout_ms,
        )
        answer = self.cluster.call(leader, request, m.DeleteRecordsResponse, deadline)
        found = {}
        for answered in answer.topics:
            for each in answered.partitions:
                partition = TopicPartition(answered.name, each.partition_index)
                _check(each.error_code, f"records of {partition}", None)
                found[partition] = Offset(each.low_watermark)
        return found

    def _list_offsets(
        self, leader: BrokerId, requested: Mapping[TopicPartition, int], isolation_level: int, deadline: Deadline
    ) -> dict[TopicPartition, OffsetAndTime]:
        asked_topic, asked_part = m.ListOffsetsRequest.ListOffsetsTopic, m.ListOffsetsRequest.ListOffsetsPartition
        topics: dict[str, list[m.ListOffsetsRequest.ListOffsetsPartition]] = {}
        for (topic, index), when in requested.items():
            topics.setdefault(topic, []).append(asked_part(partition_index=index, timestamp=when))
        request = m.ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation_level,
            topics=[asked_topic(name=name, partitions=parts) for name, parts in topics.items()],
        )
        answer = self.cluster.call(leader, request, m.ListOffsetsResponse, deadline)
        found = {}
        for answered in answer.topics:
            for part in answered.partitions:
                partition = TopicPartition(answered.name, part.partition_index)
                _check(part.error_code, f"offsets of {partition}", None)
                found[partition] = OffsetAndTime(Offset(part.offset), part.timestamp, part.leader_epoch)
        return found


def _creatable(topic: NewTopic) -> m.CreateTopicsRequest.CreatableTopic:
    return m.CreateTopicsRequest.CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        configs=[
            m.CreateTopicsRequest.CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()
        ],
    )


def _check(code: int, what: str, said: str | None) -> None:
    if code:
        raise error_for(code, f"{what}: {said}" if said else what)
