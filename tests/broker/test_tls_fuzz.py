"""Handshakes of TLS, damaged at random: an alert or a closed connection, no exception of the broker's own, and others
are served.

Each round begins a handshake of a real client, of either version, and damages its first or its second flight: flipped
and removed bytes, wrong lengths, records of other types, flights that come twice, in pieces, or from another handshake.
"""

import random
import socket
import ssl
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from headrace.network.tls.contexts import client_context
from headrace.testing import Broker
from tests.certificates import client_settings, server_settings
from tests.eventually import WITHIN_SECONDS
from tests.rotation import seed
from tests.wire import METADATA, Wire

ROUNDS = 240
RECORD_HEADER_BYTES = 5
VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
Damage = Callable[[random.Random, bytes, bytes], bytes]
"""Of a flight, and that of another handshake."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@pytest.fixture(scope="module")
def broker(directory: Path) -> Iterator[Broker]:
    settings = {"listeners": "SSL://127.0.0.1:0", "security.inter.broker.protocol": "SSL"}
    own = server_settings(directory, ssl_client_auth="requested")
    with Broker(settings={**settings, **own}) as broker:
        yield broker


class Client:
    """A client of TLS whose bytes the test carries."""

    def __init__(self, directory: Path, version: ssl.TLSVersion, name: str | None = None) -> None:
        context = client_context(client_settings(directory, name=name))
        context.minimum_version = context.maximum_version = version
        self._received, self._sent = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._received, self._sent, server_hostname="localhost")

    def flight(self, received: bytes = b"") -> bytes:
        """What the client sends when it has received this."""
        self._received.write(received)
        with suppress(ssl.SSLWantReadError):
            self._tls.do_handshake()
        return self._sent.read()

    def second_flight(self, sock: socket.socket) -> bytes:
        """Sends the first one, and returns the next."""
        sock.sendall(self.flight())
        while not (found := self.flight(sock.recv(1 << 16))):
            pass
        return found


def flip(rng: random.Random, flight: bytes, _: bytes) -> bytes:
    damaged = bytearray(flight)
    for _number in range(rng.randint(1, 8)):
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def cut(rng: random.Random, flight: bytes, _: bytes) -> bytes:
    return flight[: rng.randrange(len(flight))]


def remove(rng: random.Random, flight: bytes, _: bytes) -> bytes:
    at = rng.randrange(len(flight))
    return flight[:at] + flight[at + rng.randint(1, 50) :]


def length(rng: random.Random, flight: bytes, _: bytes) -> bytes:
    """The first record says to be of another size, the largest that is allowed or above it."""
    size = rng.choice([0, 1, 1 << 14, (1 << 14) + 1, (1 << 14) + 2049, (1 << 16) - 1])
    return flight[:3] + struct.pack(">H", size) + flight[RECORD_HEADER_BYTES:] + rng.randbytes(rng.choice([0, 20_000]))


def inner_length(rng: random.Random, flight: bytes, _: bytes) -> bytes:
    """The first handshake message says to be of another size, up to 16 MiB."""
    return flight[:6] + rng.choice([bytes(3), b"\0\0\1", b"\xff\xff\xff", rng.randbytes(3)]) + flight[9:]


def kind(rng: random.Random, flight: bytes, _: bytes) -> bytes:
    return bytes([rng.choice([0, 0x14, 0x15, 0x16, 0x17, 0x18, 0xFF])]) + flight[1:]


def version(rng: random.Random, flight: bytes, _: bytes) -> bytes:
    """The record, or the hello in it, says SSL 2, 3, or an earlier or unknown version of TLS."""
    said = rng.choice([b"\0\2", b"\3\0", b"\3\1", b"\3\2", b"\3\5", b"\xff\xff"])
    return flight[:1] + said + flight[3:9] + (said if rng.random() < 0.5 else flight[9:11]) + flight[11:]


def twice(_rng: random.Random, flight: bytes, _: bytes) -> bytes:
    return flight + flight


def of_another(_rng: random.Random, _flight: bytes, other: bytes) -> bytes:
    return other


def fragments(rng: random.Random, flight: bytes, _: bytes) -> bytes:
    """Records of one byte each, and empty ones between them."""
    body = flight[RECORD_HEADER_BYTES:]
    records = [flight[:3] + struct.pack(">H", 1) + body[at : at + 1] for at in range(len(body))]
    return b"".join(record + (flight[:3] + b"\0\0") * rng.randint(0, 2) for record in records)


def alerts(rng: random.Random, flight: bytes, _: bytes) -> bytes:
    return b"\x15\3\3\0\2\1" * rng.randint(1, 500) + flight


def noise(rng: random.Random, flight: bytes, _: bytes) -> bytes:
    return flight[: rng.randrange(12)] + rng.randbytes(rng.randint(1, 5000))


DAMAGES: Sequence[Damage] = (
    flip, cut, remove, length, inner_length, kind, version, twice, of_another, fragments, alerts, noise,
)  # fmt: skip


def attack(rng: random.Random, directory: Path, port: int, damage: Damage) -> None:
    """One damaged handshake, to its end."""
    versions = rng.choice(VERSIONS), rng.choice(VERSIONS)
    name = rng.choice([None, "alice"])
    client, other = (Client(directory, each, name) for each in versions)
    with socket.create_connection(("127.0.0.1", port), WITHIN_SECONDS) as sock:
        is_second = rng.random() < 0.5
        flight = client.second_flight(sock) if is_second else client.flight()
        try:
            sock.sendall(damage(rng, flight, other.flight()))
            if rng.random() < 0.1:
                return
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(1 << 16):
                pass
        except TimeoutError:
            raise  # the broker neither answers nor closes
        except OSError:
            return  # it has closed the connection


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_handshake_harms_nobody(
    broker: Broker, directory: Path, damage: Damage, caplog: pytest.LogCaptureFixture
) -> None:
    rng = random.Random(f"{seed()} {damage.__name__}")
    for _ in range(ROUNDS // len(DAMAGES)):
        attack(rng, directory, broker.port, damage)
    with Wire(broker.bootstrap) as wire:
        context = client_context(client_settings(directory, name="alice"))
        wire.socket = context.wrap_socket(wire.socket, server_hostname="localhost")
        assert wire.ask(METADATA, 1, struct.pack(">i", 0))
    assert not [each for each in caplog.records if each.exc_info or each.levelname == "ERROR"]
