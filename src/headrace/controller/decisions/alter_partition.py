"""AlterPartition: translates its requests and responses to and from the controller's decisions. Pure.

0     topics by name, the ISR as broker ids
1     whether the leader still recovers from an unclean election
2     topics by id
3     the ISR with the epochs of the brokers' registrations
"""

from collections.abc import Mapping

from headrace.controller.decisions.cluster_state import ClusterState
from headrace.controller.decisions.isr_changes import IsrChange, IsrMember, Judgement
from headrace.errors import ErrorCode
from headrace.metadata.model import NO_UUID
from headrace.protocol import messages as m
from headrace.types import BrokerId, LeaderEpoch, TopicPartition


def changes_of(request: m.AlterPartitionRequest, state: ClusterState) -> list[IsrChange]:
    """The requested ISR changes of known topics."""
    names = {topic.id: topic.name for topic in state.topics.values()} if _has_ids(request) else {}
    return [
        IsrChange(
            TopicPartition(name, each.partition_index),
            LeaderEpoch(each.leader_epoch),
            _members(each),
            each.partition_epoch,
            bool(each.leader_recovery_state),
        )
        for topic in request.topics
        if (name := _name(topic, names)) is not None
        for each in topic.partitions
    ]


def response_to(
    request: m.AlterPartitionRequest, state: ClusterState, judged: Mapping[TopicPartition, Judgement]
) -> m.AlterPartitionResponse:
    """The response. A topic id that no topic has gets UNKNOWN_TOPIC_ID."""
    names = {topic.id: topic.name for topic in state.topics.values()} if _has_ids(request) else {}
    answer = m.AlterPartitionResponse(topics=[])
    for topic in request.topics:
        name = _name(topic, names)
        partitions = []
        for each in topic.partitions:
            verdict = (
                Judgement(ErrorCode.UNKNOWN_TOPIC_ID)
                if name is None
                else judged[TopicPartition(name, each.partition_index)]
            )
            partitions.append(_partition(each.partition_index, verdict))
        answer.topics.append(
            m.AlterPartitionResponse.TopicData(
                topic_name=topic.topic_name, topic_id=topic.topic_id, partitions=partitions
            )
        )
    return answer


def _partition(number: int, verdict: Judgement) -> m.AlterPartitionResponse.PartitionData:
    data = m.AlterPartitionResponse.PartitionData(partition_index=number, error_code=verdict.error)
    if verdict.state is not None and not verdict.error:
        data.leader_id = verdict.state.leader
        data.leader_epoch = verdict.state.leader_epoch
        data.isr = list(verdict.state.isr)
        data.leader_recovery_state = int(verdict.state.is_recovering)
        data.partition_epoch = verdict.state.partition_epoch
    return data


def _has_ids(request: m.AlterPartitionRequest) -> bool:
    return any(not topic.topic_name for topic in request.topics)


def _name(topic: m.AlterPartitionRequest.TopicData, names: Mapping[bytes, str]) -> str | None:
    if topic.topic_name:
        return topic.topic_name
    return names.get(topic.topic_id) if topic.topic_id != NO_UUID else None


def _members(partition: m.AlterPartitionRequest.PartitionData) -> list[IsrMember]:
    if partition.new_isr_with_epochs:
        return [IsrMember(BrokerId(each.broker_id), each.broker_epoch) for each in partition.new_isr_with_epochs]
    return [IsrMember(BrokerId(each)) for each in partition.new_isr]
