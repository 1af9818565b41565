"""Runs Apache Kafka's performance tools against headrace and against Apache Kafka, in turns.

ProducerPerformance runs with default settings and acks=all at 100 B, 1 KiB and 10 KiB, then ConsumerPerformance over
the 1 KiB topic. Both brokers run at the same time, but receive requests in turns. Reports medians of the rounds with
their spread, and the ratios of the pairs. CPU seconds are those of the broker, per round. Needs Java and Maven.

    python benchmarks/broker/java_clients.py [--rounds 5] [--scale 1.0] [--only "10 KiB"] [--warm SECONDS] [--json]

`--only` leaves out all other sizes, and the consumer unless it is 1 KiB.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.broker.small_requests import Peer, peers
from benchmarks.paired import Summary, report, summarise
from tests.peers import kafka
from tests.wire import Wire

PRODUCES = {"100 B": (100, 2_000_000), "1 KiB": (1024, 500_000), "10 KiB": (10_240, 60_000)}
_PRODUCED = re.compile(r"([\d.]+) records/sec.*?([\d.]+) ms avg latency.*?(\d+) ms 99th")


class Run(NamedTuple):
    """The result of one run of a tool."""

    records_per_s: float
    p99_ms: float
    broker_cpu_s: float


class Read(NamedTuple):
    """The same of a consumer, which tells no latency."""

    records_per_s: float
    broker_cpu_s: float


def _tool(*arguments: str) -> str:
    """The output of a tool that runs in a JVM with default settings."""
    with tempfile.TemporaryDirectory() as logs:
        command = [*kafka.java_command(Path(logs), "-Xmx512m"), *arguments]
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True).stdout


def produce(peer: Peer, topic: str, size: int, count: int) -> Run:
    """Run ProducerPerformance with default settings and acks=all."""
    before = peer.process.cpu_times()
    output = _tool(
        "org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--num-records", str(count),
        "--record-size", str(size), "--throughput", "-1",
        "--producer-props", f"bootstrap.servers=127.0.0.1:{peer.port}", "acks=all",
    )  # fmt: skip
    after = peer.process.cpu_times()
    rate, _, p99 = _PRODUCED.findall(output)[-1]
    return Run(float(rate), float(p99), after.user + after.system - before.user - before.system)


def consume(peer: Peer, topic: str, count: int) -> Read:
    """Run ConsumerPerformance over the whole topic. Its rate excludes the time to join the group."""
    before = peer.process.cpu_times()
    output = _tool(
        "org.apache.kafka.tools.ConsumerPerformance", "--topic", topic, "--num-records", str(count),
        "--bootstrap-server", f"127.0.0.1:{peer.port}", "--group", uuid.uuid4().hex,
    )  # fmt: skip
    after = peer.process.cpu_times()
    rate = float(output.strip().splitlines()[-1].split(",")[-1])
    return Read(rate, after.user + after.system - before.user - before.system)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="of the record counts")
    parser.add_argument("--only", choices=PRODUCES, help="one size")
    parser.add_argument("--warm", type=float, default=3, help="seconds of load on each broker before the rounds")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    sizes = {name: each for name, each in PRODUCES.items() if options.only in (None, name)}
    if reason := kafka.missing_tools():
        print(f"not measured: {reason}")
        return
    results: dict[str, Summary] = {}
    with peers(options.warm) as found:
        for peer in found:
            with Wire(f"127.0.0.1:{peer.port}") as wire:
                for name in sizes:
                    wire.create_topic(_topic(name), 3)
        for name, (size, count) in sizes.items():
            rows: dict[str, list[Run]] = {peer.name: [] for peer in found}
            for _ in range(options.rounds):
                for peer in found:
                    rows[peer.name].append(produce(peer, _topic(name), size, int(count * options.scale)))
            results[f"produce {name}"] = summarise(rows)
        if "1 KiB" in sizes:
            read: dict[str, list[Read]] = {peer.name: [] for peer in found}
            count = int(PRODUCES["1 KiB"][1] * options.scale) * options.rounds
            for _ in range(options.rounds):
                for peer in found:
                    read[peer.name].append(consume(peer, _topic("1 KiB"), count))
            results["consume 1 KiB"] = summarise(read)
    report(results, as_json=options.json)


def _topic(name: str) -> str:
    return "java-" + name.replace(" ", "-")


if __name__ == "__main__":
    main()
