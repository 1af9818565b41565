"""TLS listeners: who gets in, under which name, and what is said to those that do not."""

import asyncio
import logging
import random
import shutil
import socket
import ssl
import struct
import subprocess
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pytest

from headrace.broker.app import running
from headrace.client.core.cluster import Cluster
from headrace.client.core.failures import BrokerUnreachable
from headrace.client.core.settings import ClientSettings
from headrace.config import parse_broker
from headrace.network.tls.contexts import client_context
from headrace.protocol import messages as m
from tests.asker import Asker
from tests.broker.tls_broker import tls_broker
from tests.certificates import client_settings, identity, server_settings
from tests.eventually import WITHIN_SECONDS
from tests.harness import free_ports


async def test_answers_over_tls(tmp_path: Path) -> None:
    def ask() -> list[tuple[str, int]]:
        with broker.ask() as asker:
            metadata = asker.ask(m.MetadataRequest(topics=[]), 9)
            return [(each.host, each.port) for each in metadata.brokers]

    async with tls_broker(tmp_path) as broker:
        assert await asyncio.to_thread(ask) == [("127.0.0.1", broker.port)]


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
async def test_answers_in_both_versions(tmp_path: Path, version: str) -> None:
    def ask() -> str | None:
        with broker.connect(ssl_enabled_protocols=version) as sock:
            sock.sendall(struct.pack(">ihhih", 10, 18, 0, 7, -1))
            assert sock.recv(4)
            return sock.version()

    async with tls_broker(tmp_path) as broker:
        assert await asyncio.to_thread(ask) == version


async def test_our_client_connects(tmp_path: Path) -> None:
    def brokers() -> int:
        tls = client_context(client_settings(tmp_path))
        with Cluster(f"127.0.0.1:{broker.port}", ClientSettings(tls=tls)) as cluster:
            return len(cluster.refresh([]).brokers)

    async with tls_broker(tmp_path) as broker:
        assert await asyncio.to_thread(brokers) == 1


