"""An Apache Kafka node of a test that is stopped, killed and started again on the same files: 4.3 with KRaft, or 3.9
with a ZooKeeper, which lives in the same process class and from the same jars.

    with ZooKeeper(directory) as zookeeper:
        with KafkaNode(directory, zookeeper=zookeeper.chroot("one")) as node:
            node.kill(); node.start(); node.stop()
"""

import json
import shutil
import socket
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tests.harness import answers_api_versions, eventually_serves, free_ports, stop_process, tail, unused
from tests.peers import kafka
from tests.peers.cache import build_once

OLD = "3.9.2"
LOG4J = "log4j.rootLogger=INFO, F\nlog4j.appender.F=org.apache.log4j.FileAppender\n" + (
    "log4j.appender.F.File=${kafka.logs.dir}/broker.log\nlog4j.appender.F.layout=org.apache.log4j.PatternLayout\n"
    "log4j.appender.F.layout.ConversionPattern=[%d] %p %m (%c)%n\n"
)
COMMON = """\
broker.id=1
listeners=PLAINTEXT://127.0.0.1:{port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
log.dirs={log_dirs}
log.initial.task.delay.ms=200
zookeeper.connect={zookeeper}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=3
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=3
group.initial.rebalance.delay.ms=0
"""


def old_jars() -> Path:
    """Apache Kafka 3.9's jars, ZooKeeper's among them; the first caller downloads them."""
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime"]
    maven = ["mvn", "-q", "-B", "-f", str(kafka.HERE / "pom.xml"), f"-Dkafka.version={OLD}", *goal]
    home = build_once(f"kafka-{OLD}", lambda home: [[*maven, f"-DoutputDirectory={home / 'lib'}"]])
    for jar in (home / "lib").glob("log4j-[csa]*.jar"):  # 3.9 logs through reload4j
        jar.unlink(missing_ok=True)
    return home / "lib"


def old_classes() -> Sequence[str]:
    """Options by which a JVM with these jars starts faster."""
    from tests.peers import kafka_classes  # which runs a broker to make them

    return kafka_classes.options(OLD)


def old_java(directory: Path, *options: str, shared: Sequence[str] | None = None) -> list[str]:
    """The start of a command line that runs a class of Kafka 3.9 or its ZooKeeper.

    `shared` are by default the options of `kafka_classes`.
    """
    directory.mkdir(parents=True, exist_ok=True)
    logging = directory / "log4j.properties"
    logging.write_text(LOG4J)
    settings = [f"-Dkafka.logs.dir={directory}", f"-Dlog4j.configuration=file:{logging}"]
    fast = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Djava.awt.headless=true"]
    fast += old_classes() if shared is None else shared
    return ["java", *fast, *options, *settings, "-cp", f"{old_jars()}/*"]


def _accepts_connections(port: int) -> bool:
    socket.create_connection(("127.0.0.1", port), 1).close()
    return True


class _Process:
    """A process that writes its output to a file."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.process: subprocess.Popen[bytes] | None = None

    def launch(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / "stdout.log").open("ab") as output:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        return self.process

    def wait(self, process: subprocess.Popen[bytes], answers: Callable[[], bool], what: str) -> None:
        """Returns once it answers; stops it when it does not."""
        try:
            eventually_serves(process, answers, what, log=self.said)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """SIGTERM, and wait."""
        if self.process is not None:
            stop_process(self.process)

    def kill(self) -> None:
        """SIGKILL, and wait."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def said(self) -> str:
        """The end of its logs."""
        return tail(self.directory / "stdout.log") + tail(self.directory / "broker.log")


class ZooKeeper(_Process):
    """One ZooKeeper server on loopback."""

    def __enter__(self) -> Self:
        (port,) = free_ports(1)
        self.address = f"127.0.0.1:{port}"
        self.directory.mkdir(parents=True, exist_ok=True)
        settings = self.directory / "zoo.cfg"
        settings.write_text(
            f"tickTime=500\ndataDir={self.directory}/data\nclientPort={port}\nclientPortAddress=127.0.0.1\n"
            "admin.enableServer=false\nmaxClientCnxns=0\n"
        )
        server = "org.apache.zookeeper.server.ZooKeeperServerMain"
        process = self.launch([*old_java(self.directory, "-Xmx128m"), server, str(settings)])
        self.wait(process, lambda: _accepts_connections(port), "ZooKeeper")
        return self

    def chroot(self, name: str) -> str:
        """An address with a directory that nobody uses, nor an earlier try of the same test."""
        return f"{self.address}/{unused(name)}"

    def __exit__(self, *_: object) -> None:
        self.stop()


class KafkaNode(_Process):
    """One Apache Kafka broker, id 1: KRaft (4.3), or 3.9 when a ZooKeeper is named."""

    def __init__(
        self,
        directory: Path,
        *,
        zookeeper: str | None = None,
        log_dirs: Sequence[Path] = (),
        settings: str = "",
        options: Sequence[str] = (),
        shared: Sequence[str] | None = None,
    ) -> None:
        """`settings` may name its ports: @port@, which the tests use, @peer@ and @control@. `options` are Java's.

        `shared` are Java's too, for 3.9: by default those of `kafka_classes`.
        """
        super().__init__(directory)
        self.shared = shared
        self.options = options
        self.zookeeper = zookeeper
        self.log_dirs = list(log_dirs) or [directory / "log"]
        self.settings = settings
        self.bootstrap = ""

    def start(self) -> Self:
        """Start it, and wait until it answers."""
        port, controller_port, control_port = free_ports(3)
        self.bootstrap = f"127.0.0.1:{port}"
        self.directory.mkdir(parents=True, exist_ok=True)
        properties = self.directory / "server.properties"
        memory = ("-Xms256m", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
        if self.zookeeper is None:
            text = kafka.properties_of(port, controller_port, self.directory)
            text = text.replace(f"log.dirs={self.directory}/log\n", f"log.dirs={self._dirs()}\n")
            properties.write_text(text + self.settings)
            if not (self.log_dirs[0] / "meta.properties").exists():
                tool = ("kafka.tools.StorageTool", "format", "-t", kafka.CLUSTER_ID, "-c", str(properties))
                kafka.run_tool(*tool, logs=self.directory)
            command = kafka.java_command(self.directory, *memory, *kafka.shared_classes())
        else:
            text = COMMON.format(port=port, log_dirs=self._dirs(), zookeeper=self.zookeeper)
            own = self.settings.replace("@port@", str(port)).replace("@peer@", str(controller_port))
            own = own.replace("@control@", str(control_port))
            properties.write_text(text + own)
            command = old_java(self.directory, *memory[:2], *self.options, shared=self.shared)
        process = self.launch([*command, "kafka.Kafka", str(properties)])
        self.wait(process, lambda: answers_api_versions(port), "Apache Kafka")
        return self

    def _dirs(self) -> str:
        return ",".join(map(str, self.log_dirs))

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def end_session(store: KazooClient, broker: int) -> None:
    """Removes the ephemeral nodes of a broker that was killed, as the end of its ZooKeeper session does.

    Its session may be long then. A short one would also end whenever a busy machine holds a living broker up.
    """
    with suppress(NoNodeError):
        store.delete(f"/brokers/ids/{broker}")
    with suppress(NoNodeError):
        if json.loads(store.get("/controller")[0])["brokerid"] == broker:
            store.delete("/controller")


def copy_of(directory: Path, target: Path) -> Path:
    """A copy of a stopped node's files."""
    shutil.copytree(directory, target)
    return target
