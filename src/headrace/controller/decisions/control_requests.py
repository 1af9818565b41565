"""Control requests: builds the controller's LeaderAndIsr, UpdateMetadata and StopReplica requests. Pure.

    LeaderAndIsr      to the replicas of a partition: its leader, leader epoch and ISR
    UpdateMetadata    to every broker: the metadata that it returns to clients
    StopReplica       to a broker that must stop or delete a replica

Requests have the newest version of Apache Kafka 3.9; encoding for an older peer drops the fields that it lacks. The
state of a partition is the same for every broker, so it is encoded once, for many requests (`partition_states`).
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias, cast

from headrace.controller.decisions.cluster_state import ClusterState
from headrace.controller.decisions.partition_states import LeaderState, LeaderStates, MetadataState, MetadataStates
from headrace.metadata.model import FULL_UPDATE, NO_UUID, SECURITY_PROTOCOL_IDS, Broker, Endpoint
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
    states: Mapping[str, Mapping[int, LeaderState]],
    topic_ids: Mapping[str, bytes],
    brokers: Mapping[BrokerId, Broker],
    listener: str | None = None,
) -> m.LeaderAndIsrRequest:
    """LeaderAndIsr of these partitions, by topic. The leaders' addresses are their endpoints of `listener` in
    `brokers`."""
    leaders = leaders_in(states)
    return m.LeaderAndIsrRequest(
        controller_id=sender.controller_id,
        controller_epoch=sender.controller_epoch,
        broker_epoch=to.epoch,
        topic_states=[
            m.LeaderAndIsrRequest.LeaderAndIsrTopicState(
                topic_name=name,
                topic_id=topic_ids.get(name, NO_UUID),
                partition_states=cast(
                    "list[m.LeaderAndIsrRequest.LeaderAndIsrPartitionState]", LeaderStates(list(rows.values()))
                ),
            )
            for name, rows in states.items()
        ],
        live_leaders=[
            m.LeaderAndIsrRequest.LeaderAndIsrLiveLeader(broker_id=each.id, host_name=endpoint.host, port=endpoint.port)
            for each in brokers.values()
            if each.id in leaders and (endpoint := inter_broker_endpoint(each, listener)) is not None
        ],
    )


def leaders_in(states: Mapping[str, Mapping[int, LeaderState]]) -> set[BrokerId]:
    """The leaders of these partitions."""
    return {row.leadership.leader for rows in states.values() for row in rows.values()}


def update_metadata(
    sender: ControllerIdentity,
    to: Broker,
    states: Mapping[str, Mapping[int, MetadataState]],
    topic_ids: Mapping[str, bytes],
    brokers: Iterable[Broker],
    *,
    is_full: bool = False,
) -> m.UpdateMetadataRequest:
    """UpdateMetadata of these partitions, by topic, and the live brokers. `is_full`: no topic exists but those in
    `topic_ids`."""
    none: Mapping[int, MetadataState] = {}
    names = dict.fromkeys((*topic_ids, *states)) if is_full else states
    return m.UpdateMetadataRequest(
        controller_id=sender.controller_id,
        controller_epoch=sender.controller_epoch,
        broker_epoch=to.epoch,
        topic_states=[
            m.UpdateMetadataRequest.UpdateMetadataTopicState(
                topic_name=name,
                topic_id=topic_ids.get(name, NO_UUID),
                partition_states=cast(
                    "list[m.UpdateMetadataRequest.UpdateMetadataPartitionState]",
                    MetadataStates(list(states.get(name, none).values())),
                ),
            )
            for name in names
        ],
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
