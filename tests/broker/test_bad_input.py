"""Bytes that no client sends: the sender gets a clear answer or is cut off, everybody else is served as before."""

import random
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import psutil
import pytest

from tests import rotation
from tests.eventually import WITHIN_SECONDS
from tests.harness import HeadraceServer, receive_frame, tail
from tests.wire import (
    API_VERSIONS,
    FETCH,
    METADATA,
    PRODUCE,
    Wire,
    batch,
    fetch_request,
    frame,
    produce_request,
    string,
)

UNSUPPORTED_VERSION = 35
DESCRIBE_CONFIGS = 32
CORRUPT_MESSAGE = 2


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadraceServer]:
    """One broker for the whole file: what hurts it shows in the tests that follow."""
    running = HeadraceServer(tmp_path_factory.mktemp("bad-input") / "data").start()
    with Wire(running.bootstrap) as wire:
        assert wire.create_topic("victim") == 0
    yield running
    assert running.stop() == 0, tail(running.stderr_file)
    assert "Traceback" not in tail(running.stderr_file, 1 << 20)


@pytest.fixture(autouse=True)
def bystander(server: HeadraceServer) -> Iterator[None]:
    """Another client, connected before, is served after."""
    with Wire(server.bootstrap) as wire:
        before = wire.list_offset("victim", -1)
        assert before[0] == 0
        yield
        produced = wire.produce("victim", batch([b"still here"]))
        assert (produced.error_code, produced.base_offset) == (0, before[2])


def closes(connection: socket.socket) -> bool:
    """Whether the broker ends the connection, within the socket's time-out."""
    try:
        return connection.recv(1 << 16) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("size", [-1, 0, 1, 7, 104_857_601, 0x7FFFFFFF, -0x80000000])
def test_a_frame_of_absurd_length_ends_the_connection(server: HeadraceServer, size: int) -> None:
    with Wire(server.bootstrap) as wire:
        wire.socket.sendall(struct.pack(">i", size) + b"\0" * 16)
        assert closes(wire.socket)


@pytest.mark.parametrize(
    "greeting",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(250)),
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\xff" * 64,
    ],
    ids=["HTTP", "TLS", "SSH", "ones"],
)
def test_another_protocol_ends_the_connection(server: HeadraceServer, greeting: bytes) -> None:
    with Wire(server.bootstrap) as wire:
        wire.socket.sendall(greeting)
        assert closes(wire.socket)


@pytest.mark.parametrize("api_key", [-1, 93, 999, 32_767])
def test_an_unknown_api_key_ends_the_connection(server: HeadraceServer, api_key: int) -> None:
    with Wire(server.bootstrap) as wire:
        wire.send(api_key, 0, b"")
        assert closes(wire.socket)


@pytest.mark.parametrize("version", [-1, 60, 32_767])
def test_an_unsupported_version_ends_the_connection(server: HeadraceServer, version: int) -> None:
    with Wire(server.bootstrap) as wire:
        wire.send(METADATA, version, struct.pack(">i", 0))
        assert closes(wire.socket)


@pytest.mark.parametrize("version", [5, 60, 32_767])
def test_an_api_versions_request_from_the_future_is_answered_in_version_0(server: HeadraceServer, version: int) -> None:
    with Wire(server.bootstrap) as wire:
        answer = wire.ask(API_VERSIONS, version, b"\0")
        error_code, count = struct.unpack_from(">hi", answer)
        ranges = {key: (low, high) for key, low, high in struct.iter_unpack(">hhh", answer[6 : 6 + 6 * count])}
        assert error_code == UNSUPPORTED_VERSION
        assert ranges[API_VERSIONS][1] >= 4
        assert wire.ask(API_VERSIONS, 0, b"")[:2] == b"\0\0", "the connection goes on"


def test_half_a_frame_and_silence_harms_nobody(server: HeadraceServer) -> None:
    with Wire(server.bootstrap) as wire:
        wire.socket.sendall(frame(METADATA, 1, struct.pack(">i", 0))[:9])


