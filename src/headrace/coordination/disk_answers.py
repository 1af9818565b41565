"""What brokers' answers say of their replicas: gone for good, on a disk that failed, served again. Pure.

    StopReplica      an error for each replica that could not be deleted; every other one is gone
    LeaderAndIsr     KAFKA_STORAGE_ERROR for each replica on a failed log directory

Source: Kafka's `KafkaController.processLeaderAndIsrResponseReceived`, `TopicDeletionManager`.
"""

from typing import NamedTuple

from headrace.coordination.cluster import ClusterState
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.types import BrokerId, TopicPartition

_GONE = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class DiskAnswer(NamedTuple):
    """Replicas of one broker that it cannot serve for its disk, and those that it serves again."""

    offline: frozenset[TopicPartition]
    online: frozenset[TopicPartition]


def deleted_replicas(request: m.StopReplicaRequest, response: m.StopReplicaResponse) -> list[TopicPartition]:
    """The partitions that the broker was to delete, and has."""
    if response.error_code:
        return []
    failed = {
        TopicPartition(each.topic_name, each.partition_index)
        for each in response.partition_errors
        if each.error_code not in _GONE
    }
    asked = [
        TopicPartition(topic.topic_name, each.partition_index)
        for topic in request.topic_states
        for each in topic.partition_states
        if each.delete_partition
    ]
    return [partition for partition in asked if partition not in failed]


def found_on_disk(response: m.LeaderAndIsrResponse, state: ClusterState, broker: BrokerId) -> DiskAnswer | None:
    """What is news in an answer; None when there is none."""
    if response.error_code:
        return None
    known = state.offline_replicas.get(broker, set())
    errors = [each for topic in response.topics for each in topic.partition_errors]
    if not known and not any(each.error_code == ErrorCode.KAFKA_STORAGE_ERROR for each in errors):
        return None  # by far the most answers
    names = {topic.id: topic.name for topic in state.topics.values()}
    codes = {
        TopicPartition(names[topic.topic_id], each.partition_index): each.error_code
        for topic in response.topics
        if topic.topic_id in names
        for each in topic.partition_errors
    }
    codes |= {
        TopicPartition(each.topic_name, each.partition_index): each.error_code for each in response.partition_errors
    }
    offline = frozenset(p for p, code in codes.items() if code == ErrorCode.KAFKA_STORAGE_ERROR and p not in known)
    online = frozenset(p for p, code in codes.items() if code == ErrorCode.NONE and p in known)
    return DiskAnswer(offline, online) if offline or online else None
