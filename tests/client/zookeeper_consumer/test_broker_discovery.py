"""A producer that finds its brokers in ZooKeeper follows those that come and go."""

from pathlib import Path

import pytest

from headrace.client.event_producer.event_producer import EventProducer
from headrace.client.operations.admin import Admin, NewTopic
from headrace.errors import KafkaError
from tests.client.zookeeper_consumer.conftest import Site
from tests.eventually import eventually
from tests.harness import HeadraceServer

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


def test_no_broker_is_an_error(site: Site) -> None:
    site.view.ensure_path("/empty")
    with pytest.raises(KafkaError, match="no broker for PLAINTEXT is registered at .*/empty"):
        EventProducer(zookeeper=f"{site.zookeeper}/empty")
