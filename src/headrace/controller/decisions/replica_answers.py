"""Responses to control requests: which replicas were deleted, are offline, or are online again. Pure.

    StopReplica      has an error for each replica that could not be deleted; all others are deleted
    LeaderAndIsr     has KAFKA_STORAGE_ERROR for each replica on a failed log directory

Source: Kafka's `KafkaController.processLeaderAndIsrResponseReceived`, `TopicDeletionManager`.
"""

from typing import NamedTuple

from headrace.controller.decisions.cluster_state import ClusterState
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.types import BrokerId, TopicPartition

_GONE = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class DiskAnswer(NamedTuple):
    """Replicas of one broker that went offline with a log directory, and those that are online again."""

    offline: frozenset[TopicPartition]
    online: frozenset[TopicPartition]


def deleted_replicas(request: m.StopReplicaRequest, response: m.StopReplicaResponse) -> list[TopicPartition]:
    """The partitions whose replica the request deleted."""
    if response.error_code:
        return []
    failed = {
        TopicPartition(each.topic_name, each.partition_index)
        for each in response.partition_errors
        if each.error_code not in _GONE
    }
    requested = [
        TopicPartition(topic.topic_name, each.partition_index)
        for topic in request.topic_states
        for each in topic.partition_states
        if each.delete_partition
    ]
    return [partition for partition in requested if partition not in failed]


def found_on_disk(response: m.LeaderAndIsrResponse, state: ClusterState, broker: BrokerId) -> DiskAnswer | None:
    """The replicas whose state the response changes; None if there are none."""
    if response.error_code:
        return None
    known = state.offline_replicas.get(broker, set())
    errors = [each for topic in response.topics for each in topic.partition_errors]
    if not known and not any(each.error_code == ErrorCode.KAFKA_STORAGE_ERROR for each in errors):
        return None  # nearly every response
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
