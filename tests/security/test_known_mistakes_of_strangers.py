"""The mistakes that Kafka, Pulsar and Redpanda have published as CVEs, about clients that have yet to authenticate.

Each test names the CVE whose class of mistake it holds off. Mistakes of parts that headrace does not have (Connect's
REST API, ZooKeeper's own quorum, Log4j) are left out. `conftest.broker` tells what the broker is like.
"""

import socket
import struct

import psutil
import pytest

from headrace.protocol import messages as m
from headrace.testing import Broker
from tests.harness import receive_frame
from tests.security.clients import (
    Client,
)


def test_memory_is_not_taken_for_strangers(broker: Broker) -> None:
    """CVE-2022-34917: a length field made the broker allocate before authentication."""
    [process] = [
        each for each in psutil.Process().children(recursive=True)
        if any(c.laddr.port == broker.port for c in each.net_connections() if c.status == psutil.CONN_LISTEN)
    ]  # fmt: skip
    before = process.memory_info().rss
    sockets = []
    for _ in range(50):
        connection = socket.create_connection(("127.0.0.1", broker.port))
        connection.sendall(struct.pack(">i", 100 << 20) + bytes(1000))
        sockets.append(connection)
    for connection in sockets:
        connection.settimeout(30)
        try:
            assert connection.recv(1) == b""
        except ConnectionResetError:
            pass
        connection.close()
    assert process.memory_info().rss - before < 20 << 20


def test_strangers_ask_nothing(broker: Broker) -> None:
    with Client(broker) as client:
        assert client.ask(m.ApiVersionsRequest(), 2).error_code == 0
        client.send(m.MetadataRequest(topics=None), 4)
        with pytest.raises((ConnectionError, OSError)):
            receive_frame(client.socket)
