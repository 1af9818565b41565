"""Produces of many connections that arrive in one turn are written together, and answered when they are written."""

import asyncio
import errno
import gc
import os
import random
import socket
import ssl
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import pytest

from headrace.broker.partitions.partition import Partition
from headrace.broker.produce.refused_writes import RefusedWrites
from headrace.broker.request.dispatch import Dispatcher
from headrace.errors import ErrorCode
from headrace.limits import RECEIVERS_OF_THE_LOOP, REFUSED_WRITES_LOGGED_PER_SECOND_MAX
from headrace.log.append_state import RefusedAppends
from headrace.network.connection import Connection
from headrace.network.late_answers import LateAnswers
from headrace.network.receive_pass import ReceivePass
from headrace.network.response_memory import UNLIMITED, ResponseMemory
from headrace.network.transport import PlainTransport
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.protocol.conversation.frames import FrameReader
from headrace.protocol.headers import write_request_header
from headrace.records.format2.batch import decode_records, iter_headers
from headrace.testing import Broker
from tests.broker.refusing_disk import refusing
from tests.eventually import WITHIN_SECONDS, eventually, eventually_equal
from tests.harness import receive_frame
from tests.wire import (
    API_VERSIONS,
    FETCH,
    INIT_PRODUCER_ID,
    METADATA,
    PRODUCE,
    Produced,
    Wire,
    batch,
    fetch_request,
    frame,
    produce_request,
    produced,
    string,
)

TOPIC, PARTITIONS = "late", 3


class Setting(NamedTuple):
    """A broker in this process."""

    broker: Broker
    dispatcher: Dispatcher

    def connect(self, count: int) -> list[socket.socket]:
        """Connections that have been accepted, and asked something."""
        host, _, port = self.broker.bootstrap.rpartition(":")
        found = [socket.create_connection((host, int(port)), WITHIN_SECONDS) for _ in range(count)]
        for each in found:
            each.sendall(produce_frame(0, b"first"))
        for each in found:
            assert answered(each).error_code == 0
        return found

    def partition(self, number: int) -> Partition:
        return self.dispatcher._services.replicas.partitions[(TOPIC, number)]

    @contextmanager
    def held(self) -> Iterator[None]:
        """Holds the event loop, so that all that is sent meanwhile is there in its next turn."""
        begun, ends = threading.Event(), threading.Event()

        def wait() -> None:
            begun.set()
            ends.wait(WITHIN_SECONDS)

        loop = self.broker._host._loop  # type: ignore[union-attr]
        loop.call_soon_threadsafe(wait)
        assert begun.wait(WITHIN_SECONDS)
        try:
            yield
        finally:
            ends.set()

    def values(self, number: int, start: int) -> list[bytes]:
        """What a partition has from an offset on."""
        found: list[bytes] = []
        with Wire(self.broker.bootstrap) as wire:
            _, _, end = wire.list_offset(TOPIC, -1, partition=number)
            while start + len(found) < end:
                records = wire.fetch(TOPIC, start + len(found), partition=number).records
                for position, header in iter_headers(memoryview(records)):
                    part = memoryview(records)[position : position + header.size_bytes]
                    found += [bytes(each.value or b"") for each in decode_records(part, header)]
        return found


def dispatcher_of(broker: Broker) -> Dispatcher:
    dispatchers = [each for each in gc.get_objects() if type(each) is Dispatcher]
    (found,) = (each for each in dispatchers if each._services.config.log_dirs == (str(broker.data),))
    return found


@pytest.fixture(scope="module")
def setting() -> Iterator[Setting]:
    with Broker() as broker, Wire(broker.bootstrap) as wire:
        assert wire.create_topic(TOPIC, PARTITIONS) == 0
        made = Setting(broker, dispatcher_of(broker))
        for number in range(PARTITIONS):  # the first batch of a log is none to put off
            assert wire.produce(TOPIC, batch([b"first"]), partition=number).error_code == 0
        idle = made.connect(RECEIVERS_OF_THE_LOOP)  # the others are the pass's
        yield made
        for each in idle:
            each.close()


@pytest.fixture
def clients(setting: Setting) -> Iterator[list[socket.socket]]:
    found = setting.connect(24)
    for number in range(PARTITIONS):
        setting.partition(number).log.writes_at_once = False  # whatever a test before has refused
    yield found
    for each in found:
        each.close()


