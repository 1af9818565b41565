"""Clients that send a byte now and then, at each stage before they are known.

Each stage has a time in all. A byte that comes does not begin it anew, so no client holds a connection for longer.
"""

import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from headrace.network import proxied
from headrace.network.tls import handshakes
from headrace.network.tls.contexts import client_context
from headrace.testing import Broker
from tests.broker.test_authentication import (
    API_VERSIONS,
    AUTHENTICATE,
    HANDSHAKE,
    PLAIN_USERS,
    authenticate,
    handshake,
)
from tests.certificates import client_settings, server_settings
from tests.eventually import WITHIN_SECONDS
from tests.harness import free_ports
from tests.network.test_proxy_protocol import header
from tests.wire import Wire, frame, string

TIME_S = 1.0
EVERY_S = 0.05
LATEST_S = 20.0  # on a busy machine; without an end in all it would take a minute
PROXY_ADDRESS = "127.0.0.3"

SETTINGS: Mapping[str, str | int | bool] = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    "headrace.authentication.timeout.ms": int(TIME_S * 1000),
    "connection.failed.authentication.delay.ms": 0,
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN_USERS,
    "listener.name.sasl_ssl.plain.sasl.jaas.config": PLAIN_USERS,
    "headrace.sasl.oauthbearer.unsecured.validator.enable": True,
    "connections.max.reauth.ms": 3_600_000,
    "headrace.proxy.protocol.trusted": PROXY_ADDRESS,
}


class Place:
    """The listeners of the broker, and connections to them."""

    def __init__(self, ports: Mapping[str, int], directory: Path, stack: ExitStack) -> None:
        self.ports, self._directory, self._stack = ports, directory, stack

    def tcp(self, listener: str, local: str = "127.0.0.1") -> socket.socket:
        address = ("127.0.0.1", self.ports[listener])
        return self._stack.enter_context(socket.create_connection(address, WITHIN_SECONDS, (local, 0)))

    def wire(self) -> Wire:
        return self._stack.enter_context(Wire(f"127.0.0.1:{self.ports['SASL_PLAINTEXT']}"))

    def tls_wire(self) -> Wire:
        wire = self._stack.enter_context(Wire(f"127.0.0.1:{self.ports['SASL_SSL']}"))
        wire.socket = client_context(client_settings(self._directory)).wrap_socket(
            wire.socket, server_hostname="localhost"
        )
        return wire

    def hello(self, version: ssl.TLSVersion) -> tuple[ssl.SSLObject, ssl.MemoryBIO, ssl.MemoryBIO]:
        """A client of TLS whose bytes the test carries: it has written its hello."""
        context = client_context(client_settings(self._directory))
        context.minimum_version = context.maximum_version = version
        received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = context.wrap_bio(received, sent, server_hostname="localhost")
        with suppress(ssl.SSLWantReadError):
            client.do_handshake()
        return client, received, sent


Slow = tuple[socket.socket, bytes]
"""A connection at its stage, and the bytes of which one comes now and then. There are too many to come in time."""


def versions_request(place: Place) -> Slow:
    return place.tcp("SASL_PLAINTEXT"), frame(API_VERSIONS, 0, bytes(5000))


def handshake_request(place: Place) -> Slow:
    return place.tcp("SASL_PLAINTEXT"), frame(HANDSHAKE, 1, string("PLAIN" + "x" * 5000))


def message(mechanism: str, *before: bytes) -> Callable[[Place], Slow]:
    """The message of a mechanism behind those `before`."""

    def begin(place: Place) -> Slow:
        wire = place.wire()
        assert handshake(wire, mechanism)[0] == 0
        for each in before:
            assert authenticate(wire, each).error_code == 0
        return wire.socket, frame(AUTHENTICATE, 1, struct.pack(">i", 5000) + bytes(5000))

    return begin


def token_without_a_request(place: Place) -> Slow:
    wire = place.wire()
    assert handshake(wire, "PLAIN", version=0)[0] == 0
    return wire.socket, struct.pack(">i", 5000) + bytes(5000)


def second_authentication(place: Place) -> Slow:
    wire = place.wire()
    assert handshake(wire)[0] == 0
    assert authenticate(wire, b"\0alice\0wonder").error_code == 0
    assert handshake(wire)[0] == 0
    return wire.socket, frame(AUTHENTICATE, 1, struct.pack(">i", 5000) + bytes(5000))


