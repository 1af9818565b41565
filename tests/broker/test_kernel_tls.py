"""Kernel TLS: what is sent is encrypted by the kernel where it can, and by OpenSSL elsewhere."""

import asyncio
import ctypes
import logging
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.controller.decisions.topics import RequestedTopic
from headrace.network.tls import kernel
from headrace.network.tls.contexts import client_context, server_context
from headrace.network.tls.transport import KernelTlsTransport
from headrace.protocol import messages as m
from headrace.protocol.headers import write_request_header
from tests.asker import CORRELATION_ID, Asker
from tests.broker.tls_broker import TlsBroker, tls_broker
from tests.certificates import client_settings, server_settings, write_trust
from tests.eventually import WITHIN_SECONDS
from tests.rotation import random_bytes
from tests.wire import Wire, batch

VALUES = [random_bytes(f"kernel tls {number}", 500_000) for number in range(12)]


def kernel_has_tls() -> bool:
    """Whether a TCP connection of this machine can get the TLS of the kernel, which loads the module if it can."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        try:
            client.setsockopt(socket.IPPROTO_TCP, 31, b"tls")  # TCP_ULP
        except OSError:
            return False
    return True


needs_kernel = pytest.mark.skipif(not kernel_has_tls(), reason="this kernel has no TLS (module tls)")


def connected(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[ssl.SSLSocket, ssl.SSLSocket]:
    """Both ends of a TCP connection after the handshake."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        theirs = socket.create_connection(listening.getsockname(), WITHIN_SECONDS)
        ours, _ = listening.accept()
    for each in (ours, theirs):
        each.setblocking(False)
    near = server.wrap_socket(ours, server_side=True, do_handshake_on_connect=False)
    far = client.wrap_socket(theirs, server_hostname="localhost", do_handshake_on_connect=False)
    waiting, ends = [near, far], time.monotonic() + WITHIN_SECONDS
    while waiting and time.monotonic() < ends:
        waiting = [each for each in waiting if not _advanced(each)]
    assert not waiting
    return near, far


def _advanced(sock: ssl.SSLSocket) -> bool:
    try:
        sock.do_handshake()
    except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
        return False
    return True


def test_the_name_of_the_option_is_that_of_newer_pythons() -> None:
    assert getattr(ssl, "OP_ENABLE_KTLS", 8) == 8  # OpenSSL's SSL_OP_BIT(3)


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize("setting", ["true", "false"])
def test_a_connection_is_asked_whether_the_kernel_encrypts_it(tmp_path: Path, version: str, setting: str) -> None:
    more = {"ssl.enabled.protocols": version}
    server = server_context(server_settings(tmp_path) | more | {kernel.SETTING: setting}).context
    near, far = connected(server, client_context(client_settings(tmp_path) | more))
    with near, far:
        expected = setting == "true" and kernel_has_tls()
        assert kernel.encrypts(near) == expected
        if not expected:
            assert kernel.reason_without(near)
        assert not kernel.encrypts(far), "a client leaves it to OpenSSL"


@pytest.mark.parametrize("kernel_does", [True, False])
def test_how_connections_are_encrypted_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, kernel_does: bool
) -> None:
    monkeypatch.setattr(kernel, "encrypts", lambda _: kernel_does)
    near, far = connected(server_context(server_settings(tmp_path)).context, client_context(client_settings(tmp_path)))
    found = kernel.KernelTls()
    with near, far, caplog.at_level(logging.INFO):
        assert [found.takes(near) for _ in range(3)] == [kernel_does] * 3
    assert found.connections == (3 if kernel_does else 0)
    (line,) = [each.message for each in caplog.records if "TLS connections send" in each.message]
    assert line.startswith("the kernel encrypts" if kernel_does else "this process encrypts")


