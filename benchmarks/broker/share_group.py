"""Lets a share group of ten Java consumers take records, on headrace and on Apache Kafka, in turns.

A topic of three partitions is filled with records of 100 bytes in batches of 100. Ten share consumers with default
settings take them and acknowledge with their next poll. Both sides run at the same time, but are measured in turns,
each round with a group of its own that begins at the first record. Reports medians of the rounds, and the ratio of each
pair. CPU is that of the broker per million records. Needs Java and Maven.

    python benchmarks/broker/share_group.py [--rounds 3] [--consumers 10] [--records 400000] [--json]
"""

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.broker.small_requests import peers
from benchmarks.cluster.replicated import Cluster
from benchmarks.request_load import cpu_seconds
from headrace.client.operations.admin import Admin, NewTopic
from tests.eventually import eventually
from tests.peers import kafka
from tests.wire import Wire, batch

PROGRAM = Path(__file__).with_name("ShareGroup.java")
TOPIC = "queue"
PARTITIONS = 3
BATCH_RECORDS, VALUE = 100, bytes(100)
WARM_UP_SHARE = 4
_groups = itertools.count(1)


class Run(NamedTuple):
    """One round of one side."""

    records_per_s: float
    broker_cpu_s_per_million: float


def fill(side: Cluster, records: int) -> None:
    """Fills the topic."""
    with Admin(side.bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, configs={"retention.ms": "-1"})])  # old timestamps
    data = batch([VALUE] * BATCH_RECORDS)
    with Wire(side.bootstrap) as wire:
        for number in range(records // BATCH_RECORDS):
            produce = partial(wire.produce, TOPIC, data, partition=number % PARTITIONS)
            if produce().error_code:  # a new partition has no leader yet
                eventually(lambda produce=produce: produce().error_code == 0, "a leader")  # type: ignore[misc]


def take(side: Cluster, consumers: int, records: int) -> Run:
    """Run the Java consumers; what they do before they are warm does not count."""
    warm_up = records // WARM_UP_SHARE
    measured = records - warm_up - records // 20
    arguments = [side.bootstrap, TOPIC, f"group-{next(_groups)}", str(consumers), str(warm_up), str(measured)]
    with tempfile.TemporaryDirectory() as logs:
        command = [*kafka.java_command(Path(logs), "-Xmx512m"), str(PROGRAM), *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            if process.stdout.readline() != "warm\n":
                raise RuntimeError(f"{side.name}: the consumers ended with {process.wait()}")
            before = cpu_seconds(side.brokers)
            rate = float(process.stdout.readline())
            cpu_s = cpu_seconds(side.brokers) - before
    return Run(rate, cpu_s * 1e6 / measured)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--consumers", type=int, default=10)
    parser.add_argument("--records", type=int, default=400_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if reason := kafka.missing_tools():
        print(f"not measured: {reason}")
        return
    with peers() as found:
        sides = [Cluster(each.name, f"127.0.0.1:{each.port}", [each.process]) for each in found]
        runs: dict[str, list[Run]] = {side.name: [] for side in sides}
        for side in sides:
            fill(side, options.records)
        for _ in range(options.rounds):
            for side in sides:
                runs[side.name].append(take(side, options.consumers, options.records))
    ours, theirs = runs.values()
    results = {name: Run(*map(median, zip(*rounds, strict=True)))._asdict() for name, rounds in runs.items()}
    ratios = [[a / b for a, b in zip(mine, other, strict=True)] for mine, other in zip(ours, theirs, strict=True)]
    results["ratio"] = Run(*map(median, zip(*ratios, strict=True)))._asdict()
    if options.json:
        print(json.dumps(results, indent=1))
        return
    print(f"{'':14} {'records/s':>10} {'CPU s/million':>14}")
    for name, row in results.items():
        print(f"{name:14} {row['records_per_s']:>10.2f} {row['broker_cpu_s_per_million']:>14.3f}")


if __name__ == "__main__":
    main()