def test_a_frame_that_comes_byte_by_byte_is_answered(server: HeadraceServer) -> None:
    with Wire(server.bootstrap) as wire:
        for byte in frame(API_VERSIONS, 0, b""):
            wire.socket.sendall(bytes([byte]))
        assert wire.receive()[0] == 1


def test_a_thousand_pipelined_requests_are_answered_in_their_order(server: HeadraceServer) -> None:
    with Wire(server.bootstrap) as wire:
        sent = b"".join(frame(API_VERSIONS, number % 3, b"", number) for number in range(1_000))
        wire.socket.sendall(sent)
        answers = [int.from_bytes(receive_frame(wire.socket)[:4], "big") for _ in range(1_000)]
    assert answers == list(range(1_000))


def test_a_fetch_that_waits_does_not_let_later_answers_pass(server: HeadraceServer) -> None:
    with Wire(server.bootstrap) as wire:
        end = wire.list_offset("victim", -1)[2]
        waiting = fetch_request("victim", end, max_wait_ms=300)
        first = wire.send(FETCH, 4, waiting)
        second = wire.send(API_VERSIONS, 0, b"")
        assert [wire.receive()[0], wire.receive()[0]] == [first, second]


def test_a_produce_without_acks_is_never_answered(server: HeadraceServer) -> None:
    with Wire(server.bootstrap) as wire:
        assert wire.create_topic("unacknowledged") == 0
        wire.send(PRODUCE, 3, produce_request("unacknowledged", batch([b"unacknowledged"]), acks=0))
        expected = wire.send(API_VERSIONS, 0, b"")
        assert wire.receive()[0] == expected
        assert wire.list_offset("unacknowledged", -1)[2] == 1


def test_an_array_longer_than_its_frame_is_refused(server: HeadraceServer) -> None:
    with Wire(server.bootstrap) as wire:
        wire.send(METADATA, 1, struct.pack(">i", 0x7FFFFFFF))
        assert closes(wire.socket)


def test_a_string_longer_than_its_frame_is_refused(server: HeadraceServer) -> None:
    with Wire(server.bootstrap) as wire:
        wire.send(METADATA, 1, struct.pack(">ih", 1, 0x7FFF))
        assert closes(wire.socket)


@pytest.mark.parametrize("body", [struct.pack(">i", -2), struct.pack(">ih", 1, -2), struct.pack(">ih", 1, -1)])
def test_a_negative_length_other_than_null_is_refused(server: HeadraceServer, body: bytes) -> None:
    with Wire(server.bootstrap) as wire:
        wire.send(METADATA, 1, body)
        assert closes(wire.socket)


def test_tagged_fields_that_nobody_knows_are_ignored(server: HeadraceServer) -> None:
    tags = b"\x02" + b"\x63\x03abc" + b"\xe7\x07\x00"  # two: number 99 with three bytes, number 999 with none
    request = struct.pack(">hhi", METADATA, 9, 77) + string("wire") + tags
    request += b"\x02" + b"\x07victim" + tags + b"\0\0\0" + tags
    with Wire(server.bootstrap) as wire:
        wire.socket.sendall(struct.pack(">i", len(request)) + request)
        correlation_id, answer = wire.receive()
    assert correlation_id == 77
    assert b"\x07victim" in answer


def test_bytes_behind_a_request_are_not_looked_at(server: HeadraceServer) -> None:
    with Wire(server.bootstrap) as wire:
        expected = wire.ask(METADATA, 1, struct.pack(">i", 0))
        assert wire.ask(METADATA, 1, struct.pack(">i", 0) + b"and more") == expected


def test_a_resource_described_twenty_thousand_times_is_described_once(server: HeadraceServer) -> None:
    with Wire(server.bootstrap) as wire:
        once = b"\x02" + string("victim") + struct.pack(">i", -1)
        expected = wire.ask(DESCRIBE_CONFIGS, 0, struct.pack(">i", 1) + once)
        assert wire.ask(DESCRIBE_CONFIGS, 0, struct.pack(">i", 20_000) + once * 20_000) == expected


