"""A cluster on this machine: `headrace serve` processes on one ZooKeeper ensemble.

    with LocalCluster(directory, zookeeper="127.0.0.1:2181") as cluster:
        cluster.wait_until_ready()
        cluster.brokers[1].kill(); cluster.brokers[1].restart()

With `proxies` each broker is reached by the others through a `TcpProxy` of its own, so that `cut(1, 2)` parts two
brokers while clients reach both.
"""

import os
import signal
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from headrace.client.core.metadata import ClusterView, PartitionInfo
from headrace.client.core.settings import ClientSettings
from headrace.client.operations.admin import Admin, NewTopic
from headrace.client.operations.health import Health, health_of
from headrace.errors import KafkaError
from headrace.protocol import messages as m
from headrace.types import TopicPartition
from tests.asker import Asker
from tests.cluster.tcp_proxy import TcpProxy
from tests.eventually import eventually
from tests.harness import HeadraceServer, free_ports, tail

Wanted = Callable[[ClusterView, Health], bool]
SETTINGS = {
    "num.partitions": "3",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
}


class LocalCluster:
    """Brokers 1, 2, 3 … on one ensemble."""

    def __init__(
        self,
        directory: Path,
        zookeeper: str,
        *,
        brokers: int = 3,
        settings: Mapping[str, str] | None = None,
        proxies: bool = False,
        ports: Sequence[int] = (),
        config: Path | None = None,
    ) -> None:
        """`ports`: where the brokers listen, which then are as many; free ones when empty. `config`: a properties file
        for all, whose listeners are CLIENT, PEER and CONTROL."""
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.zookeeper = zookeeper
        self.brokers: dict[int, HeadraceServer] = {}
        self.proxies: dict[int, TcpProxy] = {}
        free = free_ports(brokers * 3)
        for number, port in enumerate(ports or free[:brokers], 1):
            own = {**SETTINGS, **(settings or {})}
            peer_port, proxy_port = free[brokers + number - 1], free[2 * brokers + number - 1]
            listen = f"127.0.0.1:{port}"
            if proxies or config:
                listen = f"CLIENT://127.0.0.1:{port},PEER://127.0.0.1:{peer_port}"
            if config:
                listen += f",CONTROL://127.0.0.1:{proxy_port}"
            if proxies:
                own["advertised.listeners"] = f"CLIENT://127.0.0.1:{port},PEER://127.0.0.1:{proxy_port}"
                own["listener.security.protocol.map"] = "CLIENT:PLAINTEXT,PEER:PLAINTEXT"
                own["inter.broker.listener.name"] = "PEER"
                self.proxies[number] = TcpProxy(proxy_port, peer_port)
            arguments = ["--broker-id", str(number), "--zookeeper", zookeeper]
            if config:
                arguments += ["--config", str(config)]
            self.brokers[number] = HeadraceServer(directory / f"broker-{number}", own, arguments, listen)

    @property
    def bootstrap(self) -> str:
        """All brokers' addresses."""
        return ",".join(server.bootstrap for server in self.brokers.values())

    def __enter__(self) -> "LocalCluster":
        try:
            for proxy in self.proxies.values():
                proxy.start()
            for server in self.brokers.values():
                server.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends every process, the paused ones too."""
        for server in self.brokers.values():
            if server.process is not None and server.process.poll() is None:
                server.process.send_signal(signal.SIGCONT)
                server.process.terminate()
        for server in self.brokers.values():
            server.stop()
        for proxy in self.proxies.values():
            proxy.stop()

    def make_whole(self) -> None:
        """Starts what is not running, lets go on what is paused, and waits until every replica is in sync."""
        for number, server in self.brokers.items():
            if server.process is None or server.process.poll() is not None:
                server.restart()
            else:
                self.resume(number)
        self.wait_until_ready()

    # faults

    def pause(self, broker: int) -> None:
        """SIGSTOP: the process is there and does nothing."""
        os.kill(self.pid(broker), signal.SIGSTOP)

    def resume(self, broker: int) -> None:
        """SIGCONT."""
        os.kill(self.pid(broker), signal.SIGCONT)

    def cut(self, one: int, other: int) -> None:
        """Lets two brokers hear nothing of each other."""
        self.proxies[one].cut(other)
        self.proxies[other].cut(one)

    def heal(self, one: int, other: int) -> None:
        """Lets them hear each other again."""
        self.proxies[one].heal(other)
        self.proxies[other].heal(one)

    # what there is to see

    def pid(self, broker: int) -> int:
        """The process of a broker that was started."""
        process = self.brokers[broker].process
        assert process is not None
        return process.pid

    @contextmanager
    def admin(self) -> Iterator[Admin]:
        """An admin client that asks whoever answers."""
        settings = ClientSettings(request_timeout_ms=5_000, connect_timeout_ms=1_000, api_timeout_ms=30_000)
        with Admin(self.bootstrap, settings) as admin:
            yield admin

    def view(self) -> ClusterView:
        """Metadata of everything, asked anew."""
        with self.admin() as admin:
            return admin.describe_cluster()

    def leader(self, topic: str, partition: int = 0) -> int:
        """Who leads; waits until somebody does."""
        view = self._when(lambda view, _: _leader(view, topic, partition) >= 0, f"a leader of {topic}-{partition}")
        return _leader(view, topic, partition)

    def topic(self, name: str) -> tuple[PartitionInfo, ...]:
        """A topic's partitions, as whoever answers knows them; waits for a broker that knows the topic."""
        return self._when(lambda view, _: name in view.topics, f"topic {name}").topics[name].partitions

    def controller(self) -> int:
        """Who is the controller; waits until somebody is."""
        return self._when(lambda view, _: view.controller in view.brokers, "a controller").controller

    def follower(self, topic: str, partition: int = 0) -> int:
        """A broker that is in sync and does not lead."""
        view = self._when(lambda view, health: health.is_ready, "every replica in sync")
        info = view.topics[topic].partitions[partition]
        return next(each for each in sorted(info.isr) if each != info.leader)

    def wait_until_ready(self, brokers: int | None = None) -> ClusterView:
        """Returns once that many brokers (all when None) are there and every replica is in sync."""
        wanted = len(self.brokers) if brokers is None else brokers
        view = self._when(
            lambda view, health: len(view.brokers) == wanted and health.is_ready, f"{wanted} brokers, all in sync"
        )
        eventually(
            lambda: all(self.brokers_known_by(number) == set(view.brokers) for number in view.brokers),
            "each broker to know all brokers",
            state=self.logs,
        )
        return view

    def brokers_known_by(self, broker: int) -> set[int]:
        """Whom a broker names that is asked itself: nobody, as long as no controller has told it anything."""
        with Asker(self.brokers[broker].bootstrap) as asker:
            answer = asker.ask(m.MetadataRequest(topics=[]), 4)
        return {each.node_id for each in answer.brokers} if answer.controller_id >= 0 else set()

    def wait_until_present(self, brokers: Collection[int]) -> ClusterView:
        """Returns once these brokers are there, and no other."""
        return self._when(lambda view, _: set(view.brokers) == set(brokers), f"brokers {sorted(brokers)}")

    def create_topic(self, name: str, partitions: int = 3, replicas: int = 3, **configs: str) -> None:
        """Makes a topic; `_` in a setting's name stands for a dot."""
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        with self.admin() as admin:
            admin.create_topics([NewTopic(name, partitions, replicas, settings)])

    def partitions(self, topic: str) -> list[TopicPartition]:
        """The topic's partitions."""
        with self.admin() as admin:
            return admin.partitions_of(topic)

    def logs(self) -> str:
        """The ends of what all brokers logged, for a failure's report."""
        return "\n".join(
            f"---- broker {number} ----\n{tail(each.stderr_file)}" for number, each in self.brokers.items()
        )

    def _when(self, is_so: Wanted, what: str) -> ClusterView:
        seen: object = "nobody answered"

        def look() -> ClusterView | None:
            nonlocal seen
            try:
                view = self.view()
                health = health_of(view, {})
                seen = f"controller {view.controller}, brokers {sorted(view.brokers)}, {health}"
                return view if is_so(view, health) else None
            except KafkaError as error:
                seen = error
                return None

        found = eventually(look, what, every_s=0.1, state=lambda: f"last: {seen}\n{self.logs()}")
        assert found is not None
        return found


def _leader(view: ClusterView, topic: str, partition: int) -> int:
    found = view.topics.get(topic)
    if found is None or partition >= len(found.partitions):
        return -1
    info = found.partitions[partition]
    return info.leader if info.leader in view.brokers else -1
