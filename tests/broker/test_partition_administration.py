"""Elections and reassignments asked of a broker alone, and what only brokers may ask of it."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from tests.asker import Asker
from tests.conftest import StartHeadrace
from tests.wire import Wire, batch

pytestmark = pytest.mark.slow  # processes of its own

PREFERRED, UNCLEAN = 0, 1


@pytest.fixture
def asker(headrace_server: StartHeadrace) -> Iterator[Asker]:
    with Asker(headrace_server().bootstrap) as connected:
        yield connected


@pytest.fixture
def topic(asker: Asker) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    wish = m.CreateTopicsRequest.CreatableTopic(name=name, num_partitions=2, replication_factor=1)
    assert asker.ask(m.CreateTopicsRequest(topics=[wish], timeout_ms=30_000), 5).topics[0].error_code == 0
    return name


def elect(topics: dict[str, list[int]] | None, kind: int = PREFERRED) -> m.ElectLeadersRequest:
    wanted = None
    if topics is not None:
        wanted = [m.ElectLeadersRequest.TopicPartitions(topic=each, partitions=p) for each, p in topics.items()]
    return m.ElectLeadersRequest(election_type=kind, topic_partitions=wanted, timeout_ms=10_000)


def move(topic: str, number: int, replicas: list[int] | None, **more: Any) -> m.AlterPartitionReassignmentsRequest:
    partition = m.AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=number, replicas=replicas)
    return m.AlterPartitionReassignmentsRequest(
        topics=[m.AlterPartitionReassignmentsRequest.ReassignableTopic(name=topic, partitions=[partition])], **more
    )


@pytest.mark.parametrize("version", m.ElectLeadersRequest.VERSIONS)
def test_an_election_that_is_not_needed_says_so_unless_all_were_meant(asker: Asker, topic: str, version: int) -> None:
    answer = asker.ask(elect({topic: [0, 9], "nope": [0]}), version)
    codes = {each.topic: [p.error_code for p in each.partition_result] for each in answer.replica_election_results}
    assert codes == {
        topic: [ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
        "nope": [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
    }
    assert asker.ask(elect(None), version).replica_election_results == []


def test_unclean_elections_and_others_that_do_not_exist(asker: Asker, topic: str) -> None:
    (result,) = asker.ask(elect({topic: [0]}, UNCLEAN), 2).replica_election_results
    assert result.partition_result[0].error_code == ErrorCode.ELECTION_NOT_NEEDED
    (result,) = asker.ask(elect({topic: [0]}, 7), 2).replica_election_results
    assert result.partition_result[0].error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", m.AlterPartitionReassignmentsRequest.VERSIONS)
def test_a_reassignment_needs_brokers_that_are_there(asker: Asker, topic: str, version: int) -> None:
    for replicas, code in (
        ([0], ErrorCode.NONE),
        ([0, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([0, 0], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ):
        answer = asker.ask(move(topic, 0, replicas), version)
        assert (answer.error_code, answer.responses[0].partitions[0].error_code) == (ErrorCode.NONE, code), replicas
    answer = asker.ask(move("nope", 0, [0]), version)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    listed = asker.ask(m.ListPartitionReassignmentsRequest(topics=None), 0)
    assert (listed.error_code, listed.topics) == (ErrorCode.NONE, [])


def test_what_is_reassigned_to_where_it_is_serves_on(asker: Asker, topic: str) -> None:
    assert asker.ask(move(topic, 0, [0]), 0).responses[0].partitions[0].error_code == 0
    host, port = asker.socket.getpeername()
    with Wire(f"{host}:{port}") as wire:
        assert wire.produce(topic, batch([b"x"])).error_code == 0


@pytest.mark.parametrize(
    "request_",
    [
        m.AlterPartitionRequest(broker_id=0, broker_epoch=1),
        m.ControlledShutdownRequest(broker_id=0, broker_epoch=1),
        m.AllocateProducerIdsRequest(broker_id=0, broker_epoch=1),
    ],
    ids=lambda each: type(each).__name__,
)
def test_what_only_brokers_ask_is_refused_where_there_are_no_others(asker: Asker, request_: Any) -> None:
    for version in type(request_).VERSIONS:
        assert asker.ask(request_, version).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
