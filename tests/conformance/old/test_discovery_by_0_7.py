"""A producer and a group of consumers of Kafka 0.7 find two brokers in ZooKeeper, and share their partitions."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from headrace.client import Admin, NewTopic, Producer
from tests.client_07 import ENABLED
from tests.conformance.old.samsa import Samsa, python_2
from tests.eventually import eventually, eventually_equal
from tests.harness import HeadraceServer, free_ports, unused
from tests.zookeeper_server import ZooKeeperServer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("clients-of-0.7"),
    pytest.mark.skipif(python_2() is None, reason="samsa needs Python 2.7 with pip"),
]
SESSION_S = 2.0
EVERYWHERE = ["1-0", "1-1", "2-0", "2-1"]


class Old:
    """The brokers, and the clients that a test starts."""

    def __init__(self, zookeeper: ZooKeeperServer, directory: Path, ends: ExitStack) -> None:
        self._ends = ends
        cluster, old = zookeeper.chroot("cluster"), zookeeper.chroot("of-0.7")
        self.zookeeper = old
        self.brokers = []
        for number in (1, 2):
            port, port_07 = free_ports(2)
            settings = {
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OLD:KAFKA07",
                "headrace.kafka07.zookeeper.chroot": "/" + old.partition("/")[2],
            }
            listen = f"PLAINTEXT://127.0.0.1:{port},OLD://127.0.0.1:{port_07}"
            arguments = ("--broker-id", str(number), "--zookeeper", cluster)
            server = HeadraceServer(directory / f"broker-{number}", settings, arguments, listen)
            ends.callback(server.stop)
            self.brokers.append(server.start())
        self.bootstrap = ",".join(each.bootstrap for each in self.brokers)
        with Admin(self.bootstrap) as admin:
            eventually(lambda: len(admin.describe_cluster().brokers) == 2, "both brokers")

    def topic(self) -> str:
        """A topic with two partitions on each broker."""
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
        yield Old(zookeeper_server, tmp_path, ends)


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
