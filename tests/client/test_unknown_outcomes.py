"""A batch that is stored, and whose answer is lost, is sent again and stored once, whatever else fails meanwhile."""

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from headrace.client import Producer, ProducerSettings
from headrace.client.core.settings import ClientSettings
from headrace.client.operations.admin import LATEST, Admin, NewTopic
from headrace.errors import ErrorCode, KafkaError
from headrace.types import TopicPartition
from tests.broker.frame_proxy import FrameProxy, as_sent
from tests.eventually import WITHIN_SECONDS
from tests.harness import HeadraceServer, free_ports

SMALL, PLAIN = "small-records", "plain"
BACKOFF_MS = 2_000
"""Long enough for a record of another topic to be refused before the retry."""


class LosingProxy(FrameProxy):
    """Closes a connection instead of passing its next answer on, when `loses` is set."""

    def __init__(self, port: int, broker_port: int) -> None:
        super().__init__(port, broker_port, lambda: as_sent)
        self.loses, self.has_lost = threading.Event(), threading.Event()

    def _answers(self, broker: socket.socket, client: socket.socket) -> None:
        with suppress(OSError), client:
            while data := broker.recv(1 << 16):
                if self.loses.is_set():
                    self.loses.clear()
                    client.shutdown(socket.SHUT_RDWR)
                    self.has_lost.set()
                    return
                client.sendall(data)


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[LosingProxy]:
    port, own_port = free_ports(2)
    advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    server = HeadraceServer(tmp_path / "data", advertised, listen=f"127.0.0.1:{own_port}").start()
    proxy = LosingProxy(port, own_port)
    yield proxy
    proxy.close()
    server.stop()


def test_a_refused_record_of_another_topic_makes_no_double(proxy: LosingProxy) -> None:
    bootstrap = f"127.0.0.1:{proxy.port}"
    client = ClientSettings(retry_backoff_ms=BACKOFF_MS, retry_backoff_max_ms=BACKOFF_MS)
    with Admin(bootstrap) as admin, Producer(bootstrap, ProducerSettings(linger_ms=0), client) as producer:
        admin.create_topics([NewTopic(SMALL, 1, 1, {"max.message.bytes": "2000"}), NewTopic(PLAIN, 1, 1)])
        for topic in (SMALL, PLAIN):
            producer.send(topic, b"first").result(WITHIN_SECONDS)
        proxy.loses.set()
        unanswered = producer.send(PLAIN, b"second")
        assert proxy.has_lost.wait(WITHIN_SECONDS)
        with pytest.raises(KafkaError) as refused:
            producer.send(SMALL, bytes(5_000)).result(WITHIN_SECONDS)
        assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
        unanswered.result(WITHIN_SECONDS)
        producer.send(PLAIN, b"third").result(WITHIN_SECONDS)
        plain = TopicPartition(PLAIN, 0)
        assert admin.list_offsets({plain: LATEST})[plain].offset == 3
