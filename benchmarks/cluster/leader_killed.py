"""How long a partition takes no records after its leader is killed with -9: headrace beside Apache Kafka.

A producer (confluent-kafka, acks=all, idempotent, 500 records a second to one partition) runs all the time; the time
without is the longest between two acknowledgements around the kill, in seconds. Afterwards everything is read, and
what is lost or doubled counted: it must be nothing. Every second kill takes the controller's broker, too, where that
leads. Needs Java and Maven for Apache Kafka; without them headrace is measured alone.

    python benchmarks/cluster/leader_killed.py [--kills 6] [--json]
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from headrace.client.admin import Admin, NewTopic
from headrace.errors import KafkaError
from headrace.types import BrokerId
from tests.cluster.local_cluster import LocalCluster
from tests.cluster.verifying import VerifyingProducer, verify
from tests.peers import kafka
from tests.peers.kafka_cluster import KafkaCluster
from tests.zookeeper_server import ZooKeeperServer

TOPIC = "killed"
SETTLE_SECONDS = 2.0


def leader_of(bootstrap: str) -> int:
    """Who leads the partition, once all three replicas are in sync."""
    with Admin(bootstrap) as admin:
        while True:
            try:
                (info,) = admin.describe_topic(TOPIC).partitions
                if info.leader >= 0 and len(info.isr) == 3:
                    return info.leader
            except KafkaError:
                pass
            time.sleep(0.2)


def measure(cluster: LocalCluster | KafkaCluster, kills: int) -> dict[str, object]:
    """The times without a leader, and what came of the records."""
    with Admin(cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, 1, 3)])
    silences: list[float] = []
    was_controller: list[bool] = []
    with VerifyingProducer(cluster.bootstrap, TOPIC, partitions=1, per_second=500) as producer:
        for _ in range(kills):
            producer.wait_for(500)
            leader = leader_of(cluster.bootstrap)
            with Admin(cluster.bootstrap) as admin:
                was_controller.append(admin.describe_cluster().controller == BrokerId(leader))
            began = time.monotonic()
            if isinstance(cluster, LocalCluster):
                cluster.brokers[leader].kill()
            else:
                cluster.kill(leader)
            time.sleep(SETTLE_SECONDS)
            producer.wait_for(500)
            silences.append(round(producer.longest_silence(since=began - 1), 3))
            if isinstance(cluster, LocalCluster):
                cluster.brokers[leader].restart()
            else:
                cluster.start(leader)
        leader_of(cluster.bootstrap)
    report = verify(cluster.bootstrap, TOPIC, producer)
    return {
        "seconds": silences,
        "was_controller": was_controller,
        "median_s": statistics.median(silences),
        "worst_s": max(silences),
        "acknowledged": report.acknowledged,
        "faults": report.faults(),
    }


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=6)
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
            results["headrace"] = measure(ours, options.kills)
        if not kafka.missing_tools():
            with KafkaCluster(home / "kafka") as theirs:
                results["Apache Kafka"] = measure(theirs, options.kills)
    if options.json:
        print(json.dumps(results, indent=1))
        return
    for name, found in results.items():
        print(name, json.dumps(found))


if __name__ == "__main__":
    main()