async def test_a_plain_client_at_a_tls_listener_is_told_so_by_both_sides(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def connect() -> str:
        with pytest.raises(BrokerUnreachable) as caught:
            Cluster(f"127.0.0.1:{broker.port}", ClientSettings(api_timeout_ms=2000)).refresh([])
        return caught.value.message

    with caplog.at_level(logging.WARNING):
        async with tls_broker(tmp_path) as broker:
            message = await asyncio.to_thread(connect)
    assert "security.protocol=SSL" in message
    assert "the client does not speak TLS" in caplog.text


async def test_a_tls_client_at_a_plain_listener_is_told_so_by_both_sides(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def connect() -> str:
        settings = ClientSettings(tls=client_context(client_settings(tmp_path)), api_timeout_ms=2000)
        with pytest.raises(BrokerUnreachable) as caught:
            Cluster(f"127.0.0.1:{broker.plain_port}", settings).refresh([])
        return caught.value.message

    with caplog.at_level(logging.WARNING):
        async with tls_broker(tmp_path) as broker:
            message = await asyncio.to_thread(connect)
    assert "PLAINTEXT" in message
    assert "the client speaks TLS on a listener without it" in caplog.text


async def test_ordinary_clients_get_no_further_than_the_handshake_without_their_certificate(tmp_path: Path) -> None:
    def ask(name: str | None) -> int:
        with broker.ask(name=name) as asker:
            return len(asker.ask(m.MetadataRequest(topics=[]), 9).brokers)

    async with tls_broker(tmp_path, ssl_client_auth="required") as broker:
        assert await asyncio.to_thread(ask, "alice") == 1
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.to_thread(ask, None)


@pytest.mark.slow
@pytest.mark.parametrize(
    "bytes_sent",
    [b"", b"\x16", b"\x16\x03\x01\x02\x00", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100)],
    ids=["silent", "one byte", "a header", "half a hello"],
)
async def test_a_handshake_that_stops_is_closed_and_harms_nobody(
    tmp_path: Path, bytes_sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.network.tls.handshakes.HANDSHAKE_MS", 300)

    def end_of(sock: socket.socket) -> bytes:
        with sock:
            return sock.recv(100)

    def ask() -> int:
        with broker.ask() as asker:
            return len(asker.ask(m.MetadataRequest(topics=[]), 9).brokers)

    async with tls_broker(tmp_path) as broker:
        stopped = socket.create_connection(("127.0.0.1", broker.port), WITHIN_SECONDS)
        stopped.sendall(bytes_sent)
        assert await asyncio.to_thread(ask) == 1
        assert await asyncio.to_thread(end_of, stopped) == b""


@pytest.mark.parametrize("beginning", [b"\0", b"GET / HTTP/1.1\r\n\r\n", b"\x80\x2e\x01\x00\x02", bytes(5000)])
async def test_what_is_not_tls_gets_an_alert_and_is_closed(tmp_path: Path, beginning: bytes) -> None:
    def answer() -> bytes:
        with socket.create_connection(("127.0.0.1", broker.port), WITHIN_SECONDS) as sock:
            sock.sendall(beginning)
            try:
                return sock.recv(100)
            except ConnectionResetError:  # the rest of the bytes was not read
                return b"\x15"

    async with tls_broker(tmp_path) as broker:
        assert (await asyncio.to_thread(answer))[:1] == b"\x15"


async def test_a_plain_listener_of_the_same_broker_stays_plain(tmp_path: Path) -> None:
    def ask() -> int:
        with Asker(f"127.0.0.1:{broker.plain_port}") as asker:
            return len(asker.ask(m.MetadataRequest(topics=[]), 9).brokers)

    async with tls_broker(tmp_path) as broker:
        assert await asyncio.to_thread(ask) == 1


async def test_metrics_tell_of_handshakes_and_of_the_end_of_certificates(tmp_path: Path) -> None:
    def page() -> str:
        with broker.ask() as asker:
            asker.ask(m.MetadataRequest(topics=[]), 9)  # an answer: the broker too has ended the handshake
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                return str(answer.read().decode())

    [port] = free_ports(1)
    async with tls_broker(tmp_path, headrace_metrics_listen=f"127.0.0.1:{port}") as broker:
        text = await asyncio.to_thread(page)
    ends = identity().certificate.not_valid_after_utc.timestamp()
    [line] = [each for each in text.splitlines() if each.startswith("headrace_tls_certificate_expiry_seconds{")]
    assert line.split()[0].endswith('{listener="SSL"}')
    assert float(line.split()[1]) == ends
    assert "\nheadrace_tls_handshakes_in_progress 0" in text


async def test_thousands_of_silent_connections_harm_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.network.tls.handshakes.HANDSHAKES_MAX", 300)
    monkeypatch.setattr("headrace.network.tls.handshakes.HANDSHAKES_BEGUN_MAX", 100)

    def flood() -> list[socket.socket]:
        found = []
        for number in range(800):
            found.append(socket.create_connection(("127.0.0.1", broker.port), WITHIN_SECONDS))
            if number % 2:
                found[-1].sendall(b"\x16\x03\x01")
        return found

    def ask() -> int:
        with broker.ask() as asker:
            return len(asker.ask(m.MetadataRequest(topics=[]), 9).brokers)

    async with tls_broker(tmp_path) as broker:
        connections = await asyncio.to_thread(flood)
        for _ in range(5):
            assert await asyncio.to_thread(ask) == 1
        for sock in connections:
            sock.close()


@pytest.mark.parametrize("sent", [0, 3], ids=["silent", "begun"])
async def test_a_flood_at_one_listener_takes_no_place_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: int
) -> None:
    monkeypatch.setattr("headrace.network.tls.handshakes.HANDSHAKES_MAX", 100)
    monkeypatch.setattr("headrace.network.tls.handshakes.HANDSHAKES_BEGUN_MAX", 50)
    hello = _hello()

    def connect(port: int) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", port), WITHIN_SECONDS)
        sock.sendall(hello[:sent])
        return sock

    def flood_one(flooded: int, other: int) -> list[bytes]:
        with ExitStack() as stack:
            guests = [stack.enter_context(connect(other)) for _ in range(20)]
            flood = [stack.enter_context(connect(flooded)) for _ in range(200)]
            for sock in flood[:100]:
                assert _is_closed(sock), "the flood takes the places of its own"
            for guest in guests:
                guest.sendall(hello[sent:])
            return [guest.recv(1) for guest in guests]

    properties = {
        "log.dirs": str(tmp_path / "data"),
        "listeners": "SSL://127.0.0.1:0,OTHER://127.0.0.1:0",
        "listener.security.protocol.map": "SSL:SSL,OTHER:SSL",
        **server_settings(tmp_path),
    }
    async with running(parse_broker(properties)) as (_, (flooded, other)):
        assert await asyncio.to_thread(flood_one, flooded.port, other.port) == [b"\x16"] * 20


@pytest.mark.parametrize("seed", range(20))
async def test_any_bytes_in_the_handshake_end_only_their_connection(tmp_path: Path, seed: int) -> None:
    """A valid hello with changed bytes, or random bytes in records of TLS, in pieces of any size."""
    chosen = random.Random(seed)
    data = bytearray(_hello() if seed % 2 else b"\x16\x03\x01\x01\x00" + chosen.randbytes(256))
    for _ in range(chosen.randrange(1, 8)):
        data[chosen.randrange(1, len(data))] = chosen.randrange(256)

    def send() -> None:
        with socket.create_connection(("127.0.0.1", broker.port), WITHIN_SECONDS) as sock:
            at = 0
            try:
                while at < len(data):
                    size = chosen.randrange(1, 100)
                    sock.sendall(data[at : at + size])
                    at += size
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(4096):
                    pass
            except OSError:
                pass

    def ask() -> int:
        with broker.ask() as asker:
            return len(asker.ask(m.MetadataRequest(topics=[]), 9).brokers)

    async with tls_broker(tmp_path) as broker:
        await asyncio.to_thread(send)
        assert await asyncio.to_thread(ask) == 1


def _is_closed(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:  # what was sent was not read
        return True


def _hello() -> bytes:
    """The beginning of a valid handshake."""
    ingoing, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ingoing, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is missing")
@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["-tls1_3"], "Verify return code: 0 (ok)"),
        (["-tls1_2"], "Verify return code: 0 (ok)"),
        (["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"], "no peer certificate available"),
        (["-tls1_2", "-cipher", "AES128-SHA"], "no peer certificate available"),
        (["-tls1_2", "-cipher", "aNULL:eNULL:@SECLEVEL=0"], "no peer certificate available"),
    ],
)
async def test_openssl_agrees(tmp_path: Path, options: list[str], says: str) -> None:
    def ask() -> str:
        command = ["openssl", "s_client", "-connect", f"127.0.0.1:{broker.port}", "-CAfile", str(tmp_path / "ca.pem")]
        done = subprocess.run([*command, *options], input=b"", capture_output=True, timeout=60)
        return (done.stdout + done.stderr).decode()

    async with tls_broker(tmp_path) as broker:
        assert says in await asyncio.to_thread(ask)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is missing")
async def test_renegotiation_is_refused(tmp_path: Path) -> None:
    def ask() -> str:
        command = ["openssl", "s_client", "-connect", f"127.0.0.1:{broker.port}", "-tls1_2"]
        done = subprocess.run(command, input=b"R\n", capture_output=True, timeout=60)
        return (done.stdout + done.stderr).decode()

    async with tls_broker(tmp_path) as broker:
        assert "no renegotiation" in await asyncio.to_thread(ask)


async def test_a_listener_with_sasl_demands_a_certificate_only_if_its_own_setting_does(tmp_path: Path) -> None:
    def shake_hands() -> str | None:
        with broker.connect(ssl_enabled_protocols="TLSv1.2") as sock:
            return sock.version()

    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0",
        "ssl_client_auth": "required",
        "sasl_enabled_mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": (
            'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";'
        ),
    }
    async with tls_broker(tmp_path, **settings) as broker:
        assert await asyncio.to_thread(shake_hands) == "TLSv1.2"
    async with tls_broker(tmp_path, **settings, **{"listener.name.sasl_ssl.ssl.client.auth": "required"}) as broker:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.to_thread(shake_hands)
