"""Clients that ask for much and give little: the broker's memory stays bounded, and a bystander is served throughout.

Memory is read from /proc/PID/status, so it is all of the process: Python's, the kernel module's, the libraries'.
"""

import os
import resource
import socket
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pytest

from headrace.broker.app import DESCRIPTORS_AT_START
from headrace.records.codecs.compression import Codec
from headrace.records.legacy.message_set import iter_entries
from tests import rotation
from tests.broker.lies import bomb
from tests.broker.siege import MIB, Bystander, assert_unharmed, growing_at_most, memory_bytes
from tests.conftest import StartHeadrace
from tests.eventually import WITHIN_SECONDS, eventually
from tests.harness import HeadraceServer, receive_exactly, receive_frame
from tests.wire import FETCH, METADATA, PRODUCE, Wire, batch, fetch_request, frame, produce_request, produced, string

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="memory is read from /proc"),
]

FOR_EVER_MS = 0x7FFFFFFF
CORRUPT_MESSAGE, INVALID_RECORD = 2, 87
DESCRIBE_CONFIGS = 32
ALL_TOPICS = struct.pack(">i", -1)


@pytest.fixture
def server(headrace_server: StartHeadrace) -> Iterator[HeadraceServer]:
    """A broker of its own for each test, since memory that one took would hide what the next takes."""
    running = headrace_server(settings={"max.connections.per.ip": "20000"})
    with Bystander(running.bootstrap) as bystander:
        eventually(lambda: bystander.exchanges >= 100, "everything to be compiled and loaded")
        yield running
    print(f"bystander: {bystander.exchanges} exchanges")
    assert_unharmed(running)


def send_until_refused(connection: socket.socket, data: bytes, times: int) -> int:
    """How many times `data` was taken before the other side stopped reading."""
    connection.settimeout(1)
    for number in range(times):
        try:
            connection.sendall(data)
        except TimeoutError:
            return number
    return times


@pytest.mark.parametrize("first", [b"", frame(FETCH, 4, fetch_request("bystander", 1 << 40, max_wait_ms=1))])
def test_answers_that_nobody_reads_are_not_made_without_end(server: HeadraceServer, first: bytes) -> None:
    with Wire(server.bootstrap) as wire:
        assert wire.create_topic("wide", partitions=300) == 0
        answer_bytes = len(wire.ask(METADATA, 1, ALL_TOPICS))
    many = frame(METADATA, 1, ALL_TOPICS) * 1_000
    with growing_at_most(server, 100 * MIB), Wire(server.bootstrap) as wire:
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        taken = send_until_refused(wire.socket, first + many, 2_000)
        assert taken * 1_000 * answer_bytes < 2_000 * MIB, "it has stopped reading requests"


def test_answers_behind_one_that_waits_are_not_made_without_end(server: HeadraceServer) -> None:
    with Wire(server.bootstrap) as wire:
        assert wire.create_topic("wide", partitions=300) == 0
        end = wire.list_offset("wide", -1)[2]
    with growing_at_most(server, 100 * MIB), Wire(server.bootstrap) as wire:
        wire.send(FETCH, 4, fetch_request("wide", end, max_wait_ms=FOR_EVER_MS))
        taken = send_until_refused(wire.socket, frame(METADATA, 1, ALL_TOPICS) * 1_000, 2_000)
        assert taken < 2_000


def test_frames_that_are_announced_and_do_not_come_cost_nothing(server: HeadraceServer) -> None:
    with growing_at_most(server, 16 * MIB), ExitStack() as stack:
        for number in range(500):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), WITHIN_SECONDS))
            connection.sendall(struct.pack(">i", 100 * MIB) + b"\0" * (number % 100))
        time.sleep(0.5)


def test_a_hundred_megabytes_of_empty_names_are_not_made_objects(server: HeadraceServer) -> None:
    with growing_at_most(server, 350 * MIB), Wire(server.bootstrap) as wire:
        names = 50_000_000
        body = struct.pack(">i", names) + bytes(2 * names)
        with suppress(ConnectionError):
            wire.socket.sendall(frame(METADATA, 1, body))
            receive_exactly(wire.socket, 1)


