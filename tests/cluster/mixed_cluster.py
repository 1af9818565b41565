"""Our broker 3 beside Apache Kafka's brokers 1 (and 2) of 3.9, in one cluster on one ZooKeeper.

    with MixedCluster(directory, zookeeper="127.0.0.1:2181/mixed") as mixed:
        mixed.assign("t", [1, 3], [3, 1])
        mixed.kill(1); mixed.kill(OURS); mixed.make_whole()
        assert mixed.logs("t")[...]

What there is to see is read from the metadata store, which both kinds write.
"""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple, Self

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from headrace.client.operations.admin import Admin
from headrace.client.operations.replica_admin import ReplicaAdmin
from headrace.protocol import messages as m
from headrace.types import TopicPartition
from tests.asker import Asker
from tests.cluster.zookeeper_view import ZooKeeperView
from tests.eventually import eventually
from tests.harness import HeadraceServer, free_ports, tail
from tests.peers.node import KafkaNode, end_session, old_java

OURS = 3
COMMON = {"zookeeper.session.timeout.ms": "30000"}
THEIRS = {
    "inter.broker.protocol.version": "3.9",
    "transaction.state.log.replication.factor": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
COORDINATOR_PARTITIONS = 3
"""Partitions of `__consumer_offsets` and `__transaction_state`."""
SETTINGS = {
    "offsets.topic.num.partitions": str(COORDINATOR_PARTITIONS),
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": str(COORDINATOR_PARTITIONS),
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


class Security(NamedTuple):
    """What makes a mixed cluster a secured one."""

    theirs: str
    """Lines for the server.properties of Apache Kafka."""
    options: Sequence[str]
    """Of its Java."""
    ours: Path
    """A properties file, whose listeners are CLIENT, PEER and CONTROL."""
    store: KazooClient
    """Who may read and write everything."""


class MixedCluster(ZooKeeperView):
    """Started when entered, all at once."""

    def __init__(
        self,
        directory: Path,
        zookeeper: str,
        *,
        theirs: int = 2,
        settings: Mapping[str, str] | None = None,
        security: Security | None = None,
    ) -> None:
        """`settings`: those that brokers of both kinds have beside the usual ones."""
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.zookeeper = zookeeper
        lines = "".join(f"{key}={value}\n" for key, value in {**COMMON, **THEIRS, **(settings or {})}.items())
        lines += security.theirs if security else ""
        self.theirs = {
            number: KafkaNode(
                directory / f"kafka-{number}",
                zookeeper=zookeeper,
                settings=f"{lines}broker.id={number}\n",
                options=security.options if security else (),
            )
            for number in range(1, theirs + 1)
        }
        arguments, listen = ["--broker-id", str(OURS), "--zookeeper", zookeeper], "127.0.0.1:0"
        if security:
            arguments += ["--config", str(security.ours)]
            listen = "CLIENT://127.0.0.1:{},PEER://127.0.0.1:{},CONTROL://127.0.0.1:{}".format(*free_ports(3))
        own = {**COMMON, **SETTINGS, **(settings or {})}
        self.ours = HeadraceServer(directory / "headrace-3", own, arguments, listen)
        super().__init__(security.store if security else KazooClient(zookeeper))

    @property
    def nodes(self) -> Sequence[KafkaNode | HeadraceServer]:
        """All brokers, whether they run or not."""
        return (*self.theirs.values(), self.ours)

    def __enter__(self) -> Self:
        try:
            with ThreadPoolExecutor() as starting:
                for started in [starting.submit(each.start) for each in self.nodes]:
                    started.result()
            self.store.start()
            self.wait_until_all_there()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.store.stop()
        self.store.close()
        if self.ours.process is not None and self.ours.process.poll() is None:
            self.ours.kill()  # a clean stop of the last ones waits for others
        for node in self.theirs.values():
            if node.process is not None and node.process.poll() is None:
                node.kill()

    @property
    def bootstrap(self) -> str:
        """The addresses of those that were started."""
        return ",".join(each.bootstrap for each in self.nodes if each.bootstrap)

    def admin(self) -> AdminClient:
        """An admin client; the brokers of Apache Kafka have other ports after each start, so a new one each time."""
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def make_whole(self) -> None:
        """Starts whoever is down, and waits until every replica is in sync."""
        for node in self.theirs.values():
            if node.process is None or node.process.poll() is not None:
                node.start()
        if self.ours.process is None or self.ours.process.poll() is not None:
            self.ours.restart()
        self.wait_until_all_there()
        self.until(lambda: all(map(self.is_in_sync, self.children("/brokers/topics"))), "every replica in sync")

    # what there is to see

    def log_of(self, broker: int, topic: str, partition: int) -> tuple[bytes, str]:
        """The bytes of a replica's only segment, and its epochs with their first offsets."""
        base = self.ours.data if broker == OURS else self.theirs[broker].directory / "log"
        home = base / f"{topic}-{partition}"
        return (home / f"{0:020d}.log").read_bytes(), (home / "leader-epoch-checkpoint").read_text()

    def have_same_logs(self, topic: str) -> bool:
        """Whether all replicas of each partition have the same bytes and the same epochs."""
        return all(
            len({self.log_of(each, topic, partition) for each in replicas}) == 1
            for partition, replicas in self.replicas(topic).items()
        )

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Waits for what brokers do in their own time."""
        eventually(holds, what, state=self.said)

    def wait_until_all_there(self) -> None:
        """All brokers are registered, and each names all of them."""
        wanted = {*self.theirs, OURS}
        for each in self.nodes:
            admin = AdminClient({"bootstrap.servers": each.bootstrap, "log_level": 0})
            self.until(partial(_names, admin, wanted), "all brokers there")

    # what is done to it

    def kill(self, broker: int) -> None:
        """SIGKILL, and the end of its session, before which Apache Kafka's broker does not start again."""
        (self.ours if broker == OURS else self.theirs[broker]).kill()
        end_session(self.store, broker)

    def assign(self, topic: str, *replicas: Sequence[int], **configs: str) -> None:
        """Makes a topic, and waits until it is everywhere; `_` in a setting's name stands for a dot."""
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        wish = NewTopic(topic, len(replicas), replica_assignment=[list(each) for each in replicas], config=settings)

        def is_made() -> bool:
            """The controller may change meanwhile, and a broker not know it yet."""
            admin = self.admin()  # ends when nobody refers to it
            try:
                admin.create_topics([wish])[topic].result(30)
            except KafkaException as error:
                code = error.args[0].code()
                if code not in (KafkaError.NOT_CONTROLLER, KafkaError.TOPIC_ALREADY_EXISTS, KafkaError._TIMED_OUT):
                    raise
                return bool(code == KafkaError.TOPIC_ALREADY_EXISTS)
            return True

        self.until(is_made, f"{topic} made")
        self.until(lambda: len(self.replicas(topic)) == len(replicas) and self.is_in_sync(topic), f"{topic} there")

    def lead(self, topic: str, broker: int, *partitions: int) -> None:
        """Has a replica lead these partitions: it becomes the preferred leader, and is elected."""
        wanted = {}
        for number in partitions:
            others = [each for each in self.replicas(topic)[number] if each != broker]
            wanted[TopicPartition(topic, number)] = [broker, *others]
        with Admin(self.bootstrap) as admin:
            replicas = ReplicaAdmin(admin.cluster)
            replicas.reassign(wanted)
            self.until(lambda: not replicas.reassignments(), f"{topic} reassigned")
        elect = m.ElectLeadersRequest(
            election_type=0,
            topic_partitions=[m.ElectLeadersRequest.TopicPartitions(topic=topic, partitions=list(partitions))],
            timeout_ms=1_000,  # the controller of headrace waits for all brokers, one of which may be paused
        )

        def is_elected() -> bool:
            controller = self.controller()
            if controller != -1:
                with Asker((self.ours if controller == OURS else self.theirs[controller]).bootstrap) as asker:
                    asker.ask(elect, 2)
            return all(self.state(*each)["leader"] == broker for each in wanted)

        self.until(is_elected, f"{broker} leads {topic}")

    @contextmanager
    def paused(self, broker: int) -> Iterator[None]:
        """The process is there and does nothing, in the block."""
        process = self.ours.process if broker == OURS else self.theirs[broker].process
        assert process is not None
        os.kill(process.pid, signal.SIGSTOP)
        try:
            eventually(lambda: _is_stopped(process.pid), f"broker {broker} stopped")  # the signal returns before
            yield
        finally:
            os.kill(process.pid, signal.SIGCONT)

    def have_control(self, broker: int) -> None:
        """Has brokers stand for election until this one is controller."""

        def elected() -> bool:
            controller = self.controller()
            if controller not in (broker, -1):
                self.store.delete("/controller")
            return controller == broker

        self.until(elected, f"{broker} is controller")
        self.wait_until_all_there()

    def tool(self, kind: str, *arguments: str) -> str:
        """What one of Apache Kafka's command line tools prints; it must end well."""
        done = subprocess.run(
            [*old_java(self.directory / "tools", "-Xmx256m"), kind, "--bootstrap-server", self.bootstrap, *arguments],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def said(self) -> str:
        """The ends of all logs, for a failure's report."""
        return "\n".join([tail(self.ours.stderr_file), *(node.said() for node in self.theirs.values())])


def _is_stopped(pid: int) -> bool:
    """Whether no thread of a process runs any more."""
    try:
        found = [each.read_text() for each in Path(f"/proc/{pid}/task").glob("*/stat")]
    except OSError:  # a thread has ended
        return False
    return all(each.rpartition(")")[2].split()[0] in "Tt" for each in found)


def _names(admin: AdminClient, brokers: set[int]) -> bool:
    try:
        return set(admin.list_topics(timeout=10).brokers) == brokers
    except KafkaException:  # a broker that starts has no answer yet, or half of one
        return False
