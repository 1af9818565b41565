"""Producers and groups of consumers of Kafka 0.7 find brokers in ZooKeeper, and share their partitions."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from headrace.client import Admin, NewTopic, Producer
from tests.client_07 import ENABLED
from tests.conformance.old.franz_kafka import FranzKafka, FranzKafkaProgram
from tests.conformance.old.samsa import Samsa, python_2
from tests.conformance.programs import missing_tools
from tests.eventually import eventually, eventually_equal
from tests.harness import HeadraceServer, free_ports, unused
from tests.zookeeper_server import ZooKeeperServer
from tests.zookeeper_server import missing_tools as missing_zookeeper

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("clients-of-0.7")]
SESSION_S = 2.0
EVERYWHERE = ["1-0", "1-1", "2-0", "2-1"]


class Old:
    """The brokers, and the clients that a test starts."""

    def __init__(self, cluster: str, old: str, brokers: int, directory: Path, ends: ExitStack) -> None:
        """`cluster`, `old`: HOST:PORT/CHROOT of today's nodes and those of 0.7."""
        self._ends = ends
        self.zookeeper = old
        self.brokers = []
        for number in range(1, brokers + 1):
            port, port_07 = free_ports(2)
            settings = {
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OLD:KAFKA07",
                "headrace.kafka07.zookeeper.chroot": "/" + old.partition("/")[2],
                "default.replication.factor": "1",
            }
            listen = f"PLAINTEXT://127.0.0.1:{port},OLD://127.0.0.1:{port_07}"
            arguments = ("--broker-id", str(number), "--zookeeper", cluster)
            server = HeadraceServer(directory / f"broker-{number}", settings, arguments, listen)
            ends.callback(server.stop)
            self.brokers.append(server.start())
        self.bootstrap = ",".join(each.bootstrap for each in self.brokers)
        with Admin(self.bootstrap) as admin:
            eventually(lambda: len(admin.describe_cluster().brokers) == brokers, f"{brokers} brokers")

    def topic(self) -> str:
        """A topic with four partitions, two on each of two brokers."""
        name = unused("clicks")
        with Admin(self.bootstrap) as admin:
            admin.create_topics([NewTopic(name, 4, 1, ENABLED)])
        return name

    def client(self, topic: str) -> Samsa:
        """A process of samsa, which is ended after the test."""
        made = Samsa(self.zookeeper, topic, SESSION_S)
        self._ends.callback(made.kill)
        return made

    def write_today(self, topic: str, first: int, count: int) -> set[str]:
        """Values by a producer of today, in all partitions."""
        values = [str(number) for number in range(first, first + count)]
        with Producer(self.bootstrap) as producer:
            for number, value in enumerate(values):
                producer.send(topic, value.encode(), partition=number % 4)
        return set(values)


@pytest.fixture
def old(zookeeper_server: ZooKeeperServer, tmp_path: Path) -> Iterator[Old]:
    with ExitStack() as ends:
        yield Old(zookeeper_server.chroot("cluster"), zookeeper_server.chroot("of-0.7"), 2, tmp_path, ends)


@pytest.mark.skipif(python_2() is None, reason="samsa needs Python 2.7 with pip")
def test_producers_and_groups_of_0_7_find_all_partitions(old: Old) -> None:
    topic = old.topic()
    first = old.client(topic)
    eventually_equal(first.partitions, EVERYWHERE, "the partitions that samsa finds")
    wanted = old.write_today(topic, 0, 40)
    for place in EVERYWHERE:
        first.produce(place, f"{place} a", f"{place} b")
        wanted |= {f"{place} a", f"{place} b"}
    first.join("g")
    eventually_equal(lambda: set(first.take()), wanted, "all values, from 0.7 and today")
    assert len(first.values) == len(wanted), "one was read twice"
    first.commit()

    second = old.client(topic)
    second.join("g")
    eventually_equal(lambda: sorted([*first.owned(), *second.owned()]), EVERYWHERE, "each partition to have one owner")
    eventually_equal(lambda: len(second.owned()), 2)
    more = old.write_today(topic, 100, 40)
    eventually_equal(lambda: sorted([*first.take(), *second.take()]), sorted([*wanted, *more]), "each value once")
    assert second.values
    second.commit()
    first.commit()
    first.kill()
    eventually_equal(second.owned, EVERYWHERE, "the partitions of the killed member")
    last = old.write_today(topic, 200, 40)
    eventually(lambda: last <= set(second.take()), "all values of all partitions")


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_client_that_knows_no_chroot_finds_topics_that_are_created_later(tmp_path: Path, compression: str) -> None:
    if reason := missing_tools(FranzKafkaProgram.tools) or missing_zookeeper():
        pytest.skip(reason)
    with ExitStack() as ends:
        zookeeper = ends.enter_context(ZooKeeperServer(tmp_path / "zookeeper"))
        old = Old(f"{zookeeper.address}/today", f"{zookeeper.address}/", 1, tmp_path, ends)
        client = FranzKafka(zookeeper.address, "g", compression)
        ends.callback(client.machine.stop)
        topic = old.topic()
        eventually_equal(lambda: client.partitions(topic), ["1-0", "1-1", "1-2", "1-3"])
        client.produce(topic, [f"of 0.7: {number}" for number in range(20)])
        wanted = {f"of 0.7: {number}" for number in range(20)} | old.write_today(topic, 0, 40)
        client.consume(topic)
        eventually_equal(lambda: sorted(client.values()), sorted(wanted), "each value once")
