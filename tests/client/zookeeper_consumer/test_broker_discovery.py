"""A producer and a consumer that find their brokers in ZooKeeper follow those that come and go."""

from pathlib import Path
from threading import Thread

import pytest

from headrace.client.event_producer.event_producer import EventProducer
from headrace.client.operations.admin import Admin, NewTopic
from headrace.client.producer.producer import Producer
from headrace.client.zookeeper_consumer.connector import ConsumerConnector
from headrace.client.zookeeper_consumer.settings import ConnectorSettings
from headrace.errors import KafkaError
from tests.client.brokers import topic_name
from tests.client.zookeeper_consumer.conftest import Site
from tests.eventually import eventually, eventually_equal
from tests.harness import HeadraceServer, free_ports

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("zookeeper-consumer")]


def test_a_producer_follows_brokers_and_partitions(site: Site, tmp_path: Path) -> None:
    zookeeper = f"{site.zookeeper.partition('/')[0]}/discovery"
    first, second = (
        HeadraceServer(tmp_path / f"data-{n}", {}, ("--broker-id", str(n), "--zookeeper", zookeeper)) for n in (1, 2)
    )
    try:
        first.start()
        with Admin(first.bootstrap) as admin:
            admin.create_topics([NewTopic("followed", 1, 1)])
        seen: list[int] = []

        def partitioner(_: object, count: int) -> int:
            seen.append(count)
            return count - 1

        with EventProducer(zookeeper=zookeeper, partitioner=partitioner) as producer:
            producer.send("followed", b"a", key=0)
            second.start()
            with Admin(second.bootstrap) as admin:
                eventually(lambda: len(admin.describe_cluster().brokers) == 2, "both brokers")
                admin.create_partitions("followed", 4)

            def has_grown() -> bool:
                producer.send("followed", b"b", key=0)
                return seen[-1] == 4

            eventually(has_grown, "the new partitions")
            first.stop()
            with Admin(second.bootstrap) as admin:
                admin.create_topics([NewTopic("without-the-first", 1, 1)])
            producer.send("without-the-first", b"c")
    finally:
        first.stop()
        second.stop()


def test_a_consumer_follows_a_broker_to_another_address(site: Site, tmp_path: Path) -> None:
    zookeeper = f"{site.zookeeper.partition('/')[0]}/{topic_name('moved')}"
    server = HeadraceServer(tmp_path / "data", {}, ("--broker-id", "1", "--zookeeper", zookeeper)).start()
    try:
        with Admin(server.bootstrap) as admin:
            admin.create_topics([NewTopic("followed", 2, 1)])
        settings = ConnectorSettings(auto_offset_reset="smallest", rebalance_backoff_ms=200)
        with ConsumerConnector(zookeeper, "g", settings) as connector:
            [stream] = connector.create_message_streams({"followed": 1})["followed"]
            found: list[bytes | None] = []
            reader = Thread(target=lambda: found.extend(each.value for each in stream), daemon=True)
            reader.start()
            written: list[bytes | None] = []
            for turn in range(2):
                with Producer(server.bootstrap) as producer:
                    for partition in range(2):
                        value = b"%d-%d" % (turn, partition)
                        producer.send("followed", value, partition=partition)
                        written.append(value)
                eventually_equal(lambda: sorted(map(str, found)), sorted(map(str, written)))
                if not turn:
                    before = server.bootstrap
                    server.stop()
                    server.listen = f"127.0.0.1:{free_ports(1)[0]}"
                    server.start()
                    assert server.bootstrap != before
        reader.join()
    finally:
        server.stop()


def test_no_broker_is_an_error(site: Site) -> None:
    site.view.ensure_path("/empty")
    with pytest.raises(KafkaError, match="no broker for PLAINTEXT is registered at .*/empty"):
        EventProducer(zookeeper=f"{site.zookeeper}/empty")
