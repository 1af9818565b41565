"""Commits transactions of ten 1 KiB records with Java's client, on headrace and on Apache Kafka, in turns.

One producer with default settings commits one transaction after the other to a topic of three partitions. Both brokers
run at the same time, but receive requests in turns. Reports medians of the rounds, and the ratio of each pair. CPU is
that of the broker per 1,000 commits. Needs Java and Maven.

    python benchmarks/broker/transactions.py [--rounds 5] [--commits 3000] [--json]
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.broker.small_requests import Peer, peers
from tests.peers import kafka
from tests.wire import Wire

PROGRAM = Path(__file__).with_name("Transactions.java")
TOPIC = "transactions"
WARM_UP = 500
PARTITIONS = 3


class Run(NamedTuple):
    """One round of one broker."""

    commits_per_s: float
    p50_ms: float
    p99_ms: float
    broker_cpu_s_per_1000: float


def commit(peer: Peer, commits: int) -> Run:
    """Run the Java producer; what it does before it is warm does not count."""
    arguments = [f"127.0.0.1:{peer.port}", TOPIC, "benchmark", str(WARM_UP), str(commits)]
    with tempfile.TemporaryDirectory() as logs:
        command = [*kafka.java_command(Path(logs), "-Xmx256m"), str(PROGRAM), *arguments]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            if process.stdout.readline() != "warm\n":
                raise RuntimeError(f"{peer.name}: the producer ended with {process.wait()}")
            before = peer.process.cpu_times()
            process.stdin.write("\n")
            process.stdin.flush()
            rate, p50, p99 = map(float, process.stdout.readline().split())
            after = peer.process.cpu_times()
    cpu_s = after.user + after.system - before.user - before.system
    return Run(rate, p50, p99, cpu_s * 1000 / commits)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--commits", type=int, default=3000, help="of each round")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if reason := kafka.missing_tools():
        print(f"not measured: {reason}")
        return
    with peers() as found:
        for peer in found:
            with Wire(f"127.0.0.1:{peer.port}") as wire:
                wire.create_topic(TOPIC, PARTITIONS)
        runs: dict[str, list[Run]] = {peer.name: [] for peer in found}
        for _ in range(options.rounds):
            for peer in found:
                runs[peer.name].append(commit(peer, options.commits))
    ours, theirs = runs.values()
    results = {name: Run(*map(median, zip(*rounds, strict=True)))._asdict() for name, rounds in runs.items()}
    ratios = [[a / b for a, b in zip(mine, other, strict=True)] for mine, other in zip(ours, theirs, strict=True)]
    results["ratio"] = Run(*map(median, zip(*ratios, strict=True)))._asdict()
    if options.json:
        print(json.dumps(results, indent=1))
        return
    print(f"{'':14} {'commits/s':>10} {'p50 ms':>8} {'p99 ms':>8} {'CPU s/1000':>11}")
    for name, row in results.items():
        print(f"{name:14} {row['commits_per_s']:>10.2f} {row['p50_ms']:>8.2f} {row['p99_ms']:>8.2f}", end="")
        print(f" {row['broker_cpu_s_per_1000']:>11.3f}")


if __name__ == "__main__":
    main()
