"""Measures replicated produce requests (3 brokers, min.insync.replicas=2, acks=all): headrace, the floor, Apache Kafka.

Raw connections to the leaders of three partitions have one request in flight each, of one batch: of one record of 100
bytes, or of 15 records of 1 KiB, which is what a default producer sends under load. The floor (`replicated_floor.c`) is
three processes that do the least there is to do for it: its ratio to Apache Kafka says what any broker can reach here.
All clusters run at the same time, but receive requests in turns, after `--warm` seconds of load each, the floor after
five at most. The client is a single thread. Reports medians of the rounds with their spread, and the ratios of the
pairs; CPU is that of the three brokers, and the kernel's part of it. The floor needs a C compiler, Apache Kafka Java
and Maven; what is missing is left out.

    python benchmarks/cluster/replicated_requests.py [--rounds 5] [--seconds 3] [--warm 60] [--connections 1,10,50]
        [--batches "100 B,15 KiB"] [--json]
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.cluster import replicated_floor
from benchmarks.paired import report, summarise
from benchmarks.request_load import cpu_seconds, kernel_seconds, load, produce_frame
from headrace.client.operations.admin import Admin, NewTopic
from tests.cluster.local_cluster import LocalCluster
from tests.peers import kafka
from tests.peers.kafka_cluster import KafkaCluster
from tests.zookeeper_server import ZooKeeperServer

TOPIC, PARTITIONS, REPLICAS = "replicated-requests", 3, 3
FLOOR, KAFKA = "floor", "Apache Kafka"
SHORT_LIVED = {"segment.bytes": "16777216", "retention.bytes": "16777216", "file.delete.delay.ms": "1000"}
"""Of the topics: else a minute of load fills the page cache, and all peers wait for the disk from then on."""
RETENTION = {"log.retention.check.interval.ms": "1000", "log.initial.task.delay.ms": "1000"}
"""Of the brokers."""
BATCHES = {"100 B": (1, 100), "15 KiB": (15, 1024)}
"""The number of records in a batch, and their size."""


class Round(NamedTuple):
    """The result of one round."""

    requests_per_s: float
    p50_ms: float
    p99_ms: float
    brokers_cpu_us_per_request: float
    brokers_kernel_us_per_request: float
    """The kernel's part of it."""


class Cluster(NamedTuple):
    """A measured cluster, with the port of each partition's leader."""

    name: str
    leaders: Sequence[int]
    brokers: Sequence[psutil.Process]


def run_round(cluster: Cluster, connections: int, seconds: float, records: int, record_bytes: int) -> Round:
    """Loads a cluster for `seconds`."""
    targets = [
        (port, produce_frame(TOPIC, index, records, record_bytes, acks=-1))
        for index, port in enumerate(cluster.leaders)
    ]
    kernel_s: list[float] = []

    def cpu_s() -> float:
        kernel_s.append(kernel_seconds(cluster.brokers))
        return cpu_seconds(cluster.brokers)

    found = load(targets, connections, seconds, cpu_s)
    us_per_s = 1e6 / (found.requests_per_s * seconds)
    return Round(*found[:3], us_per_s * found.broker_cpu_s, us_per_s * (kernel_s[-1] - kernel_s[0]))


def measured(name: str, bootstrap: str, brokers: Sequence[int]) -> Cluster:
    """Creates the topic, one of whose partitions is led by each broker. The floor leads those of any topic so."""
    if name == FLOOR:
        leaders = [int(each.rpartition(":")[2]) for each in bootstrap.split(",")]
    else:
        with Admin(bootstrap) as admin:
            admin.create_topics([NewTopic(TOPIC, PARTITIONS, REPLICAS, SHORT_LIVED)])
            addresses, topic = admin.describe_cluster().brokers, admin.describe_topic(TOPIC)
        leaders = [addresses[topic.partitions[index].leader].port for index in range(PARTITIONS)]
    return Cluster(name, leaders, [psutil.Process(pid) for pid in brokers])


def warm_s(name: str, seconds: float) -> float:
    """How long a cluster gets load first, if so long is wanted."""
    return min(seconds, replicated_floor.WARM_S) if name == FLOOR else seconds


@contextmanager
def clusters() -> Iterator[list[Cluster]]:
    """Three brokers of headrace, and three of the floor and of Apache Kafka, where these can run."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        zookeeper = stack.enter_context(ZooKeeperServer(directory / "zookeeper"))
        ours = stack.enter_context(LocalCluster(directory / "headrace", zookeeper.address, settings=RETENTION))
        ours.wait_until_ready()
        found = [measured("headrace", ours.bootstrap, [ours.pid(each) for each in ours.brokers])]
        if reason := replicated_floor.missing_tools():
            print(f"left out: {reason}", file=sys.stderr)
        else:
            floor = stack.enter_context(replicated_floor.ReplicatedFloor(directory / "floor"))
            found.append(measured(FLOOR, floor.bootstrap, [each.pid for each in floor.processes]))
        if kafka.missing_tools() is None:
            theirs = stack.enter_context(KafkaCluster(directory, RETENTION))
            pids = [each.pid for each in theirs.processes.values()]
            found.append(measured(KAFKA, theirs.bootstrap, pids))
        yield found


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--warm", type=float, default=60, help="seconds of load on each cluster before the rounds")
    parser.add_argument("--connections", default="1,10,50")
    parser.add_argument("--batches", default=",".join(BATCHES))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    works = {name: BATCHES[name] for name in options.batches.split(",")}
    results = {}
    with clusters() as found:
        for each in found:
            for batch in works.values():
                run_round(each, 10, warm_s(each.name, options.warm) / len(works), *batch)
        for name, batch in works.items():
            for connections in map(int, options.connections.split(",")):
                rounds: dict[str, list[Round]] = {each.name: [] for each in found}
                for _ in range(options.rounds):
                    for each in found:
                        rounds[each.name].append(run_round(each, connections, options.seconds, *batch))
                work = f"{name}, {connections} connection{'s' if connections > 1 else ''}"
                results[work] = summarise(rounds, [(FLOOR, KAFKA)])
    report(results, as_json=options.json)


if __name__ == "__main__":
    main()
