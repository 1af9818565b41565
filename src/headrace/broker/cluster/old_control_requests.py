"""Requests of a controller in the versions of Apache Kafka before 2.2, turned into those of today.

    LeaderAndIsr 0-1, UpdateMetadata 0-4    partitions in one list, each with the name of its topic
    StopReplica 0                           likewise, with one flag for all whether they are deleted
    UpdateMetadata 0                        brokers have a host and a port; until 2 a listener has its protocol's name

A controller of Apache Kafka up to 3.9 sends them while `inter.broker.protocol.version` is below 2.2. None names the
epoch of the broker's registration, so that a request to an earlier one of the same broker cannot be told apart.
Source: Kafka's `LeaderAndIsrRequest`, `StopReplicaRequest`, `UpdateMetadataRequest`, each in its `normalize` and
`topicStates`.
"""

from __future__ import annotations

from headrace.controller.decisions.control_requests import EPOCH_DURING_DELETE
from headrace.metadata.model import SECURITY_PROTOCOLS
from headrace.protocol import messages as m

RACKS_FROM, LISTENERS_FROM = 2, 3
"""The versions of UpdateMetadata from which a broker has a rack, and a listener a name of its own."""
_PLAINTEXT = 0


def group_leader_and_isr(request: m.LeaderAndIsrRequest) -> None:
    """Moves the partitions of a version before 2 to their topics."""
    topics: dict[str, m.LeaderAndIsrRequest.LeaderAndIsrTopicState] = {}
    for each in request.ungrouped_partition_states:
        topic = topics.get(each.topic_name)
        if topic is None:
            topic = m.LeaderAndIsrRequest.LeaderAndIsrTopicState(topic_name=each.topic_name)
            topics[each.topic_name] = topic
        topic.partition_states.append(each)
    request.topic_states, request.ungrouped_partition_states = list(topics.values()), []


def group_update_metadata(request: m.UpdateMetadataRequest, version: int) -> None:
    """Moves the partitions of a version before 5 to their topics, and gives brokers their listeners."""
    topics: dict[str, m.UpdateMetadataRequest.UpdateMetadataTopicState] = {}
    for each in request.ungrouped_partition_states:
        topic = topics.get(each.topic_name)
        if topic is None:
            topic = m.UpdateMetadataRequest.UpdateMetadataTopicState(topic_name=each.topic_name)
            topics[each.topic_name] = topic
        topic.partition_states.append(each)
    request.topic_states, request.ungrouped_partition_states = list(topics.values()), []
    for broker in request.live_brokers:
        if version < RACKS_FROM:
            broker.rack = None
        if version == 0:
            endpoint = m.UpdateMetadataRequest.UpdateMetadataEndpoint(
                host=broker.v0_host, port=broker.v0_port, security_protocol=_PLAINTEXT
            )
            broker.endpoints = [endpoint]
        if version < LISTENERS_FROM:
            for endpoint in broker.endpoints:
                endpoint.listener = SECURITY_PROTOCOLS.get(endpoint.security_protocol, "PLAINTEXT")


def group_stop_replica(request: m.StopReplicaRequest, version: int) -> None:
    """Moves the partitions of a version before 3 to their topics; each has the flag of the request."""
    numbers: dict[str, list[int]] = {}
    if version == 0:
        for each in request.ungrouped_partitions:
            numbers.setdefault(each.topic_name, []).append(each.partition_index)
    else:
        for topic in request.topics:
            numbers.setdefault(topic.name, []).extend(topic.partition_indexes)
    Partition = m.StopReplicaRequest.StopReplicaPartitionState
    request.topic_states = [
        m.StopReplicaRequest.StopReplicaTopicState(
            topic_name=name,
            partition_states=[
                Partition(
                    partition_index=number,
                    leader_epoch=EPOCH_DURING_DELETE,
                    delete_partition=request.delete_partitions,
                )
                for number in partitions
            ],
        )
        for name, partitions in numbers.items()
    ]
    request.topics, request.ungrouped_partitions = [], []
