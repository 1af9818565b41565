"""Measures our high-level consumer over ZooKeeper beside Kafka 0.8.2's, in turns, against one headrace broker.

    python benchmarks/client/zookeeper_consumer.py [--rounds 3] [--records 1500000] [--json PATH]

Each consumer is a process with default settings and one stream, and reads a topic of four partitions with values of
100 B from its start. One topic is stored in format 2, as topics are by default, which the broker converts for 0.8.2;
the other in format 0, which both receive as it is. All processes share the machine's cores, so only ratios within a
round are meaningful; the table has the medians of the rounds' ratios, and their spread. `start` is the time from the
first call to the first record, within a running process. CPU is the consumer's. Needs Java, Maven and the ZooKeeper of
pyspark. Writes `zookeeper_consumer.json` beside this file (or to --json PATH).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from itertools import islice
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))

from headrace.client import Admin, ConnectorSettings, ConsumerConnector, NewTopic, Producer, ProducerSettings

RESULTS = Path(__file__).with_suffix(".json")
SOURCE = Path(__file__).with_name("HighLevelRate.java")
PARTITIONS = 4
VALUE_BYTES = 100
RUN_SECONDS = 300
FORMATS = {"format 2": "2.8", "format 0": "0.9.0"}


class Run(NamedTuple):
    """The result of one process."""

    start_s: float
    records_per_s: float
    cpu_us_per_record: float


def read(zookeeper: str, group: str, topic: str, count: int) -> None:
    """What HighLevelRate.java does."""
    begun = time.perf_counter()
    with ConsumerConnector(zookeeper, group, ConnectorSettings(auto_offset_reset="smallest")) as connector:
        stream = connector.create_message_streams({topic: 1})[topic][0]
        size = len(next(stream).value or b"")
        first, cpu = time.perf_counter(), time.process_time()
        for record in islice(stream, count - 1):
            size += len(record.value or b"")
        last = time.perf_counter()
        print(first - begun, last - first, time.process_time() - cpu, size)


def measured(command: list[str], zookeeper: str, topic: str, count: int) -> Run:
    done = subprocess.run(
        [*command, zookeeper, uuid.uuid4().hex, topic, str(count)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    start, seconds, cpu, size = map(float, done.stdout.split())
    assert size == count * VALUE_BYTES
    return Run(start, count / seconds, cpu / count * 1e6)


def scala_command(directory: Path) -> list[str]:
    from tests.conformance.old.old_programs import OldJavaProgram

    old = OldJavaProgram("0.8.2.2").command()
    jars = old[old.index("-cp") + 1].split(os.pathsep)[1]
    subprocess.run(["javac", "-nowarn", "-d", str(directory), "-cp", jars, str(SOURCE)], check=True)
    return ["java", "-Xmx512m", "-cp", f"{directory}{os.pathsep}{jars}", "HighLevelRate"]


def write(bootstrap: str, count: int) -> dict[str, str]:
    """The topics by format."""
    topics = {}
    plain = ProducerSettings(idempotence=False)  # format 0 has no sequence numbers
    with Admin(bootstrap) as admin, Producer(bootstrap, plain) as producer:
        for name, version in FORMATS.items():
            topics[name] = topic = f"bench-{uuid.uuid4().hex}"
            admin.create_topics([NewTopic(topic, PARTITIONS, 1, {"message.format.version": version})])
            value = bytes(VALUE_BYTES)
            for number in range(count):
                producer.send(topic, value, partition=number % PARTITIONS)
            producer.flush()
            ends = admin.watermarks(admin.partitions_of(topic)).values()
            assert sum(end for _, end in ends) == count
    return topics


def run(zookeeper: str, bootstrap: str, directory: Path, arguments: argparse.Namespace) -> None:
    commands = {"scala 0.8.2.2": scala_command(directory), "headrace": [sys.executable, __file__, "--read"]}
    topics = write(bootstrap, arguments.records)
    load_before = os.getloadavg()[0]
    figures: dict[str, dict[str, object]] = {}
    for stored, topic in topics.items():
        rounds = [
            {name: measured(command, zookeeper, topic, arguments.records) for name, command in commands.items()}
            for _ in range(arguments.rounds + 1)
        ][1:]  # the first warms the broker up
        ratios = sorted(each["headrace"].records_per_s / each["scala 0.8.2.2"].records_per_s for each in rounds)
        figures[stored] = {
            "ratio": round(statistics.median(ratios), 2),
            "ratio_spread": [round(ratios[0], 2), round(ratios[-1], 2)],
        }
        print(f"\n{stored}, {arguments.records:,} records of {VALUE_BYTES} B, medians of {arguments.rounds} rounds")
        for name in commands:
            medians = Run(*(statistics.median(each[name][field] for each in rounds) for field in range(3)))
            figures[stored][name] = {key: round(value, 3) for key, value in medians._asdict().items()}
            rate, cpu = (
                f"{medians.records_per_s:>12,.0f} records/s",
                f"{medians.cpu_us_per_record:>8.2f} us CPU a record",
            )
            print(f"  {name:<16}{rate}{cpu}{medians.start_s:>8.2f} s to the first")
        print(f"  ratio {figures[stored]['ratio']} {figures[stored]['ratio_spread']}")
    about = {
        "rounds": arguments.rounds,
        "records": arguments.records,
        "cores": os.cpu_count(),
        "load_before_and_after": [round(load_before, 1), round(os.getloadavg()[0], 1)],
        "python": sys.version.split()[0],
    }
    arguments.json.write_text(json.dumps({"about": about, "figures": figures}, indent=1) + "\n")


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=1_500_000)
    parser.add_argument("--json", type=Path, default=RESULTS, help="where the figures go")
    arguments = parser.parse_args()
    from tests.conformance.programs import missing_tools
    from tests.harness import HeadraceServer
    from tests.zookeeper_server import ZooKeeperServer
    from tests.zookeeper_server import missing_tools as missing_zookeeper

    if reason := missing_tools(("java", "javac", "mvn")) or missing_zookeeper():
        print(f"not measured: {reason}")
        return
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with ZooKeeperServer(directory / "zookeeper") as zookeeper:
            arguments_of_server = ("--broker-id", "1", "--zookeeper", zookeeper.address)
            server = HeadraceServer(directory / "data", {}, arguments_of_server).start()
            try:
                run(zookeeper.address, server.bootstrap, directory, arguments)
            finally:
                server.stop()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--read"]:
        read(sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
    else:
        main()
