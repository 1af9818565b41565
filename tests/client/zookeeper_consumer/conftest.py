"""A broker of ours on a ZooKeeper, shared by the tests of one worker."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from headrace.client.operations.admin import Admin, NewTopic
from headrace.client.producer.producer import Producer
from tests.client.brokers import topic_name
from tests.harness import HeadraceServer
from tests.zookeeper_server import ZooKeeperServer


@dataclass(frozen=True)
class Site:
    """Where the tests consume: a broker, and its ZooKeeper with a view of its own."""

    zookeeper: str
    """HOST:PORT/CHROOT"""
    bootstrap: str
    view: KazooClient

    def topic(self, purpose: str, partitions: int) -> str:
        """A new topic."""
        name = topic_name(purpose)
        with Admin(self.bootstrap) as admin:
            admin.create_topics([NewTopic(name, partitions, 1)])
        return name

    def produce(self, topic: str, partitions: int, first: int, count: int) -> set[int]:
        """Write the numbers from `first` on, partition by partition in turn, and return them."""
        with Producer(self.bootstrap) as producer:
            for number in range(first, first + count):
                producer.send(topic, str(number).encode(), partition=number % partitions)
        return set(range(first, first + count))

    def nodes(self, path: str) -> dict[str, str]:
        """The data of the children of a node; none where there is no node."""
        found = {}
        for name in self.view.get_children(path) if self.view.exists(path) else ():
            with suppress(NoNodeError):
                found[name] = self.view.get(f"{path}/{name}")[0].decode()
        return found

    def owners(self, group: str, topic: str) -> dict[int, str]:
        """The consumer (without its thread) that owns each partition."""
        found = self.nodes(f"/consumers/{group}/owners/{topic}")
        return {int(partition): thread.rpartition("-")[0] for partition, thread in found.items()}

    def offsets(self, group: str, topic: str) -> dict[int, int]:
        """The committed offset of each partition."""
        found = self.nodes(f"/consumers/{group}/offsets/{topic}")
        return {int(partition): int(offset) for partition, offset in found.items()}


@pytest.fixture(scope="session")
def site(zookeeper_server: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The site of this worker."""
    zookeeper = f"{zookeeper_server.address}/zookeeper-consumer"
    settings = {"offsets.topic.num.partitions": "3", "offsets.topic.replication.factor": "1"}
    arguments = ("--broker-id", "1", "--zookeeper", zookeeper)
    server = HeadraceServer(tmp_path_factory.mktemp("broker") / "data", settings, arguments)
    server.start()
    view = KazooClient(zookeeper)
    view.start(60)
    yield Site(zookeeper, server.bootstrap, view)
    view.stop()
    view.close()
    server.stop()