@pytest.fixture
def pair() -> Iterator[tuple[ssl.SSLSocket, socket.socket]]:
    """A socket of TLS whose handshake is left out, as if the kernel encrypted it, and what arrives from it."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with context.wrap_socket(ours, server_side=True, do_handshake_on_connect=False) as wrapped, theirs:
        yield wrapped, theirs


def test_sends_pass_openssl_in_parts_and_in_order(pair: tuple[ssl.SSLSocket, socket.socket], tmp_path: Path) -> None:
    sock, theirs = pair
    path = tmp_path / "segment"
    path.write_bytes(b"0123456789")
    transport = KernelTlsTransport(sock)
    assert transport.send(b"head ", socket.MSG_MORE) == 5
    with path.open("rb") as file:
        assert transport.send_file(file.fileno(), 2, 5) == 5
        assert transport.send_file(file.fileno(), 10, 5) == 0
    assert transport.send_parts([memoryview(b" a"), memoryview(b"b")]) == 3
    assert theirs.recv(100) == b"head 23456 ab"
    data, sent = bytes(1 << 20), 0
    with pytest.raises(BlockingIOError):
        while True:
            sent += transport.send(data)
    assert sent > 0
    theirs.settimeout(WITHIN_SECONDS)
    while sent:
        sent -= len(theirs.recv(1 << 20))
    assert transport.send(b"on") == 2
    assert theirs.recv(100) == b"on"


def fetch(offset: int) -> m.FetchRequest:
    part = m.FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 24)
    topic = m.FetchRequest.FetchTopic(topic="t", partitions=[part])
    return m.FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 24, topics=[topic])


def records(answer: Any) -> bytes:
    return bytes(answer.responses[0].partitions[0].records)


async def filled(broker: TlsBroker) -> None:
    """A topic of some megabytes."""
    await broker.services.controller.create_topics([RequestedTopic("t")])

    def produce() -> None:
        with Wire(f"127.0.0.1:{broker.plain_port}") as wire:
            for value in VALUES:
                wire.produce("t", batch([value]))

    await asyncio.to_thread(produce)


def assert_kernel_encrypted(caplog: pytest.LogCaptureFixture) -> None:
    assert "the kernel encrypts what TLS connections send" in caplog.text
    assert "this process encrypts" not in caplog.text


@needs_kernel
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
async def test_fetched_records_are_encrypted_by_the_kernel(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, version: str
) -> None:
    caplog.set_level(logging.INFO)
    small = {"socket.send.buffer.bytes": "65536"}  # so that every send is one in parts
    async with tls_broker(tmp_path, ssl_enabled_protocols=version, **small) as broker:
        await filled(broker)

        def both() -> tuple[bytes, list[bytes]]:
            with Asker(f"127.0.0.1:{broker.plain_port}") as plain, broker.ask() as secure:
                return records(plain.ask(fetch(0), 12)), [records(secure.ask(fetch(0), 12)) for _ in range(3)]

        expected, found = await asyncio.to_thread(both)
        assert len(expected) > sum(map(len, VALUES))
        assert all(each == expected for each in found)
        assert_kernel_encrypted(caplog)


@pytest.mark.slow
@pytest.mark.parametrize("setting", [pytest.param("true", marks=needs_kernel), "false"])
async def test_a_client_that_asks_for_new_keys_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, setting: str
) -> None:
    """Java's clients do so after each 137 GB on one connection. From the second time on, one whose data the kernel
    encrypts may have to connect again; it never gets wrong bytes."""
    caplog.set_level(logging.INFO)
    async with tls_broker(tmp_path, **{kernel.SETTING: setting}) as broker:
        await filled(broker)

        def story() -> tuple[bytes, list[bytes]]:
            with Asker(f"127.0.0.1:{broker.plain_port}") as plain:
                expected = records(plain.ask(fetch(0), 12))
            client, found = OpenSslClient(broker.port, write_trust(tmp_path / "ca.pem")), []
            try:
                for _ in range(4):
                    found.append(records(client.ask(fetch(0), 12)))
                    client.update_keys()
            except ConnectionError:
                pass
            client.close()
            return expected, found

        expected, found = await asyncio.to_thread(story)
        assert all(each == expected for each in found)
        assert len(found) >= (2 if setting == "true" else 4)
        if setting == "true":
            assert_kernel_encrypted(caplog)


class OpenSslClient:
    """A client of TLS 1.3 by OpenSSL's own functions, since Python's module cannot ask for new keys."""

    def __init__(self, port: int, trust: Path) -> None:
        self._lib = lib = ctypes.CDLL("libssl.so.3")
        for name in ("TLS_client_method", "SSL_CTX_new", "SSL_new"):
            getattr(lib, name).restype = ctypes.c_void_p
        self._context = ctypes.c_void_p(lib.SSL_CTX_new(ctypes.c_void_p(lib.TLS_client_method())))
        assert lib.SSL_CTX_load_verify_file(self._context, str(trust).encode()) == 1
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._ssl = ctypes.c_void_p(lib.SSL_new(self._context))
        lib.SSL_set_fd(self._ssl, self._socket.fileno())
        assert lib.SSL_connect(self._ssl) == 1

    def ask(self, request: m.FetchRequest, version: int) -> Any:
        body = write_request_header(request.API_KEY, version, CORRELATION_ID, "openssl") + request.encode(version)
        frame = len(body).to_bytes(4, "big") + body
        if self._lib.SSL_write(self._ssl, frame, len(frame)) != len(frame):
            raise ConnectionError
        answer = self._receive(int.from_bytes(self._receive(4), "big"))
        return m.FetchResponse.decode(version, answer, 5)[0]

    def update_keys(self) -> None:
        """Has a new key from now on, and asks the other side for one."""
        assert self._lib.SSL_key_update(self._ssl, 1) == 1
        if self._lib.SSL_do_handshake(self._ssl) != 1:
            raise ConnectionError

    def close(self) -> None:
        self._lib.SSL_free(self._ssl)
        self._lib.SSL_CTX_free(self._context)
        self._socket.close()

    def _receive(self, size: int) -> bytes:
        found, buffer = bytearray(), ctypes.create_string_buffer(1 << 16)
        while len(found) < size:
            count = self._lib.SSL_read(self._ssl, buffer, min(size - len(found), len(buffer)))
            if count <= 0:
                raise ConnectionError
            found += buffer.raw[:count]
        return bytes(found)
