"""How long a produce takes while a follower dies: headrace beside Apache Kafka, both at three replicas.

A producer (confluent-kafka, acks=all, idempotent, 200 records a second to one partition, no linger) notes the time from
each send to its acknowledgement. The 99th percentile of ten undisturbed seconds stands beside that of the ten seconds
around `kill -9` of a follower that is not the controller: five before, five after, with what was sent in them, however
late it was acknowledged. In milliseconds; the median of the rounds' ratios counts. Needs Java and Maven for Apache
Kafka; without them headrace is measured alone.

    python benchmarks/cluster/follower_lost.py [--rounds 3] [--alone] [--json]
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from confluent_kafka import KafkaError as DeliveryError
from confluent_kafka import Message, Producer

from benchmarks.cluster.leader_killed import controller_of
from headrace.client.admin import Admin, NewTopic
from headrace.errors import KafkaError
from tests.cluster.local_cluster import LocalCluster
from tests.peers import kafka
from tests.peers.kafka_cluster import KafkaCluster
from tests.zookeeper_server import ZooKeeperServer

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
        """Of what was sent in that time, once all of it is acknowledged."""
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
    """A follower that is not the controller, or any when there is none, once all three replicas are in sync."""
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
    """p99 of each round, undisturbed and around the kill."""
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
    """Returns when what was sent before `until` has been acknowledged: later records have been."""
    while not any(sent > until for sent, _ in producer.times[-20:]):
        time.sleep(0.1)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
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
            results["headrace"] = measure(ours, options.rounds)
        if not options.alone and not kafka.missing_tools():
            with KafkaCluster(home / "kafka") as theirs:
                results["Apache Kafka"] = measure(theirs, options.rounds)
    if options.json:
        print(json.dumps(results, indent=1))
        return
    for name, found in results.items():
        print(name, json.dumps(found))


if __name__ == "__main__":
    main()
