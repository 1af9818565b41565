"""Moves replicas between the data directories of one broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from headrace.client.core.cluster import Cluster
from headrace.client.core.failures import error_for
from headrace.protocol import messages as m
from headrace.types import BrokerId, TopicPartition


class ReplicaPlace(NamedTuple):
    """The directory of a replica; during a move also the target, and the lag of the copy in offsets."""

    directory: str
    moving_to: str | None = None
    offset_lag: int = 0


def replica_places(cluster: Cluster, broker: BrokerId) -> dict[TopicPartition, ReplicaPlace]:
    """Every replica of a broker, except those in failed directories."""
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
    """Starts to move replicas to a data directory of their broker (an absolute path, as the broker reports it).
    Raises KafkaError for the first refused replica, LOG_DIR_NOT_FOUND for an unknown directory."""
    deadline = cluster.deadline()
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    move = m.AlterReplicaLogDirsRequest.AlterReplicaLogDir(
        path=directory,
        topics=[
            m.AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=name, partitions=numbers)
            for name, numbers in topics.items()
        ],
    )
    answer = cluster.call(broker, m.AlterReplicaLogDirsRequest(dirs=[move]), m.AlterReplicaLogDirsResponse, deadline)
    for result in answer.results:
        for each in result.partitions:
            if each.error_code:
                raise error_for(each.error_code, f"{result.topic_name}-{each.partition_index} to {directory}")
