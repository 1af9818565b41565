"""Measures the unavailability of a partition after `kill -9` of its leader: headrace beside Apache Kafka.

A producer (confluent-kafka, acks=all, idempotent, 500 records per second to one partition) runs all the time. The
unavailability is the longest time between two acknowledgements around the kill, in seconds. Afterwards all records are
read, and lost and duplicate records are counted; there must be none. Before every second kill, the controller becomes
the leader (in Apache Kafka, the active controller of the quorum); before the other kills, another broker does. Apache
Kafka needs Java and Maven; without them headrace is measured alone.

    python benchmarks/cluster/leader_killed.py [--kills 6] [--alone] [--json]
"""

import os
import re
import statistics
import sys
import time
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.cluster.side_by_side import compare
from headrace.client.operations.admin import Admin, NewTopic
from headrace.client.operations.replica_admin import ReplicaAdmin
from headrace.errors import KafkaError
from headrace.types import TopicPartition
from tests.cluster.local_cluster import LocalCluster
from tests.cluster.verifying import VerifyingProducer, verify
from tests.peers import kafka
from tests.peers.kafka_cluster import KafkaCluster

TOPIC = "killed"
SETTLE_SECONDS = 2.0


def leader_of(bootstrap: str) -> int:
    """The leader of the partition. Waits until all three replicas are in sync."""
    with Admin(bootstrap) as admin:
        while True:
            try:
                (info,) = admin.describe_topic(TOPIC).partitions
                if info.leader >= 0 and len(info.isr) == 3:
                    return info.leader
            except KafkaError:
                pass
            time.sleep(0.2)


def controller_of(cluster: LocalCluster | KafkaCluster) -> int:
    """The active controller."""
    if isinstance(cluster, LocalCluster):
        return cluster.controller()
    told = kafka.run_tool(
        "org.apache.kafka.tools.MetadataQuorumCommand", "--bootstrap-server", cluster.bootstrap, "describe", "--status",
        logs=cluster.directory,
    )  # fmt: skip
    found = re.search(r"LeaderId:\s+(\d+)", told)
    assert found, told
    return int(found.group(1))


def have_lead(cluster: LocalCluster | KafkaCluster, *, controller: bool) -> int:
    """Makes the controller's broker, or another broker, the leader; returns the leader."""
    partition = TopicPartition(TOPIC, 0)
    while True:
        leader, office = leader_of(cluster.bootstrap), controller_of(cluster)
        if (leader == office) is controller:
            return leader
        rest = [each for each in (1, 2, 3) if each != office]
        with Admin(cluster.bootstrap) as admin, suppress(KafkaError):
            replicas = ReplicaAdmin(admin.cluster)
            replicas.reassign({partition: [office, *rest] if controller else [*rest, office]})
            while replicas.reassignments():
                time.sleep(0.1)
            replicas.elect_leaders([partition])
        time.sleep(0.5)


def measure(cluster: LocalCluster | KafkaCluster, kills: int) -> dict[str, object]:
    """Measure the times without a leader, and count lost and duplicate records."""
    with Admin(cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, 1, 3)])
    silences: list[float] = []
    was_controller: list[bool] = []
    with VerifyingProducer(cluster.bootstrap, TOPIC, partitions=1, per_second=500) as producer:
        for number in range(kills):
            leader = have_lead(cluster, controller=bool(number % 2))
            was_controller.append(bool(number % 2))
            producer.wait_for(500)
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
        "load": [round(each, 1) for each in os.getloadavg()],
        "acknowledged": report.acknowledged,
        "faults": report.faults(),
    }


if __name__ == "__main__":
    compare(__doc__, measure, repeats="--kills", default=6)
