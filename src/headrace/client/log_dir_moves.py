"""Replicas moved from one data directory of their broker to another."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.failures import error_for
from headrace.protocol import messages as m
from headrace.types import BrokerId, TopicPartition


class ReplicaPlace(NamedTuple):
    """Where a broker has a replica; while it moves, also where to, and by how many offsets the copy is behind."""

    directory: str
    moving_to: str | None = None
    offset_lag: int = 0


def replica_places(cluster: Cluster, broker: BrokerId) -> dict[TopicPartition, ReplicaPlace]:
    """Every replica of a broker, but for those in directories that failed."""
    deadline = cluster.deadline()
    request = m.DescribeLogDirsRequest(topics=None)
    answer = cluster.retry(lambda: cluster.call(broker, request, m.DescribeLogDirsResponse, deadline), deadline)
    if answer.error_code:
        raise error_for(answer.error_code, f"log directories of broker {broker}")
    found: dict[TopicPartition, ReplicaPlace] = {}
    futures: dict[TopicPartition, tuple[str, int]] = {}
    for each in answer.results:
        for topic in each.topics:
            for part in topic.partitions:
                key = TopicPartition(topic.name, part.partition_index)
                if part.is_future_key:
                    futures[key] = each.log_dir, part.offset_lag
                else:
                    found[key] = ReplicaPlace(each.log_dir)
    for key, (directory, lag) in futures.items():
        if key in found:
            found[key] = found[key]._replace(moving_to=directory, offset_lag=lag)
    return found


def move_replicas(cluster: Cluster, broker: BrokerId, directory: str, partitions: Iterable[TopicPartition]) -> None:
    """Has a broker begin to move replicas to one of its data directories (an absolute path, as the broker says it).
    KafkaError for the first that it refuses, LOG_DIR_NOT_FOUND for another directory."""
    deadline = cluster.deadline()
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    wish = m.AlterReplicaLogDirsRequest.AlterReplicaLogDir(
        path=directory,
        topics=[
            m.AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=name, partitions=numbers)
            for name, numbers in topics.items()
        ],
    )
    answer = cluster.call(broker, m.AlterReplicaLogDirsRequest(dirs=[wish]), m.AlterReplicaLogDirsResponse, deadline)
    for result in answer.results:
        for each in result.partitions:
            if each.error_code:
                raise error_for(each.error_code, f"{result.topic_name}-{each.partition_index} to {directory}")
