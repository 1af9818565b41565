"""Measures replicated produces (3 brokers, min.insync.replicas=2, acks=all, 1 KiB): headrace, the floor, Apache Kafka.

ProducerPerformance runs tuned (batch.size=262144, linger.ms=5) and with default settings, to three partitions. The
floor (`replicated_floor.c`) is three processes that do the least there is to do: its ratio to Apache Kafka says what
any broker can reach with this client. All clusters run at the same time, but receive requests in turns, after `--warm`
seconds of load each, the floor after five at most: code that the JVM has not compiled yet would flatter us. Reports
medians of the rounds, and the ratio of each pair. CPU seconds, the kernel's part of them, and resident memory are those
of the three brokers together; headrace's ZooKeeper is reported separately. Needs Java and Maven, and a C compiler for
the floor.

    python benchmarks/cluster/replicated.py [--rounds 5] [--scale 1.0] [--warm 60] [--works tuned,default] [--json]
"""

import argparse
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.cluster import replicated_floor, replicated_requests
from benchmarks.cluster.replicated_requests import FLOOR, KAFKA, RETENTION, SHORT_LIVED
from benchmarks.paired import Summary, report, summarise
from benchmarks.request_load import cpu_seconds, kernel_seconds
from headrace.client.operations.admin import Admin, NewTopic
from tests.cluster.local_cluster import LocalCluster
from tests.peers import kafka
from tests.peers.kafka_cluster import KafkaCluster
from tests.zookeeper_server import ZooKeeperServer

WORKS = {
    "tuned": (1_000_000, ["batch.size=262144", "linger.ms=5"]),
    "default": (300_000, []),
}
WARM_UP = {"tuned": 300_000, "default": 100_000}
"""Records that a producer sends first, which do not count for its rate: its own JVM has to get warm, too."""
_PRODUCED = re.compile(r"([\d.]+) records/sec.*?([\d.]+) ms avg latency.*?(\d+) ms 99th")


class Run(NamedTuple):
    """The result of one run of the producer."""

    records_per_s: float
    p99_ms: float
    brokers_cpu_s: float
    """For all records, those of the warm-up too."""
    brokers_kernel_s: float
    """The kernel's part of it."""
    producer_cpu_s: float
    """The same of the producer's JVM, from the launch on."""


class Memory(NamedTuple):
    """Resident memory of all brokers of a cluster."""

    idle_mib: float
    loaded_mib: float


class Cluster(NamedTuple):
    """A measured cluster."""

    name: str
    bootstrap: str
    brokers: Sequence[psutil.Process]


def resident_mib(processes: Sequence[psutil.Process]) -> float:
    """The resident memory of all brokers."""
    return round(sum(each.memory_info().rss for each in processes) / (1 << 20), 1)


def produce(cluster: Cluster, topic: str, work: str, count: int) -> Run:
    """One run of ProducerPerformance, which sends so many records when it is warm."""
    warm_up, (_, properties) = WARM_UP[work], WORKS[work]
    before = [cpu_seconds(cluster.brokers), kernel_seconds(cluster.brokers), _children_cpu_s()]
    with tempfile.TemporaryDirectory() as logs:
        command = [
            *kafka.java_command(Path(logs), "-Xmx512m"), "org.apache.kafka.tools.ProducerPerformance",
            "--topic", topic, "--num-records", str(warm_up + count), "--warmup-records", str(warm_up),
            "--record-size", "1024", "--throughput", "-1",
            "--producer-props", f"bootstrap.servers={cluster.bootstrap}", "acks=all", *properties,
        ]  # fmt: skip
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    rate, _, p99 = _PRODUCED.findall(done.stdout)[-1]
    after = [cpu_seconds(cluster.brokers), kernel_seconds(cluster.brokers), _children_cpu_s()]
    return Run(float(rate), float(p99), *(b - a for a, b in zip(before, after, strict=True)))


def _children_cpu_s() -> float:
    """The CPU seconds of the children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def warm(cluster: Cluster, seconds: float, works: Sequence[str]) -> None:
    """Loads a cluster for so many seconds with requests of one small record, which leave little to write back to the
    disk, and then with a short run of each kind of work."""
    one_record = replicated_requests.BATCHES["100 B"]
    requests = replicated_requests.measured(cluster.name, cluster.bootstrap, [each.pid for each in cluster.brokers])
    replicated_requests.run_round(requests, 10, replicated_requests.warm_s(cluster.name, seconds), *one_record)
    for name in works:
        produce(cluster, f"bench-{name}", name, 10_000)


@contextmanager
def both_clusters() -> Iterator[tuple[tuple[Cluster, Cluster], psutil.Process]]:
    """Three brokers of headrace and three of Apache Kafka at the same time, and the process of headrace's ZooKeeper."""
    with (
        tempfile.TemporaryDirectory() as directory,
        ZooKeeperServer(Path(directory) / "zookeeper") as zookeeper,
        LocalCluster(Path(directory) / "headrace", zookeeper.address, settings=RETENTION) as ours,
        KafkaCluster(Path(directory), RETENTION) as theirs,
    ):
        ours.wait_until_ready()
        assert zookeeper.process is not None
        yield (
            (
                Cluster("headrace", ours.bootstrap, [psutil.Process(ours.pid(each)) for each in ours.brokers]),
                Cluster(KAFKA, theirs.bootstrap, [psutil.Process(each.pid) for each in theirs.processes.values()]),
            ),
            psutil.Process(zookeeper.process.pid),
        )


@contextmanager
def all_clusters() -> Iterator[tuple[list[Cluster], psutil.Process]]:
    """The same with the floor between them, if there is a compiler."""
    with ExitStack() as stack:
        (ours, theirs), zookeeper = stack.enter_context(both_clusters())
        found = [ours, theirs]
        if reason := replicated_floor.missing_tools():
            print(f"left out: {reason}", file=sys.stderr)
        else:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            floor = stack.enter_context(replicated_floor.ReplicatedFloor(directory))
            found.insert(1, Cluster(FLOOR, floor.bootstrap, [psutil.Process(each.pid) for each in floor.processes]))
        yield found, zookeeper


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="of the record counts")
    parser.add_argument("--warm", type=float, default=60, help="seconds of load on each cluster before the rounds")
    parser.add_argument("--works", default=",".join(WORKS))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if reason := kafka.missing_tools():
        print(f"not measured: {reason}")
        return
    works = options.works.split(",")
    results: dict[str, Summary] = {}
    with all_clusters() as (clusters, zookeeper):
        idle = [resident_mib(each.brokers) for each in clusters]
        for each in clusters:
            if each.name != FLOOR:
                with Admin(each.bootstrap) as admin:
                    admin.create_topics([NewTopic(f"bench-{name}", 3, 3, SHORT_LIVED) for name in WORKS])
            warm(each, options.warm, works)
        for name in works:
            count, _ = WORKS[name]
            rows: dict[str, list[Run]] = {each.name: [] for each in clusters}
            for _ in range(options.rounds):
                for each in clusters:
                    rows[each.name].append(produce(each, f"bench-{name}", name, int(count * options.scale)))
            results[name] = summarise(rows, [(FLOOR, KAFKA)])
        results["resident memory of three brokers"] = summarise(
            {
                each.name: [Memory(before, resident_mib(each.brokers))]
                for each, before in zip(clusters, idle, strict=True)
                if each.name != FLOOR
            }
        )
        if not options.json:
            print(f"headrace's ZooKeeper has {resident_mib([zookeeper])} MiB")
    report(results, as_json=options.json)


if __name__ == "__main__":
    main()
