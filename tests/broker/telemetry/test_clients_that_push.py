"""Java clients, librdkafka and our own client push their metrics to a broker, which shows them on its page."""

import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

import headrace
from headrace.types import TopicPartition
from tests.asker import Asker
from tests.broker.admin_requests import create_topic
from tests.differential.requests import SET, incremental_request
from tests.eventually import eventually
from tests.harness import HeadraceServer, free_ports
from tests.peers import kafka

pytestmark = [pytest.mark.slow]

CLIENT_METRICS = 16
INTERVAL_MS = 300
RECORDS = 60


class Scraped:
    """A broker with a metrics page."""

    def __init__(self, server: HeadraceServer, port: int, directory: Path) -> None:
        self.bootstrap, self._port, self._directory = server.bootstrap, port, directory

    def values(self, name: str, client_id: str) -> list[float]:
        """A metric's values of one client."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics") as page:
            families = text_string_to_metric_families(page.read().decode())
            samples = [each for family in families for each in family.samples]
        return [each.value for each in samples if each.name == name and each.labels.get("client_id") == client_id]

    def tool(self, main_class: str, *arguments: str) -> str:
        return kafka.run_tool(main_class, *arguments, logs=self._directory)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Scraped]:
    (port,) = free_ports(1)
    server = HeadraceServer(tmp_path / "data", {"headrace.metrics.listen": f"127.0.0.1:{port}"})
    server.start()
    try:
        yield Scraped(server, port, tmp_path)
    finally:
        server.stop()


def subscribe(broker: Scraped, name: str, metrics: str) -> None:
    with Asker(broker.bootstrap) as asker:
        changes = [("metrics", SET, metrics), ("interval.ms", SET, str(INTERVAL_MS))]
        answer = asker.ask(incremental_request(CLIENT_METRICS, name, *changes), 1)
        assert [each.error_code for each in answer.responses] == [0]


@pytest.mark.peer
def test_java_clients_push_what_kafka_client_metrics_asks_for(broker: Scraped) -> None:
    if reason := kafka.missing_tools():
        pytest.skip(reason)
    connection = ("--bootstrap-server", broker.bootstrap)
    subscriptions = ("org.apache.kafka.tools.ClientMetricsCommand", *connection)
    broker.tool(
        *subscriptions, "--alter", "--name", "java", "--metrics", "org.apache.kafka.producer,org.apache.kafka.consumer",
        "--interval", str(INTERVAL_MS), "--match", "client_software_name=apache-kafka-java",
    )  # fmt: skip
    assert broker.tool(*subscriptions, "--list").split() == ["java"]
    assert f"interval.ms={INTERVAL_MS}" in broker.tool(*subscriptions, "--describe", "--name", "java")
    with Asker(broker.bootstrap) as asker:
        topic = create_topic(asker)
    broker.tool(
        "org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--num-records", str(RECORDS),
        "--record-size", "100", "--throughput", "30", "--bootstrap-server", broker.bootstrap,
        "--command-property", "client.id=java-producer",
    )  # fmt: skip
    # The deltas are added up to the last push, at the end of the producer. The first one is of what came before.
    [sent] = broker.values("kafka_client_producer_record_send_total", "java-producer")
    assert RECORDS / 2 < sent <= RECORDS
    broker.tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer", "--topic", topic, "--from-beginning", *connection,
        "--timeout-ms", "2000", "--command-property", "client.id=java-consumer",
    )  # fmt: skip
    consumed = broker.values("kafka_client_consumer_fetch_manager_records_consumed_total", "java-consumer")
    assert consumed
    broker.tool(*subscriptions, "--delete", "--name", "java")
    assert broker.tool(*subscriptions, "--list").split() == []


def test_librdkafka_pushes_its_metrics(broker: Scraped) -> None:
    subscribe(broker, "all", "*")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "librdkafka", "enable.metrics.push": True})

    def has_pushed() -> bool:
        producer.produce("pushed", b"v")
        producer.flush(5)
        return bool(broker.values("kafka_client_producer_connection_creation_total", "librdkafka"))

    eventually(has_pushed, "librdkafka's push")


def test_our_client_pushes_its_metrics_and_the_last_ones_when_it_closes(broker: Scraped) -> None:
    subscribe(broker, "all", "*")
    with headrace.Producer(broker.bootstrap, client_id="tills", enable_metrics_push=True) as producer:
        for _ in range(RECORDS):
            producer.send("pushed", b"v").result()
        eventually(lambda: broker.values("kafka_client_producer_record_send_total", "tills"), "the producer's push")
        for _ in range(RECORDS):
            producer.send("pushed", b"v").result()
        measured = producer.metrics()["producer-metrics"]["record-send-total"]
    assert broker.values("kafka_client_producer_record_send_total", "tills") == [measured] == [2 * RECORDS]
    assert broker.values("kafka_client_producer_node_request_latency_avg", "tills")[0] > 0
    how = headrace.ConsumerSettings(auto_offset_reset="earliest", metrics_push=True)
    with headrace.Consumer(broker.bootstrap, how, client_id="kitchen") as consumer:
        consumer.assign([TopicPartition("pushed", 0)])
        left = 2 * RECORDS
        while left:
            left -= len(consumer.poll(200))
        eventually(
            lambda: broker.values("kafka_client_consumer_coordinator_assigned_partitions", "kitchen"), "another push"
        )
    consumed = "kafka_client_consumer_fetch_manager_records_consumed_total"
    assert broker.values(consumed, "kitchen") == [2 * RECORDS]


def test_our_client_pushes_nothing_unless_it_is_told_to(broker: Scraped) -> None:
    subscribe(broker, "all", "*")
    with headrace.Producer(broker.bootstrap, client_id="silent") as producer:
        producer.send("pushed", b"v").result()
    assert broker.values("kafka_client_info", "silent") == []
