"""Measures the unavailability of partitions during a rolling restart: headrace beside Apache Kafka.

A producer (confluent-kafka, acks=all, idempotent, 500 records per second over six partitions of three replicas) runs
all the time. Each of three brokers is stopped with SIGTERM and started again, the controller last; the next broker
follows when all replicas are in sync. The pause of a broker is the longest time between two acknowledgements of one
partition, from its stop until it is back, in seconds. Afterwards all records are read; none may be lost or duplicate.
Apache Kafka needs Java and Maven; without them headrace is measured alone.

    python benchmarks/cluster/rolling_restart.py [--rounds 3] [--alone] [--json]
"""

import os
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.cluster.leader_killed import controller_of
from benchmarks.cluster.side_by_side import compare
from headrace.client.operations.admin import Admin, NewTopic
from headrace.errors import KafkaError
from tests.cluster.local_cluster import LocalCluster
from tests.cluster.verifying import VerifyingProducer, verify
from tests.peers.kafka_cluster import KafkaCluster

TOPIC = "rolled"
PARTITIONS = 6
BROKERS = (1, 2, 3)


def wait_until_in_sync(bootstrap: str) -> None:
    """Returns when every partition has a leader and all its replicas are in sync."""
    with Admin(bootstrap) as admin:
        while True:
            try:
                if all(len(each.isr) == len(BROKERS) for each in admin.describe_topic(TOPIC).partitions):
                    return
            except KafkaError:
                pass
            time.sleep(0.2)


def stop(cluster: LocalCluster | KafkaCluster, broker: int) -> None:
    """SIGTERM, until the process is gone."""
    if isinstance(cluster, LocalCluster):
        cluster.brokers[broker].stop()
    else:
        cluster.processes[broker].terminate()
        cluster.processes[broker].wait()


def start(cluster: LocalCluster | KafkaCluster, broker: int) -> None:
    """Again."""
    if isinstance(cluster, LocalCluster):
        cluster.brokers[broker].restart()
    else:
        cluster.start(broker)


def measure(cluster: LocalCluster | KafkaCluster, rounds: int) -> dict[str, object]:
    """Measure the pauses, and count lost and duplicate records."""
    with Admin(cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, len(BROKERS))])
    pauses: list[float] = []
    was_controller: list[bool] = []
    with VerifyingProducer(cluster.bootstrap, TOPIC, partitions=PARTITIONS, per_second=500) as producer:
        for _ in range(rounds):
            wait_until_in_sync(cluster.bootstrap)
            producer.wait_for(500)
            controller = controller_of(cluster)
            for broker in sorted(BROKERS, key=lambda each: (each == controller, each)):
                began = time.monotonic()
                stop(cluster, broker)
                producer.wait_for(200)
                start(cluster, broker)
                wait_until_in_sync(cluster.bootstrap)
                producer.wait_for(500)
                pauses.append(round(producer.longest_silence(since=began), 3))
                was_controller.append(broker == controller)
    report = verify(cluster.bootstrap, TOPIC, producer)
    return {
        "seconds": pauses,
        "was_controller": was_controller,
        "median_s": statistics.median(pauses),
        "worst_s": max(pauses),
        "load": [round(each, 1) for each in os.getloadavg()],
        "acknowledged": report.acknowledged,
        "failed": len(producer.failed),
        "faults": report.faults(),
    }


if __name__ == "__main__":
    compare(__doc__, measure, repeats="--rounds", default=3)