def produce_frame(partition: int, *values: bytes) -> bytes:
    return frame(PRODUCE, 3, produce_request(TOPIC, batch(list(values)), partition=partition))


def fetch_frame(partition: int, offset: int, max_wait_ms: int) -> bytes:
    return frame(FETCH, 4, fetch_request(TOPIC, offset, partition=partition, max_wait_ms=max_wait_ms))


def answered(client: socket.socket) -> Produced:
    return produced(TOPIC, receive_frame(client)[4:])


def code_of(client: socket.socket, request: bytes) -> int:
    """The error that a produce is answered with."""
    client.sendall(request)
    return answered(client).error_code


def end_of(setting: Setting, number: int) -> int:
    return int(setting.partition(number).log.log_end_offset)


@pytest.mark.parametrize("seed", range(3))
def test_all_are_stored_and_answered_each_with_its_offset(
    setting: Setting, clients: Sequence[socket.socket], seed: int
) -> None:
    chance = random.Random(seed)
    starts = [end_of(setting, number) for number in range(PARTITIONS)]
    wanted: list[dict[int, bytes]] = [{}, {}, {}]
    for turn in range(5):
        sent: list[list[tuple[int, list[bytes]]]] = []
        with setting.held():
            for number, client in enumerate(clients):
                mine = []
                for request in range(chance.choice((1, 1, 1, 3))):
                    values = [f"{turn} {number} {request} {n}".encode() * 9 for n in range(chance.choice((1, 1, 4)))]
                    mine.append((chance.randrange(PARTITIONS), values))
                if chance.random() < 0.1:
                    mine[-1][1][0] += bytes(100_000)  # written by itself
                client.sendall(b"".join(produce_frame(partition, *values) for partition, values in mine))
                sent.append(mine)
        for client, mine in zip(clients, sent, strict=True):
            last: dict[int, int] = {}
            for partition, values in mine:
                answer = answered(client)
                assert answer.error_code == 0
                assert answer.base_offset > last.get(partition, -1), "of one connection, in their order"
                last[partition] = answer.base_offset
                wanted[partition] |= {answer.base_offset + n: value for n, value in enumerate(values)}
    for number, start in enumerate(starts):
        stored = setting.values(number, start)
        assert {start + n: value for n, value in enumerate(stored)} == wanted[number]
        state = setting.partition(number).state
        assert state.high_watermark == state.log_end_offset == end_of(setting, number)


def test_a_fetch_behind_a_produce_finds_the_record(setting: Setting, clients: Sequence[socket.socket]) -> None:
    base = end_of(setting, 1)
    with setting.held():
        for client in clients[1:]:
            client.sendall(produce_frame(0, b"other"))
        clients[0].sendall(produce_frame(1, b"mine") + fetch_frame(1, base, 0) + produce_frame(1, b"next"))
    assert answered(clients[0]).base_offset == base
    assert b"mine" in receive_frame(clients[0])
    assert answered(clients[0]).base_offset == base + 1
    assert {answered(client).error_code for client in clients[1:]} == {0}


def test_a_fetch_that_waits_is_woken(setting: Setting, clients: Sequence[socket.socket]) -> None:
    base = end_of(setting, 2)
    clients[0].sendall(fetch_frame(2, base, 100_000))
    with setting.held():  # behind the fetch
        for client in clients[1:]:
            client.sendall(produce_frame(2, b"awaited"))
    found = receive_frame(clients[0])
    assert b"awaited" in found
    assert {answered(client).error_code for client in clients[1:]} == {0}


def test_what_a_client_sent_before_it_left_is_stored(setting: Setting) -> None:
    leaving = setting.connect(9)
    base = end_of(setting, 0)
    with setting.held():
        for number, client in enumerate(leaving):
            client.sendall(produce_frame(0, b"%d" % number))
            client.close()
    with Wire(setting.broker.bootstrap) as wire:
        wire.produce(TOPIC, batch([b"last"]))
    stored = setting.values(0, base)
    assert stored[-1] == b"last"
    assert sorted(stored[:-1]) == [b"%d" % number for number in range(9)]


