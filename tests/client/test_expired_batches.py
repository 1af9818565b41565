"""A batch that expires while its request is on its way is delivered to its own topic, or nowhere.

CVE-2026-35554: Apache Kafka's producer gave the memory of such a batch to the next one, maybe of another topic, while
the request was still being sent, so that records went where others may read them.
"""

from contextlib import suppress
from pathlib import Path

import pytest

from headrace.client import Consumer, Producer, ProducerSettings
from headrace.client.core.settings import ClientSettings
from headrace.client.operations.admin import Admin, NewTopic
from headrace.errors import KafkaError
from headrace.types import TopicPartition
from tests.cluster.tcp_proxy import CLIENT, TcpProxy
from tests.eventually import WITHIN_SECONDS, collected
from tests.harness import HeadraceServer, free_ports

pytestmark = pytest.mark.slow

TOPICS = ("secret", "public")
VALUE_BYTES = 400_000  # several times what the sockets hold, so that requests are sent in parts


def test_a_batch_that_expires_on_its_way_is_in_no_other_topic(tmp_path: Path) -> None:
    port, own_port = free_ports(2)
    advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    server = HeadraceServer(tmp_path / "data", advertised, listen=f"127.0.0.1:{own_port}").start()
    proxy = TcpProxy(port, own_port).start()
    try:
        with Admin(f"127.0.0.1:{port}") as admin:
            admin.create_topics([NewTopic(each, 1) for each in TOPICS])
        expired = sum(_expires(f"127.0.0.1:{port}", proxy) for _ in range(2))
        assert expired > 2, "no batch has expired"
        with Consumer(f"127.0.0.1:{port}") as consumer:
            for topic in TOPICS:
                partition = TopicPartition(topic, 0)
                consumer.assign([partition])
                consumer.seek_to_beginning()
                count = consumer.end_offsets()[partition]
                read = [each.value for each in collected(lambda _: consumer.poll(200), count)]
                assert len(read) >= 2
                assert set(read) == {_value(topic)}, topic
    finally:
        proxy.stop()
        server.stop()


def _expires(bootstrap: str, proxy: TcpProxy) -> int:
    """Sends to both topics while the way is cut, then heals it, and sends again. Returns how many records expired."""
    settings = ProducerSettings(delivery_timeout_ms=2000, linger_ms=0, batch_bytes=VALUE_BYTES)
    with Producer(bootstrap, settings, ClientSettings(request_timeout_ms=1500)) as producer:
        for topic in TOPICS:
            producer.send(topic, _value(topic)).result(WITHIN_SECONDS)
        proxy.cut(CLIENT)
        late = [producer.send(TOPICS[0], _value(TOPICS[0])) for _ in range(3)]
        failed = 0
        for each in late:
            with suppress(KafkaError):
                each.result(WITHIN_SECONDS)
                continue
            failed += 1
            producer.send(TOPICS[1], _value(TOPICS[1]))
        proxy.heal(CLIENT)
        producer.flush(WITHIN_SECONDS)
    return failed


def _value(topic: str) -> bytes:
    return topic.encode() * (VALUE_BYTES // len(topic))
