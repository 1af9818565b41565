"""An internal topic of a coordinator: its partition count, the partition of each key, and its creation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from headrace.config import BrokerConfig
from headrace.controller.decisions.topics import RequestedTopic
from headrace.coordinators.groups.partitioning import partition_for
from headrace.errors import ErrorCode, KafkaError
from headrace.metadata.metadata_cache import MetadataCache
from headrace.topics import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC

CreateTopics = Callable[[Sequence[RequestedTopic]], Awaitable[Mapping[str, KafkaError | None]]]
"""Creates topics through the controller; returns each outcome by name, None for success. Raises `KafkaError`."""


class InternalTopic:
    """An internal topic, from this broker's metadata."""

    def __init__(
        self,
        wanted: RequestedTopic,
        metadata: MetadataCache,
        create: CreateTopics,
        partitioner: Callable[[str, int], int] = partition_for,
    ) -> None:
        """`wanted` is the topic to create; `partitioner(key, partition count)` returns the partition of a key."""
        self.name = wanted.name
        self._wanted, self._metadata, self._create, self._partitioner = wanted, metadata, create, partitioner

    @property
    def exists(self) -> bool:
        """Whether the topic exists."""
        return self._metadata.topic(self.name) is not None

    @property
    def partition_count(self) -> int:
        """The partition count of the existing topic, or else of the settings.

        A later change of the setting must not move keys to other partitions.
        """
        topic = self._metadata.topic(self.name)
        return len(topic.partitions) if topic is not None else self._wanted.num_partitions

    def partition_for(self, key: str) -> int:
        """Returns the partition of a key; its leader is the key's coordinator."""
        return self._partitioner(key, self.partition_count)

    async def ensure(self) -> None:
        """Creates the topic if it does not exist. Raises `KafkaError`."""
        if self.exists:
            return
        error = (await self._create([self._wanted]))[self.name]
        if error is not None and error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise error


def offsets_topic(config: BrokerConfig, *, is_alone: bool) -> RequestedTopic:
    """Returns `__consumer_offsets` with Apache Kafka's settings: compacted, with the producer's codec. A single broker
    creates it with one replica."""
    return RequestedTopic(
        OFFSETS_TOPIC,
        config.offsets_topic_num_partitions,
        1 if is_alone else config.offsets_topic_replication_factor,
        configs={
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        },
    )


def transactions_topic(config: BrokerConfig, *, is_alone: bool) -> RequestedTopic:
    """Returns `__transaction_state` with Apache Kafka's settings: compacted, uncompressed, without unclean elections. A
    single broker creates it with one replica."""
    replicas = 1 if is_alone else config.transaction_topic_replication_factor
    return RequestedTopic(
        TRANSACTIONS_TOPIC,
        config.transaction_topic_num_partitions,
        replicas,
        configs={
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(min(config.transaction_topic_min_insync_replicas, replicas)),
            "segment.bytes": str(config.transaction_topic_segment_bytes),
            "unclean.leader.election.enable": "false",
        },
    )


def share_state_topic(config: BrokerConfig, *, is_alone: bool) -> RequestedTopic:
    """Returns `__share_group_state` with Apache Kafka's settings: kept for ever, since its coordinators delete what is
    not needed. A single broker creates it with one replica."""
    replicas = 1 if is_alone else config.share_state_topic_replication_factor
    return RequestedTopic(
        SHARE_STATE_TOPIC,
        config.share_state_topic_num_partitions,
        replicas,
        configs={
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "min.insync.replicas": str(min(config.share_state_topic_min_insync_replicas, replicas)),
            "retention.ms": "-1",
            "segment.bytes": str(config.share_state_topic_segment_bytes),
        },
    )
