"""Three brokers on one ZooKeeper, of Apache Kafka 3.9 or headrace, each exchanged for the other kind where it is:
the same broker id, the same data directory.

    with ExchangedCluster(directory, zookeeper="127.0.0.1:2181/exchanged") as cluster:
        cluster.create_topic("t", partitions=3)
        cluster.exchange(1)                     broker 1 is stopped, and headrace started in its place
        cluster.exchange(1)                     and back
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from kazoo.client import KazooClient

from headrace.client.operations.admin import Admin, NewTopic
from headrace.errors import KafkaError
from tests.cluster.zookeeper_view import ZooKeeperView
from tests.eventually import eventually
from tests.harness import HeadraceServer, tail
from tests.peers.node import KafkaNode

BROKERS = (1, 2, 3)
REPLICATED = {
    "zookeeper.session.timeout.ms": "30000",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "group.initial.rebalance.delay.ms": "0",
}
"""Settings of both kinds."""


class ExchangedCluster(ZooKeeperView):
    """All brokers are of Apache Kafka when it is entered."""

    def __init__(self, directory: Path, zookeeper: str) -> None:
        self.theirs: dict[int, KafkaNode] = {}
        self.ours: dict[int, HeadraceServer] = {}
        shared = "".join(f"{key}={value}\n" for key, value in REPLICATED.items())
        for number in BROKERS:
            home = directory / f"broker-{number}"
            settings = f"{shared}broker.id={number}\ninter.broker.protocol.version=3.9\n"
            self.theirs[number] = KafkaNode(home, zookeeper=zookeeper, settings=settings)
            arguments = ("--broker-id", str(number), "--zookeeper", zookeeper)
            self.ours[number] = HeadraceServer(home / "log", REPLICATED, arguments)
        self.running: dict[int, KafkaNode | HeadraceServer] = dict(self.theirs)
        super().__init__(KazooClient(zookeeper))

    def __enter__(self) -> Self:
        try:
            with ThreadPoolExecutor() as starting:
                for started in [starting.submit(each.start) for each in self.theirs.values()]:
                    started.result()
            self.store.start()
            self._wait_for_all()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.store.stop()
        self.store.close()
        nodes: list[KafkaNode | HeadraceServer] = [*self.theirs.values(), *self.ours.values()]
        for each in nodes:
            if each.process is not None and each.process.poll() is None:
                each.kill()

    @property
    def bootstrap(self) -> str:
        """The addresses of the brokers that run; one of Apache Kafka has another after each start."""
        return ",".join(each.bootstrap for each in self.running.values())

    def create_topic(self, name: str, partitions: int) -> None:
        """A topic with a replica on each broker."""
        with Admin(self.bootstrap) as admin:
            admin.create_topics([NewTopic(name, partitions, len(BROKERS))])
        self.until(lambda: self.is_in_sync(name), f"{name} there")

    def exchange(self, number: int) -> None:
        """Stops a broker cleanly, starts one of the other kind on its files, and waits until all replicas are in
        sync."""
        before = self.running[number]
        after = self.ours[number] if before is self.theirs[number] else self.theirs[number]
        before.stop()
        self.until(lambda: str(number) not in self.children("/brokers/ids"), f"broker {number} gone")
        self.running[number] = after
        after.start()
        self._wait_for_all()
        self.until(lambda: all(map(self.is_in_sync, self.children("/brokers/topics"))), "every replica in sync")

    def _wait_for_all(self) -> None:
        def is_known_to_all() -> bool:
            try:
                return all(self._known_by(each.bootstrap) == set(BROKERS) for each in self.running.values())
            except KafkaError:
                return False

        self.until(is_known_to_all, "all brokers there")

    def _known_by(self, bootstrap: str) -> set[int]:
        with Admin(bootstrap) as admin:
            return set(map(int, admin.describe_cluster().brokers))

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Waits for what brokers do in their own time."""
        eventually(holds, what, every_s=0.1, state=self.said)

    def said(self) -> str:
        """The ends of all logs, for a failure's report."""
        ours = [f"---- {number} ----\n{tail(each.stderr_file)}" for number, each in self.ours.items()]
        return "\n".join([*ours, *(each.said() for each in self.theirs.values())])