def message_within_tls(place: Place) -> Slow:
    wire = place.tls_wire()
    assert handshake(wire)[0] == 0
    return wire.socket, frame(AUTHENTICATE, 1, struct.pack(">i", 5000) + bytes(5000))


def client_hello(place: Place) -> Slow:
    _, _, sent = place.hello(ssl.TLSVersion.TLSv1_3)
    return place.tcp("SASL_SSL"), sent.read()


def end_of_the_handshake(version: ssl.TLSVersion) -> Callable[[Place], Slow]:
    """What the client sends behind its hello."""

    def begin(place: Place) -> Slow:
        client, received, sent = place.hello(version)
        sock = place.tcp("SASL_SSL")
        sock.sendall(sent.read())
        while not sent.pending:
            received.write(sock.recv(1 << 16))
            with suppress(ssl.SSLWantReadError):
                client.do_handshake()
        return sock, sent.read()

    return begin


def header_of_a_proxy(place: Place) -> Slow:
    return place.tcp("SASL_PLAINTEXT", PROXY_ADDRESS), header(0x21, 0x11, bytes(500))


STAGES: Mapping[str, Callable[[Place], Slow]] = {
    "the header of a proxy": header_of_a_proxy,
    "the hello of TLS": client_hello,
    "the end of a handshake of TLS 1.3": end_of_the_handshake(ssl.TLSVersion.TLSv1_3),
    "the end of a handshake of TLS 1.2": end_of_the_handshake(ssl.TLSVersion.TLSv1_2),
    "ApiVersions": versions_request,
    "SaslHandshake": handshake_request,
    "SaslAuthenticate of PLAIN": message("PLAIN"),
    "SaslAuthenticate within TLS": message_within_tls,
    "a token of PLAIN without a request": token_without_a_request,
    "the first message of SCRAM-SHA-256": message("SCRAM-SHA-256"),
    "the last message of SCRAM-SHA-256": message("SCRAM-SHA-256", b"n,,n=alice,r=client"),
    "the first message of SCRAM-SHA-512": message("SCRAM-SHA-512"),
    "the last message of SCRAM-SHA-512": message("SCRAM-SHA-512", b"n,,n=alice,r=client"),
    "a token of OAUTHBEARER": message("OAUTHBEARER"),
    "OAUTHBEARER behind a bad token": message("OAUTHBEARER", b"n,,\x01auth=Bearer x.y.z\x01\x01"),
    "a second authentication": second_authentication,
}


def trickle(place: Place, begin: Callable[[Place], Slow]) -> tuple[float, int, int]:
    """After how many seconds the broker has closed the connection, and how many bytes of how many it had then."""
    sock, data = begin(place)
    began, sent = time.monotonic(), 0
    sock.settimeout(EVERY_S)
    try:
        while sent < len(data) and time.monotonic() - began < LATEST_S:
            sock.sendall(data[sent : sent + 1])
            sent += 1
            with suppress(TimeoutError):
                while sock.recv(4096):
                    pass
                break
    except OSError:
        pass
    return time.monotonic() - began, sent, len(data)


@pytest.fixture(scope="module")
def closings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, tuple[float, int, int]]]:
    """The outcome of each stage. All are slow at the same time."""
    directory = tmp_path_factory.mktemp("slow")
    ports = dict(zip(("PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL"), free_ports(3), strict=True))
    listeners = {"listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())}
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        for module in (proxied, handshakes):
            patch.setattr(module, "HANDSHAKE_MS", int(TIME_S * 1000))
        stack.enter_context(Broker(settings={**SETTINGS, **listeners, **server_settings(directory)}))
        place = Place(ports, directory, stack)
        with ThreadPoolExecutor(len(STAGES)) as threads:
            begun = {stage: threads.submit(trickle, place, begin) for stage, begin in STAGES.items()}
            yield {stage: each.result() for stage, each in begun.items()}


@pytest.mark.parametrize("stage", STAGES)
def test_a_byte_now_and_then_holds_no_connection_beyond_its_time(
    closings: Mapping[str, tuple[float, int, int]], stage: str
) -> None:
    seconds, sent, size = closings[stage]
    assert TIME_S / 2 < seconds < LATEST_S
    assert 2 < sent < size, "it was not closed because of what it sent"
