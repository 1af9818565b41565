"""Measures the latency of produces while a follower dies: headrace beside Apache Kafka, with three replicas.

A producer (confluent-kafka, acks=all, idempotent, 200 records per second to one partition, no linger) records the time
from each send to its acknowledgement. The 99th percentile of ten undisturbed seconds is compared with that of the ten
seconds around `kill -9` of a follower that is not the controller: five before and five after. All records that were
sent in this time count, however late they were acknowledged. Times are in ms; the result is the median of the rounds'
ratios. Apache Kafka needs Java and Maven; without them headrace is measured alone.

    python benchmarks/cluster/follower_lost.py [--rounds 3] [--alone] [--json]
"""

import os
import statistics
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from confluent_kafka import KafkaError as DeliveryError
from confluent_kafka import Message, Producer

from benchmarks.cluster.leader_killed import controller_of
from benchmarks.cluster.side_by_side import compare
from headrace.client.operations.admin import Admin, NewTopic
from headrace.errors import KafkaError
from tests.cluster.local_cluster import LocalCluster
from tests.peers.kafka_cluster import KafkaCluster

TOPIC = "followed"
PER_SECOND = 200
WINDOW_SECONDS = 10.0


class TimedProducer:
    """Sends at a fixed rate from entering to leaving; `times` is (when it was sent, seconds to its acknowledgement)."""

    def __init__(self, bootstrap: str) -> None:
        self.times: list[tuple[float, float]] = []
        self.failed = 0
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "log_level": 0, "acks": "all", "enable.idempotence": True, "linger.ms": 0}
        )
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "TimedProducer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stopping.set()
        self._thread.join()

    def p99_ms(self, since: float, until: float) -> float:
        """The p99 of the records sent in that time. Waits until all are acknowledged."""
        found = sorted(seconds for sent, seconds in self.times if since <= sent < until)
        return round(1000 * found[int(len(found) * 0.99)], 2)

    def _run(self) -> None:
        sent, began = 0, time.monotonic()
        while not self._is_stopping.is_set():
            while sent < (time.monotonic() - began) * PER_SECOND:
                sent += 1
                self._send(time.monotonic())
            self._producer.poll(0.002)
        self._producer.flush(60)

    def _send(self, at: float) -> None:
        def delivered(error: DeliveryError | None, _: Message) -> None:
            if error is None:
                self.times.append((at, time.monotonic() - at))
            else:
                self.failed += 1

        self._producer.produce(TOPIC, b"x" * 100, partition=0, on_delivery=delivered)


def follower_of(cluster: LocalCluster | KafkaCluster) -> int:
    """A follower that is not the controller, or else any follower. Waits until all three replicas are in sync."""
    with Admin(cluster.bootstrap) as admin:
        while True:
            try:
                (info,) = admin.describe_topic(TOPIC).partitions
                if info.leader >= 0 and len(info.isr) == 3:
                    break
            except KafkaError:
                pass
            time.sleep(0.2)
    followers = [each for each in sorted(info.isr) if each != info.leader]
    office = controller_of(cluster)
    return next((each for each in followers if each != office), followers[0])


def measure(cluster: LocalCluster | KafkaCluster, rounds: int) -> dict[str, object]:
    """The p99 of each round, undisturbed and around the kill."""
    with Admin(cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, 1, 3)])
    calm: list[float] = []
    disturbed: list[float] = []
    with TimedProducer(cluster.bootstrap) as producer:
        time.sleep(3)
        for _ in range(rounds):
            victim = follower_of(cluster)
            began = time.monotonic()
            time.sleep(WINDOW_SECONDS + WINDOW_SECONDS / 2)
            killed = time.monotonic()
            if isinstance(cluster, LocalCluster):
                cluster.brokers[victim].kill()
            else:
                cluster.kill(victim)
            wait_for_answers(producer, killed + WINDOW_SECONDS / 2)
            calm.append(producer.p99_ms(began, began + WINDOW_SECONDS))
            disturbed.append(producer.p99_ms(killed - WINDOW_SECONDS / 2, killed + WINDOW_SECONDS / 2))
            if isinstance(cluster, LocalCluster):
                cluster.brokers[victim].restart()
            else:
                cluster.start(victim)
    return {
        "calm_p99_ms": calm,
        "disturbed_p99_ms": disturbed,
        "ratio": round(statistics.median(there / here for here, there in zip(calm, disturbed, strict=True)), 2),
        "failed": producer.failed,
        "load": [round(each, 1) for each in os.getloadavg()],
    }


def wait_for_answers(producer: TimedProducer, until: float) -> None:
    """Returns when all records sent before `until` are acknowledged, which acknowledged later records show."""
    while not any(sent > until for sent, _ in producer.times[-20:]):
        time.sleep(0.1)


if __name__ == "__main__":
    compare(__doc__, measure, repeats="--rounds", default=3)
