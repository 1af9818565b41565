"""Control requests: builds the controller's LeaderAndIsr, UpdateMetadata and StopReplica requests. Pure.

    LeaderAndIsr      to the replicas of a partition: its leader, leader epoch and ISR
    UpdateMetadata    to every broker: the metadata that it returns to clients
    StopReplica       to a broker that must stop or delete a replica

Requests have the newest version of Apache Kafka 3.9; encoding for an older peer drops the fields that it lacks. The
state of a partition is the same for every broker, so it is built once and put into many requests.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from headrace.controller.decisions.cluster_state import ClusterState
from headrace.metadata.model import (
    FULL_UPDATE,
    LEADER_DURING_DELETE,
    NO_UUID,
    SECURITY_PROTOCOL_IDS,
    Broker,
    Endpoint,
    PartitionLeadership,
    Replicas,
)
from headrace.protocol import messages as m
from headrace.types import BrokerId, TopicPartition

# Strings, because a message class is built when its name is first used, which would slow down the start.
ControlRequest: TypeAlias = "m.LeaderAndIsrRequest | m.UpdateMetadataRequest | m.StopReplicaRequest"
ControlResponse: TypeAlias = "m.LeaderAndIsrResponse | m.UpdateMetadataResponse | m.StopReplicaResponse"

EPOCH_DURING_DELETE = -2
NO_LEADER_EPOCH = -1


class ControllerIdentity(NamedTuple):
    """The controller and its epoch, as every control request names them."""

    controller_id: BrokerId
    controller_epoch: int


# States of one partition


def leader_state(
    number: int, leadership: PartitionLeadership, replicas: Replicas, *, is_new: bool
) -> m.LeaderAndIsrRequest.LeaderAndIsrPartitionState:
    """The state for LeaderAndIsr."""
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


def metadata_state(
    state: ClusterState, partition: TopicPartition
) -> m.UpdateMetadataRequest.UpdateMetadataPartitionState | None:
    """The state for UpdateMetadata; None for a partition that has never had a leader. A topic that is being deleted has
    the leader `LEADER_DURING_DELETE`."""
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


def stop_state(
    state: ClusterState, partition: TopicPartition, *, delete: bool
) -> m.StopReplicaRequest.StopReplicaPartitionState:
    """The state for StopReplica."""
    leadership = state.leadership.get(partition)
    epoch = NO_LEADER_EPOCH if leadership is None else leadership.leader_epoch
    return m.StopReplicaRequest.StopReplicaPartitionState(
        partition_index=partition.partition,
        leader_epoch=EPOCH_DURING_DELETE if partition.topic in state.deleting else epoch,
        delete_partition=delete,
    )


# Requests to one broker


def leader_and_isr(
    sender: ControllerIdentity,
    to: Broker,
    states: Mapping[TopicPartition, m.LeaderAndIsrRequest.LeaderAndIsrPartitionState],
    topic_ids: Mapping[str, bytes],
    brokers: Mapping[BrokerId, Broker],
    listener: str | None = None,
) -> m.LeaderAndIsrRequest:
    """LeaderAndIsr of these partitions. The leaders' addresses are their endpoints of `listener` in `brokers`."""
    topics: dict[str, m.LeaderAndIsrRequest.LeaderAndIsrTopicState] = {}
    for partition, state in states.items():
        if partition.topic not in topics:
            topics[partition.topic] = m.LeaderAndIsrRequest.LeaderAndIsrTopicState(
                topic_name=partition.topic, topic_id=topic_ids.get(partition.topic, NO_UUID), partition_states=[]
            )
        topics[partition.topic].partition_states.append(state)
    leaders = {state.leader for state in states.values()}
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
    sender: ControllerIdentity,
    to: Broker,
    states: Mapping[TopicPartition, m.UpdateMetadataRequest.UpdateMetadataPartitionState],
    topic_ids: Mapping[str, bytes],
    brokers: Iterable[Broker],
    *,
    is_full: bool = False,
) -> m.UpdateMetadataRequest:
    """UpdateMetadata of these partitions and the live brokers. `is_full`: no topic exists but those in `topic_ids`."""
    topics: dict[str, m.UpdateMetadataRequest.UpdateMetadataTopicState] = {}
    for name in topic_ids if is_full else ():
        topics[name] = m.UpdateMetadataRequest.UpdateMetadataTopicState(
            topic_name=name, topic_id=topic_ids[name], partition_states=[]
        )
    for partition, state in states.items():
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
        type=FULL_UPDATE if is_full else 0,
    )


def stop_replicas(
    sender: ControllerIdentity,
    to: Broker,
    states: Mapping[TopicPartition, m.StopReplicaRequest.StopReplicaPartitionState],
) -> m.StopReplicaRequest:
    """StopReplica of these partitions."""
    topics: dict[str, m.StopReplicaRequest.StopReplicaTopicState] = {}
    for partition, state in states.items():
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
    """The endpoint at which other brokers reach a broker: that of `listener`, else the first."""
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
                security_protocol=SECURITY_PROTOCOL_IDS[each.security_protocol],
            )
            for each in broker.endpoints
        ],
    )