def many_frame(version: int, acks: int, topic_id: bytes, *values: tuple[int, bytes]) -> bytes:
    """A request with a batch of one record for each of these partitions; its correlation id is its version."""
    data = [m.ProduceRequest.PartitionProduceData(index=n, records=bytes(batch([value]))) for n, value in values]
    topics = [m.ProduceRequest.TopicProduceData(name=TOPIC, topic_id=topic_id, partition_data=data)]
    request = m.ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics)
    body = write_request_header(ApiKey.PRODUCE, version, version, "t") + request.encode(version)
    return len(body).to_bytes(4, "big") + body


def answers_of(client: socket.socket, version: int) -> list[m.ProduceResponse.PartitionProduceResponse]:
    """The answer to `many_frame`, by partition."""
    frame = receive_frame(client)
    assert int.from_bytes(frame[:4], "big") == version
    response, end = m.ProduceResponse.decode(version, frame, 5 if version >= 9 else 4)
    assert end == len(frame)
    (topic,) = response.responses
    return list(topic.partition_responses)


def counters(setting: Setting) -> tuple[int, ...]:
    traffic = setting.partition(0).traffic
    return traffic.produces, traffic.failed_produces, traffic.messages_in, traffic.bytes_in


@pytest.mark.parametrize("acks", [1, -1])
def test_batches_that_the_disk_refuses_are_answered_so_and_those_beside_them_are_stored(
    setting: Setting, clients: Sequence[socket.socket], acks: int
) -> None:
    versions = [*range(3, 14), *range(3, 14)]
    ends = [end_of(setting, number) for number in range(PARTITIONS)]
    topic_id = setting.partition(1).log.topic_id
    assert topic_id is not None
    counted, size = counters(setting), len(batch([b"00"]))
    with refusing(setting.partition(1).log) as refuses:
        with setting.held():
            for number, (client, version) in enumerate(zip(clients, versions, strict=False)):
                value = b"%02d" % number
                client.sendall(
                    many_frame(version, acks, topic_id, (0, value), (1, value))
                    + many_frame(version, acks, topic_id, (2, value))
                )
        for client, version in zip(clients, versions, strict=False):
            stored, refused = answers_of(client, version)
            assert (stored.index, stored.error_code) == (0, 0)
            assert stored.base_offset >= ends[0]
            assert (refused.index, refused.error_code) == (1, ErrorCode.KAFKA_STORAGE_ERROR)
            assert (refused.base_offset, refused.log_append_time_ms) == (-1, -1)
            if version >= 8:
                assert "late-1 could not be written: [Errno 28] No space left" in (refused.error_message or "")
            (beside,) = answers_of(client, version)
            assert (beside.index, beside.error_code, beside.error_message) == (2, 0, None)
    assert refuses.writes < len(versions), "no write was put off"
    state = setting.partition(1).state
    assert end_of(setting, 1) == state.high_watermark == state.log_end_offset == ends[1]
    assert setting.values(1, ends[1]) == []
    for number in (0, 2):
        assert sorted(setting.values(number, ends[number])) == [b"%02d" % n for n in range(len(versions))]
    count = len(versions)
    differences = tuple(new - old for new, old in zip(counters(setting), counted, strict=True))
    assert differences == (2 * count, count, 2 * count, 2 * count * size)
    assert setting.partition(1).log.writes_at_once
    for number in range(2):
        clients[0].sendall(produce_frame(1, b"again"))
        assert answered(clients[0]).base_offset == ends[1] + number
    assert not setting.partition(1).log.writes_at_once


def heartbeat_of_a_member(client: socket.socket) -> bytes:
    """A frame that is answered without an error: of a group's only member, which joins on this connection."""

    def ask(request: Any, version: int) -> Any:
        client.sendall(framed(request, version))
        response = getattr(m, type(request).__name__.replace("Request", "Response"))
        return response.decode(version, memoryview(receive_frame(client)), 4)[0]

    def joined() -> bool:
        protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"x")
        join = m.JoinGroupRequest(
            group_id="late", session_timeout_ms=45_000, rebalance_timeout_ms=45_000, protocol_type="consumer",
            protocols=[protocol],
        )  # fmt: skip
        member.append(ask(join, 3))
        return not member[-1].error_code

    def framed(request: Any, version: int) -> bytes:
        body: bytes = write_request_header(request.API_KEY, version, 7, "t") + request.encode(version)
        return len(body).to_bytes(4, "big") + body

    client.sendall(framed(m.FindCoordinatorRequest(key="late"), 0))  # makes the topic of the groups
    receive_frame(client)
    member: list[Any] = []
    eventually(joined)
    generation, member_id = member[-1].generation_id, member[-1].member_id
    assignment = m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=b"y")
    sync = m.SyncGroupRequest(group_id="late", generation_id=generation, member_id=member_id, assignments=[assignment])
    assert not ask(sync, 2).error_code
    return framed(m.HeartbeatRequest(group_id="late", generation_id=generation, member_id=member_id), 2)