def damaged(position: int, replacement: bytes) -> bytes:
    """A good batch of two records with some bytes replaced; the CRC stays as it was."""
    good = batch([b"one", b"two"])
    return good[:position] + replacement + good[position + len(replacement) :]


@pytest.mark.parametrize(
    "records",
    [
        damaged(17, b"\0\0\0\0"),
        damaged(-1, b"\x7f"),
        damaged(8, struct.pack(">i", 10_000)),
        damaged(8, struct.pack(">i", 49)),
        damaged(8, struct.pack(">i", -1)),
        damaged(16, b"\x03"),
        batch([b"one"])[:40],
        b"\0",
    ],
    ids=["wrong CRC", "flipped bit", "too long", "too short", "negative length", "magic 3", "half a batch", "one byte"],
)
def test_a_damaged_batch_is_refused_and_not_stored(server: HeadraceServer, records: bytes) -> None:
    with Wire(server.bootstrap) as wire:
        before = wire.list_offset("victim", -1)
        assert wire.produce("victim", records).error_code not in (0, -1)
        assert wire.list_offset("victim", -1) == before


def test_a_topic_that_is_not_there_gives_its_error(server: HeadraceServer) -> None:
    with Wire(server.bootstrap) as wire:
        assert wire.produce("nobody-made-this", batch([b"x"])).error_code == 3
        assert wire.fetch("nobody-made-this", 0, max_wait_ms=0).error_code == 3
        assert wire.fetch("victim", 0, partition=77, max_wait_ms=0).error_code == 3


@pytest.mark.parametrize(
    "name", ["..", ".", "", "a" * 250, "a/b", "a\0b", "%2e%2e/etc", "tоpic", "a b"],
    ids=["dot dot", "dot", "empty", "250 letters", "slash", "NUL", "percent", "Cyrillic o", "space"],
)  # fmt: skip
def test_a_name_that_is_no_topic_name_is_refused(server: HeadraceServer, name: str) -> None:
    with Wire(server.bootstrap) as wire:
        assert wire.create_topic(name) == 17


def test_random_bytes_in_random_frames_never_hurt(server: HeadraceServer) -> None:
    rng = random.Random(rotation.drawn("random frames", 0))
    for _ in range(100):
        with Wire(server.bootstrap) as wire:
            api_key, version = rng.randrange(-1, 90), rng.randrange(-1, 14)
            wire.socket.sendall(frame(api_key, version, rng.randbytes(rng.randrange(64))))


def test_a_storm_of_connections_that_close_at_once_is_survived(server: HeadraceServer) -> None:
    for _ in range(200):
        socket.create_connection(("127.0.0.1", server.port), WITHIN_SECONDS).close()


def test_a_reader_that_never_reads_costs_no_memory(server: HeadraceServer) -> None:
    assert server.process is not None
    with Wire(server.bootstrap) as wire:
        assert wire.create_topic("large", configs={"retention.ms": "-1"}) == 0
        for _ in range(32):
            assert wire.produce("large", batch([b"x" * 500_000])).error_code == 0
    before = psutil.Process(server.process.pid).memory_info().rss
    with ExitStack() as stack:
        for _ in range(8):
            wire = stack.enter_context(Wire(server.bootstrap))
            wire.socket.settimeout(0.2)
            with suppress(TimeoutError):
                for _ in range(2_000):
                    wire.socket.sendall(frame(FETCH, 4, fetch_request("large", 0)))
        assert psutil.Process(server.process.pid).memory_info().rss - before < 64 << 20


@pytest.mark.slow
def test_hundreds_of_idle_connections_harm_nobody(server: HeadraceServer) -> None:
    with ExitStack() as stack:
        for _ in range(300):
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port), WITHIN_SECONDS))
        with Wire(server.bootstrap) as wire:
            assert wire.list_offset("victim", -1)[0] == 0
