"""What the controller tells each broker, as Kafka's own inter-broker requests. Pure.

    LeaderAndIsr      to the replicas of a partition: who leads it, in which epoch, with which ISR
    UpdateMetadata    to every broker: what clients may be told
    StopReplica       to a broker that is to let go of a replica, or delete it

All in the versions of Apache Kafka 3.9; the newest one is built, and encoding for an older peer drops what it lacks.
What is said of one partition is the same to every broker, so it is made once and put into many requests.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace.coordination.cluster import ClusterState
from headrace.coordination.model import (
    LEADER_DURING_DELETE,
    NO_UUID,
    Broker,
    Endpoint,
    PartitionLeadership,
    Replicas,
)
from headrace.protocol import messages as m
from headrace.types import BrokerId, TopicPartition

ControlRequest = m.LeaderAndIsrRequest | m.UpdateMetadataRequest | m.StopReplicaRequest
ControlResponse = m.LeaderAndIsrResponse | m.UpdateMetadataResponse | m.StopReplicaResponse

EPOCH_DURING_DELETE = -2
NO_LEADER_EPOCH = -1

_SECURITY_PROTOCOL_IDS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
SECURITY_PROTOCOLS = {number: name for name, number in _SECURITY_PROTOCOL_IDS.items()}


class Sender(NamedTuple):
    """Who says it: the controller, in its epoch."""

    controller_id: BrokerId
    controller_epoch: int


# Of one partition


def leader_told(
    number: int, leadership: PartitionLeadership, replicas: Replicas, *, is_new: bool
) -> m.LeaderAndIsrRequest.LeaderAndIsrPartitionState:
    """For LeaderAndIsr."""
    return m.LeaderAndIsrRequest.LeaderAndIsrPartitionState(
        partition_index=number,
        controller_epoch=leadership.controller_epoch,
        leader=leadership.leader,
        leader_epoch=leadership.leader_epoch,
        isr=list(leadership.isr),
        partition_epoch=leadership.partition_epoch,
        replicas=list(replicas.replicas),
        adding_replicas=list(replicas.adding),
        removing_replicas=list(replicas.removing),
        is_new=is_new,
        leader_recovery_state=int(leadership.is_recovering),
    )


def metadata_told(
    state: ClusterState, partition: TopicPartition
) -> m.UpdateMetadataRequest.UpdateMetadataPartitionState | None:
    """For UpdateMetadata; a partition of a topic to be deleted gets the leader that says so. None before its first."""
    leadership = state.leadership.get(partition)
    if leadership is None:
        return None
    replicas = state.topics[partition.topic].partitions[partition.partition].replicas
    is_deleting = partition.topic in state.deleting
    online = state.online(partition)
    return m.UpdateMetadataRequest.UpdateMetadataPartitionState(
        partition_index=partition.partition,
        controller_epoch=leadership.controller_epoch,
        leader=LEADER_DURING_DELETE if is_deleting else leadership.leader,
        leader_epoch=leadership.leader_epoch,
        isr=list(leadership.isr),
        zk_version=leadership.partition_epoch,
        replicas=list(replicas),
        offline_replicas=[each for each in replicas if each not in online],
    )


def stop_told(
    state: ClusterState, partition: TopicPartition, *, delete: bool
) -> m.StopReplicaRequest.StopReplicaPartitionState:
    """For StopReplica."""
    leadership = state.leadership.get(partition)
    epoch = NO_LEADER_EPOCH if leadership is None else leadership.leader_epoch
    return m.StopReplicaRequest.StopReplicaPartitionState(
        partition_index=partition.partition,
        leader_epoch=EPOCH_DURING_DELETE if partition.topic in state.deleting else epoch,
        delete_partition=delete,
    )


# To one broker


def leader_and_isr(
    sender: Sender,
    to: Broker,
    told: Mapping[TopicPartition, m.LeaderAndIsrRequest.LeaderAndIsrPartitionState],
    topic_ids: Mapping[str, bytes],
    brokers: Mapping[BrokerId, Broker],
    listener: str | None = None,
) -> m.LeaderAndIsrRequest:
    """Leaders of partitions; where they are reached comes from `brokers`, by the endpoint of that listener."""
    topics: dict[str, m.LeaderAndIsrRequest.LeaderAndIsrTopicState] = {}
    for partition, state in told.items():
        if partition.topic not in topics:
            topics[partition.topic] = m.LeaderAndIsrRequest.LeaderAndIsrTopicState(
                topic_name=partition.topic, topic_id=topic_ids.get(partition.topic, NO_UUID), partition_states=[]
            )
        topics[partition.topic].partition_states.append(state)
    leaders = {state.leader for state in told.values()}
    return m.LeaderAndIsrRequest(
        controller_id=sender.controller_id,
        controller_epoch=sender.controller_epoch,
        broker_epoch=to.epoch,
        topic_states=list(topics.values()),
        live_leaders=[
            m.LeaderAndIsrRequest.LeaderAndIsrLiveLeader(broker_id=each.id, host_name=endpoint.host, port=endpoint.port)
            for each in brokers.values()
            if each.id in leaders and (endpoint := inter_broker_endpoint(each, listener)) is not None
        ],
    )


def update_metadata(
    sender: Sender,
    to: Broker,
    told: Mapping[TopicPartition, m.UpdateMetadataRequest.UpdateMetadataPartitionState],
    topic_ids: Mapping[str, bytes],
    brokers: Iterable[Broker],
) -> m.UpdateMetadataRequest:
    """The live brokers, and these partitions."""
    topics: dict[str, m.UpdateMetadataRequest.UpdateMetadataTopicState] = {}
    for partition, state in told.items():
        if partition.topic not in topics:
            topics[partition.topic] = m.UpdateMetadataRequest.UpdateMetadataTopicState(
                topic_name=partition.topic, topic_id=topic_ids.get(partition.topic, NO_UUID), partition_states=[]
            )
        topics[partition.topic].partition_states.append(state)
    return m.UpdateMetadataRequest(
        controller_id=sender.controller_id,
        controller_epoch=sender.controller_epoch,
        broker_epoch=to.epoch,
        topic_states=list(topics.values()),
        live_brokers=[_live_broker(each) for each in brokers],
    )


def stop_replicas(
    sender: Sender, to: Broker, told: Mapping[TopicPartition, m.StopReplicaRequest.StopReplicaPartitionState]
) -> m.StopReplicaRequest:
    """Replicas to let go of."""
    topics: dict[str, m.StopReplicaRequest.StopReplicaTopicState] = {}
    for partition, state in told.items():
        if partition.topic not in topics:
            topics[partition.topic] = m.StopReplicaRequest.StopReplicaTopicState(
                topic_name=partition.topic, partition_states=[]
            )
        topics[partition.topic].partition_states.append(state)
    return m.StopReplicaRequest(
        controller_id=sender.controller_id,
        controller_epoch=sender.controller_epoch,
        broker_epoch=to.epoch,
        topic_states=list(topics.values()),
    )


def inter_broker_endpoint(broker: Broker, listener: str | None) -> Endpoint | None:
    """Where other brokers reach it: the endpoint of that listener, else the first."""
    named = (each for each in broker.endpoints if each.listener == listener)
    return next(named, broker.endpoints[0] if broker.endpoints else None)


def _live_broker(broker: Broker) -> m.UpdateMetadataRequest.UpdateMetadataBroker:
    return m.UpdateMetadataRequest.UpdateMetadataBroker(
        id=broker.id,
        rack=broker.rack,
        endpoints=[
            m.UpdateMetadataRequest.UpdateMetadataEndpoint(
                listener=each.listener,
                host=each.host,
                port=each.port,
                security_protocol=_SECURITY_PROTOCOL_IDS[each.security_protocol],
            )
            for each in broker.endpoints
        ],
    )
