"""Three nodes of Apache Kafka (KRaft, each broker and controller), replication 3, minimum ISR 2, on loopback.

with KafkaCluster(directory) as kafka:
    kafka.bootstrap; kafka.kill(1); kafka.start(1)
"""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tests.harness import answers_api_versions, eventually_serves, free_ports, stop_process, tail
from tests.peers.kafka import CLUSTER_ID, java_command, run_tool

NODES = (1, 2, 3)
HEAP = "512m"
PROPERTIES = """\
process.roles=broker,controller
node.id={node}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
controller.quorum.voters={voters}
log.dirs={directory}/log
num.partitions=3
default.replication.factor=3
min.insync.replicas=2
offsets.topic.replication.factor=3
offsets.topic.num.partitions=3
transaction.state.log.replication.factor=3
transaction.state.log.min.isr=2
transaction.state.log.num.partitions=3
share.coordinator.state.topic.replication.factor=3
share.coordinator.state.topic.min.isr=2
share.coordinator.state.topic.num.partitions=3
group.initial.rebalance.delay.ms=0
"""


class KafkaCluster:
    """Started when entered; every process is ended by its pid."""

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        """`settings`: of all nodes, beside those above."""
        self.directory = directory
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        ports = free_ports(2 * len(NODES))
        self.ports = dict(zip(NODES, ports[: len(NODES)], strict=True))
        controllers = dict(zip(NODES, ports[len(NODES) :], strict=True))
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in controllers.items())
        for node in NODES:
            home = directory / f"kafka-{node}"
            home.mkdir(parents=True)
            properties = home / "server.properties"
            text = PROPERTIES.format(
                node=node, port=self.ports[node], controller_port=controllers[node], voters=voters, directory=home
            )
            more = "".join(f"{name}={value}\n" for name, value in (settings or {}).items())
            properties.write_text(text + more)
            run_tool("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties), logs=home)

    @property
    def bootstrap(self) -> str:
        """All nodes' addresses."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def __enter__(self) -> Self:
        try:
            for node in NODES:
                self.launch(node)
            for node in NODES:
                self._wait(node)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            stop_process(process)

    def launch(self, node: int) -> None:
        """Starts a node, and does not wait for it."""
        home = self.directory / f"kafka-{node}"
        command = [*java_command(home, f"-Xms{HEAP}", f"-Xmx{HEAP}"), "kafka.Kafka", str(home / "server.properties")]
        with (home / "stdout.log").open("ab") as output:
            self.processes[node] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )

    def start(self, node: int) -> None:
        """Starts a node again."""
        self.launch(node)
        self._wait(node)

    def kill(self, node: int) -> None:
        """SIGKILL."""
        self.processes[node].kill()
        self.processes[node].wait()

    def _wait(self, node: int) -> None:
        home = self.directory / f"kafka-{node}"
        eventually_serves(
            self.processes[node],
            lambda: answers_api_versions(self.ports[node]),
            f"node {node}",
            log=lambda: tail(home / "stdout.log") + tail(home / "broker.log"),
        )
