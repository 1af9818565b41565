"""SASL over TLS: the same gate, and clients that log in through it."""

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from headrace.client.core.cluster import Cluster
from headrace.client.security.client_options import client_settings as settings_of
from headrace.errors import AuthenticationFailed, ErrorCode
from headrace.network.tls.contexts import client_context
from headrace.testing import Broker
from tests.broker.test_authentication import PLAIN_USERS, authenticate, handshake, serves
from tests.certificates import client_settings, server_settings
from tests.eventually import WITHIN_SECONDS
from tests.wire import Wire

pytestmark = pytest.mark.slow

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sasl-ssl")


@pytest.fixture(scope="module")
def broker(directory: Path) -> Iterator[Broker]:
    settings: dict[str, str | int] = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": PLAIN_USERS,
        "connection.failed.authentication.delay.ms": 10,
        **server_settings(directory),
    }
    with Broker(settings=settings) as broker:
        yield broker


def secured(broker: Broker, directory: Path) -> Wire:
    """A connection over TLS."""
    wire = Wire(broker.bootstrap)
    context = client_context(client_settings(directory))
    wire.socket = context.wrap_socket(wire.socket, server_hostname="localhost")
    return wire


def test_the_gate_stands_behind_tls(broker: Broker, directory: Path) -> None:
    with secured(broker, directory) as wire:
        assert handshake(wire) == (0, ["PLAIN", "SCRAM-SHA-512"])
        assert authenticate(wire, b"\0alice\0wonder").error_code == 0
        assert serves(wire)
    with secured(broker, directory) as wire:
        handshake(wire)
        assert authenticate(wire, b"\0alice\0wrong").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        with pytest.raises((ssl.SSLError, ConnectionError, AssertionError)):
            assert wire.socket.recv(1)


def test_a_password_is_not_taken_in_plain_text(broker: Broker) -> None:
    with Wire(broker.bootstrap) as wire, pytest.raises((ConnectionError, socket.timeout, ValueError)):
        wire.socket.settimeout(WITHIN_SECONDS)
        handshake(wire)


def test_clients_log_in(broker: Broker, directory: Path) -> None:
    for password, is_right in (("wonder", True), ("wrong", False)):
        options = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{MODULE} username="alice" password="{password}";',
            **client_settings(directory),
        }
        with Cluster(broker.bootstrap.replace("127.0.0.1", "localhost"), settings_of(options)) as cluster:
            if is_right:
                assert cluster.refresh([]).brokers
            else:
                with pytest.raises(AuthenticationFailed):
                    cluster.refresh([])
    admin = AdminClient(
        {
            "bootstrap.servers": broker.bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "wonder",
            "ssl.ca.location": str(directory / "ca.pem"),
        }
    )
    assert admin.list_topics(timeout=WITHIN_SECONDS).brokers
