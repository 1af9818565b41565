"""The floor of the replicated benchmarks is one: it replicates all that it answers, to both followers."""

import random
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from benchmarks.cluster.replicated_floor import NODES, ReplicatedFloor, missing_tools
from benchmarks.request_load import VERSION, produce_frame
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.protocol.codec.message import Message
from headrace.protocol.headers import read_response_header, write_request_header
from tests.eventually import WITHIN_SECONDS, eventually
from tests.harness import receive_frame

pytestmark = [
    pytest.mark.slow,  # processes of its own
    pytest.mark.skipif(missing_tools() is not None, reason=str(missing_tools())),
]
TOPIC = "any"


@pytest.fixture
def floor(tmp_path: Path) -> Iterator[ReplicatedFloor]:
    with ReplicatedFloor(tmp_path) as running:
        yield running


def connect(floor: ReplicatedFloor, partition: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", floor.ports[partition]), WITHIN_SECONDS)


def ask(connection: socket.socket, key: ApiKey, version: int, request: Message) -> None:
    frame = write_request_header(key, version, 7, "test") + request.encode(version)
    connection.sendall(len(frame).to_bytes(4, "big") + frame)


def answer(connection: socket.socket, key: ApiKey, version: int) -> bytes:
    frame = receive_frame(connection)
    return frame[read_response_header(frame, key, version)[1] :]


def base_offset(connection: socket.socket) -> int:
    (topic,) = m.ProduceResponse.decode(VERSION, answer(connection, ApiKey.PRODUCE, VERSION))[0].responses
    (partition,) = topic.partition_responses
    assert (topic.name, partition.error_code) == (TOPIC, 0)
    return partition.base_offset


def replicas(floor: ReplicatedFloor, partition: int) -> set[bytes]:
    return {path.read_bytes() for path in floor.logs(partition)}


def test_the_three_logs_are_equal_after_frames_of_all_sizes_and_in_pieces(floor: ReplicatedFloor) -> None:
    some = random.Random(5)
    for partition in range(NODES):
        with connect(floor, partition) as one, connect(floor, partition) as other:
            offset = 0
            for records, size in [(1, 100), (15, 1024), (1, 1), (3000, 1024), (1, 100)]:
                frame = produce_frame(TOPIC, partition, records, size, acks=-1)
                cuts = sorted(some.randrange(len(frame)) for _ in range(3))
                for start, end in zip([0, *cuts], [*cuts, len(frame)], strict=True):
                    one.sendall(frame[start:end])
                assert base_offset(one) == offset
                offset += records
            frame = produce_frame(TOPIC, partition, 2, 10, acks=-1)
            one.sendall(50 * frame)
            other.sendall(50 * frame)
            found = [base_offset(each) for _ in range(50) for each in (one, other)]
            assert found[0::2] == sorted(found[0::2]) and found[1::2] == sorted(found[1::2])
            assert sorted(found) == list(range(offset, offset + 200, 2))
        (log,) = replicas(floor, partition)
        at, offsets = 0, []
        while any(log[at + 8 : at + 12]):  # behind the last batch are zeros
            offsets.append(int.from_bytes(log[at : at + 8], "big"))
            at += 12 + int.from_bytes(log[at + 8 : at + 12], "big")
        assert (len(offsets), offsets[-1]) == (105, offset + 198)
        assert not any(log[at:])


def test_a_produce_is_answered_when_both_followers_have_it(floor: ReplicatedFloor) -> None:
    stopped = psutil.Process(floor.processes[2].pid)
    with connect(floor, 0) as connection:
        stopped.send_signal(signal.SIGSTOP)
        try:
            connection.sendall(produce_frame(TOPIC, 0, acks=-1))
            ask(connection, ApiKey.METADATA, 9, m.MetadataRequest(topics=[]))
            here, there, missing = floor.logs(0)
            eventually(lambda: 0 < here.stat().st_size == there.stat().st_size, "a batch at the leader and a follower")
            connection.settimeout(0.2)
            with pytest.raises(TimeoutError):
                connection.recv(1)
            assert missing.stat().st_size == 0
            connection.settimeout(WITHIN_SECONDS)
            large = produce_frame(TOPIC, 0, 3000, 1024, acks=-1)  # more than sockets take, so the rest has to wait
            for _ in range(5):
                connection.sendall(large)
            eventually(lambda: there.stat().st_size > 5 * 3000 * 1024, "the batches at the follower that runs")
        finally:
            stopped.send_signal(signal.SIGCONT)
        assert base_offset(connection) == 0
        answer(connection, ApiKey.METADATA, 9)
        assert [base_offset(connection) for _ in range(5)] == [1 + 3000 * number for number in range(5)]
    assert len(replicas(floor, 0)) == 1


def test_it_answers_what_producers_ask_first(floor: ReplicatedFloor) -> None:
    with connect(floor, 1) as connection:
        ask(connection, ApiKey.API_VERSIONS, 3, m.ApiVersionsRequest())
        found = m.ApiVersionsResponse.decode(3, answer(connection, ApiKey.API_VERSIONS, 3))[0]
        assert [each.api_key for each in found.api_keys] == [0, 3, 18, 22]
        topic = m.MetadataRequest.MetadataRequestTopic(name=TOPIC)
        ask(connection, ApiKey.METADATA, 9, m.MetadataRequest(topics=[topic]))
        metadata = m.MetadataResponse.decode(9, answer(connection, ApiKey.METADATA, 9))[0]
        assert [each.port for each in metadata.brokers] == floor.ports
        assert [each.leader_id for each in metadata.topics[0].partitions] == [0, 1, 2]
        ask(connection, ApiKey.INIT_PRODUCER_ID, 4, m.InitProducerIdRequest(transaction_timeout_ms=1))
        producer = m.InitProducerIdResponse.decode(4, answer(connection, ApiKey.INIT_PRODUCER_ID, 4))[0]
        assert (producer.error_code, producer.producer_id, producer.producer_epoch) == (0, 1, 0)
