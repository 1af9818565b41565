"""A controller of Apache Kafka before 2.2 tells the broker who leads, what the cluster has, and what to drop."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ErrorCode
from headrace.metadata.model import Endpoint
from headrace.protocol import messages as m
from tests.asker import Asker
from tests.broker.replica_nodes import Nodes
from tests.conftest import StartHeadrace
from tests.simulation.virtual_time import in_virtual_time
from tests.wire import Wire

CONTROLLER, CONTROLLER_EPOCH, SASL_SSL = 7, 9, 3


def lead(topic: str) -> m.LeaderAndIsrRequest:
    """Broker 1 leads the partitions of a topic that is new to it."""
    Partition = m.LeaderAndIsrRequest.LeaderAndIsrPartitionState
    states = [
        Partition(
            topic_name=topic, partition_index=number, controller_epoch=CONTROLLER_EPOCH, leader=1, leader_epoch=0,
            isr=[1], partition_epoch=0, replicas=[1], is_new=True,
        )
        for number in range(2)
    ]  # fmt: skip
    return m.LeaderAndIsrRequest(
        controller_id=CONTROLLER, controller_epoch=CONTROLLER_EPOCH, ungrouped_partition_states=states
    )


def metadata(topic: str, version: int) -> m.UpdateMetadataRequest:
    """Brokers 1 and 2 are live, and 1 leads the topic."""
    Partition = m.UpdateMetadataRequest.UpdateMetadataPartitionState
    Broker = m.UpdateMetadataRequest.UpdateMetadataBroker
    Endpoint = m.UpdateMetadataRequest.UpdateMetadataEndpoint
    states = [
        Partition(
            topic_name=topic, partition_index=number, controller_epoch=CONTROLLER_EPOCH, leader=1, leader_epoch=0,
            isr=[1], zk_version=0, replicas=[1],
        )
        for number in range(2)
    ]  # fmt: skip

    def live(number: int, host: str, port: int) -> m.UpdateMetadataRequest.UpdateMetadataBroker:
        if version == 0:
            return Broker(id=number, v0_host=host, v0_port=port)
        secured = Endpoint(host="secured.example", port=1, listener="SECURED", security_protocol=SASL_SSL)
        plain = Endpoint(host=host, port=port, listener="OWN", security_protocol=0)
        return Broker(id=number, endpoints=[secured, plain], rack="r1" if version >= 2 else None)

    return m.UpdateMetadataRequest(
        controller_id=CONTROLLER, controller_epoch=CONTROLLER_EPOCH, ungrouped_partition_states=states,
        live_brokers=[live(1, "one.example", 9092), live(2, "two.example", 9093)],
    )  # fmt: skip


def stop(topic: str, version: int) -> m.StopReplicaRequest:
    """Both partitions of a topic are deleted."""
    request = m.StopReplicaRequest(controller_id=CONTROLLER, controller_epoch=CONTROLLER_EPOCH, delete_partitions=True)
    if version == 0:
        Ungrouped = m.StopReplicaRequest.StopReplicaPartitionV0
        request.ungrouped_partitions = [Ungrouped(topic_name=topic, partition_index=number) for number in range(2)]
    else:
        Topic = m.StopReplicaRequest.StopReplicaTopicV1
        request.topics = [Topic(name=topic, partition_indexes=[0, 1])]
    return request


@pytest.mark.parametrize(("leading", "telling", "stopping"), [(0, 0, 0), (1, 1, 0), (1, 2, 0), (1, 3, 1), (1, 4, 2)])
@in_virtual_time
async def test_leads_tells_and_drops_what_an_old_controller_says(
    tmp_path: Path, leading: int, telling: int, stopping: int
) -> None:
    async with Nodes(tmp_path, 1) as nodes:
        node = nodes[1]
        led = await node.ask(lead("t"), m.LeaderAndIsrResponse, leading)
        assert led.error_code == ErrorCode.NONE
        assert [(each.topic_name, each.partition_index, each.error_code) for each in led.partition_errors] == [
            ("t", 0, 0), ("t", 1, 0),
        ]  # fmt: skip
        assert node.control.is_reached, "the broker is in the cluster, although the request has no broker epoch"
        told = await node.ask(metadata("t", telling), m.UpdateMetadataResponse, telling)
        assert told.error_code == ErrorCode.NONE
        known = node.metadata.snapshot
        rack = "r1" if telling >= 2 else None
        plain = "PLAINTEXT" if telling < 3 else "OWN"
        assert {number: (each.rack, each.endpoints[-1]) for number, each in known.brokers.items()} == {
            1: (rack, Endpoint(plain, "one.example", 9092)), 2: (rack, Endpoint(plain, "two.example", 9093)),
        }  # fmt: skip
        assert {number: each.leader for number, each in known.topics["t"].partitions.items()} == {0: 1, 1: 1}
        node.append("t", "a")
        assert node.values("t") == ["a"]
        stopped = await node.ask(stop("t", stopping), m.StopReplicaResponse, stopping)
        assert [(each.topic_name, each.error_code) for each in stopped.partition_errors] == [("t", 0), ("t", 0)]
        assert node.replicas.find(("t", 0)) is None


@in_virtual_time
async def test_refuses_what_an_earlier_controller_says(tmp_path: Path) -> None:
    async with Nodes(tmp_path, 1) as nodes:
        told = await nodes[1].ask(metadata("t", 1), m.UpdateMetadataResponse, 1)
        assert told.error_code == ErrorCode.NONE
        asked: Sequence[tuple[Any, type[Any]]] = (
            (lead("t"), m.LeaderAndIsrResponse),
            (metadata("t", 0), m.UpdateMetadataResponse),
            (stop("t", 0), m.StopReplicaResponse),
        )
        for request, answer in asked:
            request.controller_epoch = CONTROLLER_EPOCH - 1
            assert (await nodes[1].ask(request, answer, 0)).error_code == ErrorCode.STALE_CONTROLLER_EPOCH


def test_writes_the_markers_of_version_0(headrace_server: StartHeadrace) -> None:
    server = headrace_server()
    with Wire(server.bootstrap) as wire:
        assert wire.create_topic("t") == 0
    Marker = m.WriteTxnMarkersRequest.WritableTxnMarker
    topic = m.WriteTxnMarkersRequest.WritableTxnMarkerTopic(name="t", partition_indexes=[0, 5])
    marker = Marker(producer_id=1, producer_epoch=0, transaction_result=True, topics=[topic], coordinator_epoch=0)
    with Asker(server.bootstrap) as asker:
        answer = asker.ask(m.WriteTxnMarkersRequest(markers=[marker]), 0)
        found = answer.markers[0].topics[0].partitions
        assert [(each.partition_index, each.error_code) for each in found] == [
            (0, ErrorCode.NONE), (5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]  # fmt: skip
