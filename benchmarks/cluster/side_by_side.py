"""Runs one measurement on a headrace cluster, then on an Apache Kafka cluster, and prints the results."""

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.cluster.local_cluster import LocalCluster
from tests.peers import kafka
from tests.peers.kafka_cluster import KafkaCluster
from tests.zookeeper_server import ZooKeeperServer

Measure = Callable[[LocalCluster | KafkaCluster, int], dict[str, object]]


def compare(description: str | None, measure: Measure, *, repeats: str, default: int) -> None:
    """Parses the options, measures and prints. `repeats` names the option with the number of repetitions. Without Java
    and Maven, or with --alone, headrace is measured alone."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(repeats, type=int, default=default, dest="repeats")
    parser.add_argument("--alone", action="store_true", help="without Apache Kafka")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        with (
            ZooKeeperServer(home / "zookeeper") as zookeeper,
            LocalCluster(home / "headrace", zookeeper.address) as ours,
        ):
            ours.wait_until_ready()
            results["headrace"] = measure(ours, options.repeats)
        if not options.alone and not kafka.missing_tools():
            with KafkaCluster(home / "kafka") as theirs:
                results["Apache Kafka"] = measure(theirs, options.repeats)
    if options.json:
        print(json.dumps(results, indent=1))
        return
    for name, found in results.items():
        print(name, json.dumps(found))
