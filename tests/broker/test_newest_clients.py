"""The newest clients speak their newest versions with us: these are overheard, and what was written is read."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import kafka as kafka_python
import pytest

from tests.conftest import StartHeadrace
from tests.eventually import WITHIN_SECONDS, collected
from tests.harness import free_ports
from tests.overhear import Overhear
from tests.peers import kafka
from tests.wire import FETCH, LIST_OFFSETS, METADATA, PRODUCE, Wire

pytestmark = pytest.mark.slow  # processes of its own

OFFSET_COMMIT, OFFSET_FETCH = 8, 9
COUNT = 500


class Heard(Overhear):
    """A broker behind a proxy."""

    def __init__(self, port: int, broker_port: int) -> None:
        super().__init__(port, broker_port)
        self.bootstrap = f"127.0.0.1:{port}"

    def newest(self, *api_keys: int) -> list[int]:
        return [max(self.versions[key], default=-1) for key in api_keys]


@pytest.fixture
def heard(headrace_server: StartHeadrace) -> Iterator[Heard]:
    (port,) = free_ports(1)
    server = headrace_server(
        settings={
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.num.partitions": "1",
        }
    )
    with Heard(port, server.port) as heard:
        yield heard


@pytest.fixture
def topic(heard: Heard) -> str:
    name = f"newest-{uuid.uuid4().hex[:8]}"
    with Wire(heard.bootstrap) as wire:
        assert wire.create_topic(name, partitions=3) == 0
    return name


def test_librdkafka(heard: Heard, topic: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": heard.bootstrap})
    for number in range(COUNT):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(WITHIN_SECONDS) == 0
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": heard.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    taken = collected(lambda left: consumer.consume(left, 0.5), COUNT)
    values = {each.value() for each in taken}
    consumer.commit(asynchronous=False)
    consumer.close()
    assert len(values) == COUNT
    assert heard.newest(PRODUCE, FETCH, LIST_OFFSETS, METADATA) == [10, 16, 7, 13]


def test_kafka_python(heard: Heard, topic: str) -> None:
    producer = kafka_python.KafkaProducer(bootstrap_servers=heard.bootstrap)
    for number in range(COUNT):
        producer.send(topic, b"%d" % number)
    producer.flush(WITHIN_SECONDS)
    producer.close()
    consumer = kafka_python.KafkaConsumer(
        topic, bootstrap_servers=heard.bootstrap, auto_offset_reset="earliest", group_id="g", consumer_timeout_ms=10_000
    )
    values = {message.value for _, message in zip(range(COUNT), consumer, strict=False)}
    consumer.close()
    assert len(values) == COUNT
    assert heard.newest(FETCH, LIST_OFFSETS, METADATA) == [12, 11, 13]


@pytest.mark.peer
@pytest.mark.slow
def test_java(heard: Heard, topic: str, tmp_path: Path) -> None:
    if reason := kafka.missing_tools():
        pytest.skip(reason)
    common = ["--topic", topic, "--num-records", str(COUNT), "--bootstrap-server", heard.bootstrap]
    sent = kafka.run_tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *common,
        "--record-size",
        "100",
        "--throughput",
        "-1",
        logs=tmp_path,
    )
    assert f"{COUNT} records sent" in sent
    read = kafka.run_tool("org.apache.kafka.tools.ConsumerPerformance", *common, "--group", "g", logs=tmp_path)
    assert f" {COUNT}," in read.splitlines()[-1]
    assert heard.newest(PRODUCE, FETCH, LIST_OFFSETS, METADATA) == [13, 18, 11, 13]
    assert heard.newest(OFFSET_COMMIT, OFFSET_FETCH) == [9, 9]  # 10 is for groups of KIP-848
