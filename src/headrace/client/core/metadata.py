"""Cluster metadata as values: brokers, topics, partitions and leaders, from a Metadata answer.

`cluster.py` requests them and decides how old they may be.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from headrace.client.core.settings import Address
from headrace.errors import ErrorCode, known_code
from headrace.protocol import messages as m
from headrace.types import NO_LEADER, BrokerId, LeaderEpoch

NO_TOPIC_ID = bytes(16)


class PartitionInfo(NamedTuple):
    """One partition; `leader` is -1 while there is none."""

    partition: int
    leader: BrokerId
    leader_epoch: LeaderEpoch
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    offline_replicas: tuple[BrokerId, ...]


class TopicInfo(NamedTuple):
    """One topic with its partitions in order; it cannot be used (now) if `error` is not NONE."""

    name: str
    topic_id: bytes
    is_internal: bool
    error: ErrorCode
    partitions: tuple[PartitionInfo, ...]

    @property
    def available(self) -> list[int]:
        """Partitions that have a leader."""
        return [info.partition for info in self.partitions if info.leader != NO_LEADER]


class ClusterView(NamedTuple):
    """The metadata of a cluster at one moment."""

    cluster_id: str | None
    controller: BrokerId
    brokers: Mapping[BrokerId, Address]
    racks: Mapping[BrokerId, str | None]
    topics: Mapping[str, TopicInfo]


EMPTY_VIEW = ClusterView(None, NO_LEADER, {}, {}, {})


def view_from(answer: m.MetadataResponse) -> ClusterView:
    """A Metadata answer as values."""
    return ClusterView(
        cluster_id=answer.cluster_id,
        controller=BrokerId(answer.controller_id),
        brokers={BrokerId(broker.node_id): Address(broker.host, broker.port) for broker in answer.brokers},
        racks={BrokerId(broker.node_id): broker.rack for broker in answer.brokers},
        topics={topic.name: _topic_from(topic) for topic in answer.topics if topic.name is not None},
    )


def merge(old: ClusterView, new: ClusterView, *, all_topics: bool) -> ClusterView:
    """`new` with the topics of `old` that were not requested; if all were requested, they are removed."""
    return new if all_topics else new._replace(topics={**old.topics, **new.topics})


def _topic_from(topic: m.MetadataResponse.MetadataResponseTopic) -> TopicInfo:
    partitions = sorted(
        PartitionInfo(
            partition=info.partition_index,
            leader=BrokerId(info.leader_id),
            leader_epoch=LeaderEpoch(info.leader_epoch),
            replicas=tuple(map(BrokerId, info.replica_nodes)),
            isr=tuple(map(BrokerId, info.isr_nodes)),
            offline_replicas=tuple(map(BrokerId, info.offline_replicas)),
        )
        for info in topic.partitions
    )
    return TopicInfo(
        topic.name or "", topic.topic_id, topic.is_internal, known_code(topic.error_code), tuple(partitions)
    )
