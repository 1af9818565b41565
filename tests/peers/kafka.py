"""Apache Kafka itself, as a peer of the tests: fetched with Maven, run as one KRaft node on loopback.

    missing_tools()                 why there can be no peer here, or None
    jars()                          the directory of Kafka's jars, downloaded once
    run_kafka(directory)            a running broker, as a context manager that yields its bootstrap address
    run_tool("kafka.tools.X", ...)  one of Kafka's own command line tools

The jars are kept in `HEADRACE_PEERS_CACHE`, or `~/.cache/headrace-peers`.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.eventually import WITHIN_SECONDS
from tests.harness import answers_api_versions, eventually_serves, free_ports, stop_process, tail
from tests.peers.cache import build_once

VERSION = "4.3.1"
HERE = Path(__file__).parent

QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""No optimising compiler: tests end before it pays."""

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"

SHARED_SETTINGS = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "3",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.assignor.offload.enable": "false",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "200",
    "group.share.assignment.interval.ms": "0",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
"""Settings that have the same meaning for headrace. A group's heartbeat is answered with the new assignment at once."""

PROPERTIES = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:{controller_port}
log.dirs={directory}/log
log.initial.task.delay.ms=200
log.retention.check.interval.ms=86400000
"""
"""Checkpoints, retention and the cleaner begin at once: half a minute after the start otherwise. Retention is not
checked again: see `tests.harness.KEEPS_OLD_RECORDS`."""


def missing_tools() -> str | None:
    """Why Apache Kafka cannot run on this machine; None when it can."""
    missing = [tool for tool in ("java", "mvn") if shutil.which(tool) is None]
    return f"Apache Kafka needs {' and '.join(missing)}" if missing else None


def jars(version: str = VERSION) -> Path:
    """The directory that holds Apache Kafka's jars; the first caller downloads them, others wait for it."""
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime"]
    maven = ["mvn", "-q", "-B", "-f", str(HERE / "pom.xml"), f"-Dkafka.version={version}", *goal]
    home = build_once(f"kafka-{version}", lambda home: [[*maven, f"-DoutputDirectory={home / 'lib'}"]])
    return home / "lib"


@contextmanager
def run_kafka(
    directory: Path,
    *,
    is_kept: bool = True,
    settings: Mapping[str, str] = SHARED_SETTINGS,
    options: Sequence[str] | None = None,
    listener: str | None = None,
) -> Iterator[str]:
    """One Apache Kafka node with its data below `directory`; yields "127.0.0.1:PORT" and ends it afterwards.

    `listener`: a further one, such as `SASL_PLAINTEXT://127.0.0.1:PORT`, whose protocol has the listener's name.

    `is_kept`: its files are read later, so it stops cleanly, which takes long with hundreds of partitions. `options` of
    its JVM are by default those of `kafka_classes`.
    """
    shared = shared_classes() if options is None else options
    port, controller_port = free_ports(2)
    directory.mkdir(parents=True, exist_ok=True)
    properties = directory / "server.properties"
    text = properties_of(port, controller_port, directory, settings)
    if listener is not None:  # of a name that is given twice, the last value counts
        text += f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port},{listener}\n"
        text += f"advertised.listeners=PLAINTEXT://127.0.0.1:{port},{listener}\n"
        name = listener.partition(":")[0]
        text += f"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,{name}:{name}\n"
    properties.write_text(text)
    tool = ("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties))
    _run([*java_command(directory, "-Xmx256m", *QUICK_START), *tool], timeout=WITHIN_SECONDS)
    with (directory / "stdout.log").open("wb") as output:
        process = subprocess.Popen(
            [*java_command(directory, "-Xms512m", "-Xmx512m", *QUICK_START, *shared), "kafka.Kafka", str(properties)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        _wait_until_it_answers(process, port, directory)
        yield f"127.0.0.1:{port}"
    finally:
        if not is_kept:
            process.kill()
        stop_process(process)


def properties_of(
    port: int, controller_port: int, directory: Path, settings: Mapping[str, str] = SHARED_SETTINGS
) -> str:
    """The text of a node's server.properties; {port} in a setting becomes the port."""
    ports = {"{port}": str(port), "{controller_port}": str(controller_port)}
    shared = ""
    for key, value in settings.items():
        for placeholder, number in ports.items():
            value = value.replace(placeholder, number)
        shared += f"{key}={value}\n"
    return PROPERTIES.format(port=port, controller_port=controller_port, directory=directory) + shared


def run_tool(
    main_class: str, *arguments: str, logs: Path, timeout: float = WITHIN_SECONDS, with_stderr: bool = False
) -> str:
    """What one of Kafka's command line tools prints on stdout, and on stderr behind it when that is asked for."""
    command = [*java_command(logs, "-Xmx256m", *QUICK_START, *shared_classes()), main_class, *arguments]
    return _run(command, timeout=timeout, with_stderr=with_stderr)


def java_command(logs: Path, *options: str, more_jars: Sequence[Path] = ()) -> list[str]:
    """The start of a command line that runs a class (or a source file) with Kafka's jars; its log goes to `logs`.

    `more_jars` are directories of other jars.
    """
    logging = [f"-Dkafka.logs.dir={logs}", f"-Dlog4j2.configurationFile={HERE / 'log4j2.properties'}"]
    path = os.pathsep.join(f"{directory}/*" for directory in (jars(), *more_jars))
    return ["java", "-Djava.awt.headless=true", *options, *logging, "-cp", path]


def shared_classes() -> Sequence[str]:
    """Options by which a JVM with these jars starts faster."""
    from tests.peers import kafka_classes  # which runs a broker to make them

    return kafka_classes.options()


def _run(command: list[str], *, timeout: float, with_stderr: bool = False) -> str:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout + done.stderr if with_stderr else done.stdout


def _wait_until_it_answers(process: subprocess.Popen[bytes], port: int, directory: Path) -> None:
    eventually_serves(
        process,
        lambda: answers_api_versions(port),
        f"Apache Kafka on port {port}",
        log=lambda: tail(directory / "stdout.log") + tail(directory / "broker.log"),
    )
