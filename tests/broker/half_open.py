"""Connections that end nowhere: each is at some stage before its client is known, and stays there."""

import socket
import ssl
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from headrace.network.tls.contexts import client_context
from tests.certificates import client_settings, server_settings
from tests.eventually import WITHIN_SECONDS
from tests.harness import receive_frame
from tests.wire import frame, string

HANDSHAKE, AUTHENTICATE = 17, 36
PLAIN_USER = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="wonder";'
_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"


class Ports(NamedTuple):
    """Of the listeners."""

    plain: int
    sasl: int
    tls: int
    """With SASL, too."""


Open = Callable[[Ports, Path], socket.socket]
"""Opens one connection and leaves it at its stage; the directory has the certificates."""


def settings(directory: Path, ports: Ports, timeout_ms: int) -> dict[str, str]:
    """Of a broker with these listeners, on which clients have so long to authenticate."""
    listeners = zip(("PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL"), ports, strict=True)
    return {
        **server_settings(directory),
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN_USER,
        "listener.name.sasl_ssl.plain.sasl.jaas.config": PLAIN_USER,
        "headrace.authentication.timeout.ms": str(timeout_ms),
    }


def connected(ports: Ports, _: Path) -> socket.socket:
    return socket.create_connection(("127.0.0.1", ports.sasl), WITHIN_SECONDS)


def within_the_handshake(ports: Ports, directory: Path) -> socket.socket:
    sock = connected(ports, directory)
    sock.sendall(frame(HANDSHAKE, 1, string("SCRAM-SHA-256"))[:-1])
    return sock


def before_the_first_message(ports: Ports, directory: Path) -> socket.socket:
    sock = connected(ports, directory)
    sock.sendall(frame(HANDSHAKE, 1, string("SCRAM-SHA-256")))
    receive_frame(sock)
    return sock


def within_the_first_message(ports: Ports, directory: Path) -> socket.socket:
    """All but the last byte of the largest message that is read."""
    sock = before_the_first_message(ports, directory)
    sock.sendall(frame(AUTHENTICATE, 1, struct.pack(">i", 16_000) + bytes(16_000))[:-1])
    return sock


def before_the_last_message(ports: Ports, directory: Path) -> socket.socket:
    sock = before_the_first_message(ports, directory)
    first = b"n,,n=alice,r=0123456789abcdef"
    sock.sendall(frame(AUTHENTICATE, 1, struct.pack(">i", len(first)) + first))
    receive_frame(sock)
    return sock


def before_the_hello(ports: Ports, _: Path) -> socket.socket:
    return socket.create_connection(("127.0.0.1", ports.tls), WITHIN_SECONDS)


def within_the_hello(ports: Ports, directory: Path) -> socket.socket:
    sock = before_the_hello(ports, directory)
    sock.sendall(_HELLO)
    return sock


def within_the_tls_handshake(ports: Ports, directory: Path) -> socket.socket:
    """The server has answered the hello."""
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context(client_settings(directory)).wrap_bio(received, sent, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    sock = before_the_hello(ports, directory)
    sock.sendall(sent.read())
    sock.recv(1)
    return sock


def within_tls(ports: Ports, directory: Path) -> socket.socket:
    """The handshake of TLS is complete, that of SASL is not begun."""
    return client_context(client_settings(directory)).wrap_socket(
        before_the_hello(ports, directory), server_hostname="localhost"
    )


SASL_STAGES: Mapping[str, Open] = {
    "connected": connected,
    "within SaslHandshake": within_the_handshake,
    "before the first message of SCRAM": before_the_first_message,
    "within the first message, 16 KiB": within_the_first_message,
    "before the last message of SCRAM": before_the_last_message,
}
TLS_STAGES: Mapping[str, Open] = {
    "before the hello of TLS": before_the_hello,
    "within the hello": within_the_hello,
    "within the handshake of TLS": within_the_tls_handshake,
    "behind the handshake of TLS": within_tls,
}
