"""Commits transactions of ten 1 KiB records with Java's client, on headrace and on Apache Kafka, in turns.

One producer with default settings commits one transaction after the other to a topic of three partitions. Both sides
run at the same time, but receive requests in turns. Reports medians of the rounds, and the ratio of each pair. CPU is
that of all brokers of a side per 1,000 commits. With `--nodes 3` each side is a cluster of three brokers that keeps
three replicas of every partition, of the transaction log too. Needs Java and Maven.

    python benchmarks/broker/transactions.py [--nodes 1] [--rounds 5] [--commits 3000]
        [--warm 500] [--json]
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.broker.small_requests import peers
from benchmarks.cluster.replicated import Cluster, both_clusters
from benchmarks.paired import report, summarise
from benchmarks.request_load import cpu_seconds
from headrace.client.operations.admin import Admin, NewTopic
from tests.peers import kafka

PROGRAM = Path(__file__).with_name("Transactions.java")
TOPIC = "transactions"
PARTITIONS = 3


class Run(NamedTuple):
    """One round of one side."""

    commits_per_s: float
    p50_ms: float
    p99_ms: float
    brokers_cpu_s_per_1000: float


def commit(side: Cluster, commits: int, warm_up: int) -> Run:
    """Run the Java producer; what it does before it is warm does not count."""
    arguments = [side.bootstrap, TOPIC, "benchmark", str(warm_up), str(commits)]
    with tempfile.TemporaryDirectory() as logs:
        command = [*kafka.java_command(Path(logs), "-Xmx256m"), str(PROGRAM), *arguments]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            if process.stdout.readline() != "warm\n":
                raise RuntimeError(f"{side.name}: the producer ended with {process.wait()}")
            before = cpu_seconds(side.brokers)
            process.stdin.write("\n")
            process.stdin.flush()
            rate, p50, p99 = map(float, process.stdout.readline().split())
            cpu_s = cpu_seconds(side.brokers) - before
    return Run(rate, p50, p99, cpu_s * 1000 / commits)


@contextmanager
def single_nodes() -> Iterator[list[Cluster]]:
    """One broker of each kind."""
    with peers() as found:
        yield [Cluster(peer.name, f"127.0.0.1:{peer.port}", [peer.process]) for peer in found]


@contextmanager
def three_nodes() -> Iterator[list[Cluster]]:
    """Three brokers of each kind."""
    with both_clusters() as (clusters, _):
        yield list(clusters)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, choices=(1, 3), default=1, help="of each side")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--commits", type=int, default=3000, help="of each round")
    parser.add_argument("--warm", type=int, default=500, help="commits before each round, which do not count")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if reason := kafka.missing_tools():
        print(f"not measured: {reason}")
        return
    with single_nodes() if options.nodes == 1 else three_nodes() as sides:
        for side in sides:
            with Admin(side.bootstrap) as admin:
                admin.create_topics([NewTopic(TOPIC, PARTITIONS, options.nodes)])
        runs: dict[str, list[Run]] = {side.name: [] for side in sides}
        for _ in range(options.rounds):
            for side in sides:
                runs[side.name].append(commit(side, options.commits, options.warm))
    nodes = "one broker" if options.nodes == 1 else "three brokers"
    report({f"transactions, {nodes}": summarise(runs)}, as_json=options.json)


if __name__ == "__main__":
    main()
