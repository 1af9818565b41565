"""Measures the price of `headrace.reliable`: three brokers, acks=all, idempotent producers, records of 1 KiB.

    plain       min.insync.replicas=2: a record is acknowledged when the in-sync replicas have it in memory
    reliable    headrace.reliable=true: when each of them has flushed it
    flushed     Apache Kafka with min.insync.replicas=2 and flush.messages=1, which comes nearest

Java's ProducerPerformance runs tuned (batch.size=262144, linger.ms=5) and with default settings, to three partitions,
in turns. Reports medians of the rounds, and of the ratios to `reliable` within a round. Needs Java and Maven.

    python benchmarks/cluster/reliable.py [--rounds 5] [--scale 1.0] [--json]
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from replicated import WORKS, Cluster, Run, both_clusters, produce

from headrace.client.operations.admin import Admin, NewTopic
from tests.peers import kafka

_PLAIN = {"min.insync.replicas": "2"}


def ways(clusters: tuple[Cluster, Cluster]) -> dict[str, tuple[Cluster, dict[str, str]]]:
    """Where, and with which settings, each way writes."""
    ours, theirs = clusters
    return {
        "plain": (ours, _PLAIN),
        "reliable": (ours, {"headrace.reliable": "true"}),
        "flushed": (theirs, _PLAIN | {"flush.messages": "1"}),
    }


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="of the record counts")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if reason := kafka.missing_tools():
        print(f"not measured: {reason}")
        return
    runs: dict[str, dict[str, list[Run]]] = {}
    with both_clusters() as (clusters, _):
        found = ways(clusters)
        for way, (cluster, settings) in found.items():
            with Admin(cluster.bootstrap) as admin:
                admin.create_topics([NewTopic(f"{way}-{work}", 3, 3, configs=settings) for work in WORKS])
        for work, (count, _) in WORKS.items():
            rows = runs[work] = {way: [] for way in found}
            for _ in range(options.rounds):
                for way, (cluster, _settings) in found.items():
                    rows[way].append(produce(cluster, f"{way}-{work}", work, int(count * options.scale)))
    results = {work: summary(rows) for work, rows in runs.items()}
    if options.json:
        print(json.dumps(results, indent=1))
        return
    for work, ways_of_work in results.items():
        for way, row in ways_of_work.items():
            print(f"{work:8} {way:20} {json.dumps({key: round(value, 2) for key, value in row.items()})}")


def summary(rows: dict[str, list[Run]]) -> dict[str, dict[str, float]]:
    """The medians of each way, and the medians of what `reliable` is of the others in the same round."""
    found = {
        way: {field: statistics.median(getattr(each, field) for each in runs) for field in Run._fields}
        for way, runs in rows.items()
    }
    for other in rows.keys() - {"reliable"}:
        found[f"reliable / {other}"] = {
            field: statistics.median(
                getattr(a, field) / max(getattr(b, field), 1e-9)
                for a, b in zip(rows["reliable"], rows[other], strict=True)
            )
            for field in Run._fields
        }
    return found


if __name__ == "__main__":
    main()