def test_heartbeats_between_batches_that_are_put_off_are_answered_in_order(
    setting: Setting, clients: Sequence[socket.socket]
) -> None:
    beat = heartbeat_of_a_member(clients[0])
    shortcut: Any = setting.dispatcher.shortcut
    taken, ends = shortcut.groups.taken, [end_of(setting, number) for number in (0, 1)]
    fine = (7).to_bytes(4, "big") + bytes(6)
    with refusing(setting.partition(1).log) as refuses:
        with setting.held():
            for number, client in enumerate(clients):
                value = b"%02d" % number
                client.sendall(beat + produce_frame(1, value) + beat + beat + produce_frame(0, value) + beat)
        for client in clients:
            assert receive_frame(client) == fine
            assert answered(client).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert [receive_frame(client), receive_frame(client)] == [fine, fine]
            assert answered(client).error_code == 0
            assert receive_frame(client) == fine
    assert refuses.writes < len(clients), "heartbeats let each batch be written alone"
    assert shortcut.groups.taken - taken == 4 * len(clients)
    assert setting.values(1, ends[1]) == []
    assert sorted(setting.values(0, ends[0])) == [b"%02d" % number for number in range(len(clients))]


def test_a_producer_goes_on_where_it_was_when_the_disk_takes_its_batches_again(
    setting: Setting, clients: Sequence[socket.socket]
) -> None:
    with Wire(setting.broker.bootstrap) as wire:
        answer = wire.ask(INIT_PRODUCER_ID, 0, string(None) + struct.pack(">i", 60_000))
        producer = int(struct.unpack_from(">q", answer, 6)[0])
    base, client = end_of(setting, 1), clients[0]

    def send(*sequences: int) -> None:
        frames = [
            frame(PRODUCE, 3, produce_request(TOPIC, batch([b"%d" % n], producer=(producer, 0, n)), partition=1))
            for n in sequences
        ]
        with setting.held():
            client.sendall(b"".join(frames))

    send(0)
    assert answered(client).error_code == 0
    with refusing(setting.partition(1).log) as refuses:
        send(1, 2, 3)
        assert {answered(client).error_code for _ in range(3)} == {ErrorCode.KAFKA_STORAGE_ERROR}
    assert refuses.writes == 1
    send(1, 2, 3)
    assert [answered(client) for _ in range(3)] == [(0, base + n) for n in (1, 2, 3)]
    send(3, 4)
    assert [answered(client) for _ in range(2)] == [(0, base + n) for n in (3, 4)]
    assert setting.values(1, base) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_request_of_which_only_the_rest_is_stored_tells_so(
    setting: Setting, clients: Sequence[socket.socket]
) -> None:
    """The second batch is none to put off, so that the dispatcher appends it."""
    client, topic_id = clients[0], b""
    ends = [end_of(setting, number) for number in range(PARTITIONS)]
    records = setting.partition(2).log.active.records
    plain_fd = records.plain_fd
    with refusing(setting.partition(1).log):
        records.plain_fd = -1
        with setting.held():
            client.sendall(
                many_frame(8, 1, topic_id, (0, b"first")) + many_frame(8, 1, topic_id, (1, b"lost"), (2, b"kept"))
            )
        (first,) = answers_of(client, 8)
        lost, kept = answers_of(client, 8)
        records.plain_fd = plain_fd
    assert (first.error_code, first.base_offset) == (0, ends[0])
    assert (lost.error_code, lost.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    assert "No space left" in (lost.error_message or "")
    assert (kept.error_code, kept.base_offset) == (0, ends[2])
    assert [end_of(setting, number) for number in range(PARTITIONS)] == [ends[0] + 1, ends[1], ends[2] + 1]


@pytest.mark.parametrize("is_wide", [True, False])
def test_frames_behind_the_answers_that_closed_their_connection_are_not_stored(setting: Setting, is_wide: bool) -> None:
    """The answer before a request of many batches is sent first, and before one of which the dispatcher appends the
    rest. Its client has gone."""
    ends = [end_of(setting, number) for number in range(PARTITIONS)]
    second = many_frame(3, 1, b"", *([(1, b"wide")] * 17 if is_wide else [(1, b"begun"), (2, b"rest")]))
    loop = setting.broker._host._loop  # type: ignore[union-attr]
    theirs, ours = socket.socketpair()
    theirs.sendall(produce_frame(0, b"stored") + second + produce_frame(1, b"behind"))
    theirs.close()
    ours.setblocking(False)
    reasons: list[str] = []

    class Owner:
        def connection_closed(self, connection: Connection, reason: str) -> None:
            reasons.append(reason)

    async def receive() -> None:
        receive_pass = ReceivePass(asyncio.get_running_loop(), 0, LateAnswers())
        Connection(
            PlainTransport(ours, ("127.0.0.1", 1)), "PLAINTEXT", FrameReader(memoryview(bytearray(1 << 16)), 1 << 20),
            setting.dispatcher, Owner(), asyncio.get_running_loop(), ResponseMemory(UNLIMITED), receive_pass,
        )  # fmt: skip
        receive_pass.take_turn()
        receive_pass.close()

    records = setting.partition(2).log.active.records
    plain_fd, records.plain_fd = records.plain_fd, -1  # its batch is none to put off
    asyncio.run_coroutine_threadsafe(receive(), loop).result(WITHIN_SECONDS)
    records.plain_fd = plain_fd
    assert len(reasons) == 1
    begun = 0 if is_wide else 1
    assert [end_of(setting, number) for number in range(PARTITIONS)] == [ends[0] + 1, ends[1] + begun, ends[2] + begun]


def test_a_line_tells_which_log_could_not_be_written_and_where_and_why(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    partition = setting.partition(1)
    writes, error = RefusedWrites(), OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
    counted = counters(setting)
    for _ in range(100):
        writes.add(partition, RefusedAppends(error, end_of(setting, 1), 0, 0, 0))
    lines = [each.getMessage() for each in caplog.records]
    assert f"late-1: 0 batches of 0 bytes in all could not be written in {partition.log.directory}: " in lines[0]
    assert os.strerror(errno.EDQUOT) in lines[0]
    assert REFUSED_WRITES_LOGGED_PER_SECOND_MAX <= len(lines) < 100
    assert counters(setting) == counted


def test_produces_over_tls_are_written_together_too() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with Broker(security="SSL", settings={"num.partitions": PARTITIONS}) as broker:
        setting, clients = Setting(broker, dispatcher_of(broker)), []
        host, _, port = broker.bootstrap.rpartition(":")
        for _ in range(RECEIVERS_OF_THE_LOOP + 8):
            plain = socket.create_connection((host, int(port)), WITHIN_SECONDS)
            clients.append(context.wrap_socket(plain))
            clients[-1].sendall(frame(API_VERSIONS, 0, b""))
            receive_frame(clients[-1])
        idle, clients = clients[:RECEIVERS_OF_THE_LOOP], clients[RECEIVERS_OF_THE_LOOP:]
        clients[0].sendall(frame(METADATA, 0, struct.pack(">i", 1) + string(TOPIC)))  # makes the topic
        receive_frame(clients[0])
        for number, _ in product(range(PARTITIONS), clients):
            eventually_equal(partial(code_of, clients[0], produce_frame(number, b"first")), 0)
        base = end_of(setting, 0)
        with refusing(setting.partition(1).log) as refuses:
            with setting.held():
                for client in clients:
                    client.sendall(produce_frame(0, b"a" * 5000) + produce_frame(1, b"b") + produce_frame(0, b"c"))
            for client in clients:
                first, refused, last = (answered(client) for _ in range(3))
                assert (first.error_code, last.error_code) == (0, 0)
                assert base <= first.base_offset < last.base_offset
                assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert end_of(setting, 0) == base + 2 * len(clients)
        assert refuses.writes < len(clients), "no write was put off"
        for client in (*idle, *clients):
            client.close()