def test_a_topic_named_fifty_thousand_times_is_described_once(server: HeadraceServer) -> None:
    with Wire(server.bootstrap) as wire:
        assert wire.create_topic("w", partitions=100) == 0
        with growing_at_most(server, 100 * MIB):
            answer = wire.ask(METADATA, 1, struct.pack(">i", 50_000) + string("w") * 50_000)
        assert len(answer) < 10_000


@pytest.mark.slow
def test_long_polls_whose_clients_have_left_are_forgotten(server: HeadraceServer) -> None:
    with Wire(server.bootstrap) as wire:
        assert wire.create_topic("quiet") == 0
    waiting = frame(FETCH, 4, fetch_request("quiet", 0, min_bytes=FOR_EVER_MS, max_wait_ms=FOR_EVER_MS)) * 500

    def ten_thousand() -> None:
        for _ in range(20):
            with Wire(server.bootstrap) as wire:
                wire.socket.sendall(waiting)
        assert_down_to(server, 2)

    ten_thousand()
    before = memory_bytes(server)
    for _ in range(3):
        ten_thousand()
    assert memory_bytes(server) - before < 12 * MIB


@pytest.mark.slow
def test_a_client_that_left_is_noticed_though_its_requests_are_not_read(server: HeadraceServer) -> None:
    """So many long polls that the broker takes up no more: it does not see the end of the stream behind them."""
    with Wire(server.bootstrap) as wire:
        assert wire.create_topic("quiet") == 0
    waiting = frame(FETCH, 4, fetch_request("quiet", 0, min_bytes=FOR_EVER_MS, max_wait_ms=FOR_EVER_MS))
    for _ in range(5):
        with Wire(server.bootstrap) as wire:
            wire.socket.sendall(waiting * 3_000)
            time.sleep(0.3)
    assert_down_to(server, 2)


def connections_of(server: HeadraceServer) -> int:
    """How many clients are connected to the broker's port."""
    assert server.process is not None
    found = psutil.Process(server.process.pid).net_connections("tcp")
    return sum(1 for each in found if each.laddr.port == server.port and each.raddr)


def assert_down_to(server: HeadraceServer, count: int) -> None:
    """Waits until the broker has no more than `count` clients, bystander included."""
    with Wire(server.bootstrap) as wire:
        wire.ask(METADATA, 1, ALL_TOPICS)  # by now it has accepted all who came before
    eventually(
        lambda: connections_of(server) <= count,
        f"no more than {count} connections",
        every_s=0.1,
        state=lambda: f"{connections_of(server)} are open",
    )


def crowd(server: HeadraceServer, size: int) -> None:
    """So many idle connections at once; each speaks once, and they all leave together."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = size + 200
    if hard < wanted:
        pytest.skip(f"this user may open {hard} files, {wanted} are needed")
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    with growing_at_most(server, 8 * MIB + size * 6_000), ExitStack() as stack:
        address = ("127.0.0.1", server.port)
        connections = [stack.enter_context(socket.create_connection(address, WITHIN_SECONDS)) for _ in range(size)]
        for connection in connections[:: max(1, size // 200)]:
            connection.sendall(frame(18, 0, b""))
            assert receive_frame(connection)
        assert connections_of(server) > size
    assert_down_to(server, 2)


@pytest.mark.slow
def test_1500_idle_connections_are_carried(server: HeadraceServer) -> None:
    crowd(server, 1_500)


@pytest.mark.soak
def test_10_000_idle_connections_are_carried(server: HeadraceServer) -> None:
    crowd(server, 10_000)


@pytest.mark.skipif(sys.platform != "linux", reason="the system does not tell the size of the table of descriptors")
def test_the_table_of_descriptors_need_not_grow_while_connections_come(server: HeadraceServer) -> None:
    assert server.process is not None
    pid = server.process.pid
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    size = int(next(line for line in status if line.startswith("FDSize:")).split()[1])
    assert size >= min(DESCRIPTORS_AT_START, resource.prlimit(pid, resource.RLIMIT_NOFILE)[0])
    assert len(os.listdir(f"/proc/{pid}/fd")) < 200


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="limits of another process can be set on Linux")
def test_a_broker_out_of_descriptors_waits_for_some(server: HeadraceServer) -> None:
    assert server.process is not None
    limits = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
    open_files = len(os.listdir(f"/proc/{server.process.pid}/fd"))
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (open_files + 20, limits[1]))
    with ExitStack() as stack:
        for _ in range(60):
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port), WITHIN_SECONDS))
        before = server.stderr_file.stat().st_size
        time.sleep(1.5)
        assert server.stderr_file.stat().st_size - before < 1_000, "it says so about once a second"
    with Wire(server.bootstrap) as wire:
        assert wire.list_offset("bystander", -1)[0] == 0
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, limits)


@pytest.mark.slow
@pytest.mark.parametrize("codec", rotation.in_turn(*(codec for codec in Codec if codec is not Codec.NONE), a_day=2))
def test_bombs_are_refused_and_queue_up(server: HeadraceServer, codec: Codec) -> None:
    with Wire(server.bootstrap) as wire:
        assert wire.create_topic("bombed", configs={"max.message.bytes": str(32 * MIB)}) == 0
    attack = bomb(codec, 256 * MIB)
    with growing_at_most(server, (2 * 256 + 250) * MIB), ExitStack() as stack:
        attackers = [stack.enter_context(Wire(server.bootstrap)) for _ in range(6)]
        for wire in attackers:
            wire.socket.settimeout(WITHIN_SECONDS)
            wire.send(PRODUCE, 3, produce_request("bombed", attack))
        for wire in attackers:
            assert produced("bombed", wire.receive()[1]).error_code in (CORRUPT_MESSAGE, INVALID_RECORD)
    with Wire(server.bootstrap) as wire:
        assert wire.list_offset("bombed", -1)[2] == 0


@pytest.mark.slow
@pytest.mark.parametrize("version", [0, 3])
def test_converting_a_topic_down_for_an_old_client_takes_bounded_memory(server: HeadraceServer, version: int) -> None:
    records = batch([b"x" * 1000] * 900)
    count = 120
    with Wire(server.bootstrap) as wire:
        assert wire.create_topic("stored-in-v2") == 0
        for _ in range(count):
            assert wire.produce("stored-in-v2", records, acks=1).error_code == 0
        limits = (0, 1) if version < 3 else (0, 1, 50 << 20)  # before version 3 there is none for the whole answer
        head = struct.pack(">" + "i" * (1 + len(limits)), -1, *limits) + struct.pack(">i", 1) + string("stored-in-v2")
        offset = 0
        with growing_at_most(server, 100 * MIB):
            while offset < 900 * count:
                answer = wire.ask(FETCH, version, head + struct.pack(">iiqi", 1, 0, offset, 50 << 20))
                start = (0 if version == 0 else 4) + 4 + 2 + len("stored-in-v2") + 4 + 4 + 2 + 8 + 4
                entries = list(iter_entries(memoryview(answer)[start:]))
                assert entries[0].offset == offset
                offset = entries[-1].offset + 1


def describe_own_configs() -> bytes:
    """DescribeConfigs of the broker with documentation: about 18 KiB of answer for 40 bytes."""
    body = struct.pack(">ib", 1, 4) + string("0") + struct.pack(">i??", -1, True, True)
    return frame(DESCRIBE_CONFIGS, 3, body)


@pytest.mark.slow
def test_answers_of_all_connections_together_are_bounded(headrace_server: StartHeadrace) -> None:
    """Sixteen slow readers with 4 MiB of answers each, where 4 MiB may wait: they stop being read, and go on."""
    server = headrace_server(settings={"queued.max.response.bytes": str(4 * MIB)})
    request = describe_own_configs()
    with Wire(server.bootstrap) as wire:
        wire.socket.sendall(request)
        answer_bytes = len(receive_frame(wire.socket))
    times = 4 * MIB // answer_bytes
    with ExitStack() as stack:
        with growing_at_most(server, 32 * MIB), Bystander(server.bootstrap) as bystander:
            slow = [stack.enter_context(Wire(server.bootstrap)) for _ in range(16)]
            for each in slow:
                each.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 256 << 10)
                each.socket.sendall(request * times)
            settled = bystander.exchanges + 100
            eventually(lambda: bystander.exchanges >= settled, "a client that reads its answers to go on")
        for each in slow:
            each.socket.settimeout(WITHIN_SECONDS)
            assert {len(receive_frame(each.socket)) for _ in range(times)} == {answer_bytes}
