"""Measures how exactly the limits of an instance are kept with real clients: three brokers, acks=all, in and out.

Java's ProducerPerformance and ConsumerPerformance, confluent-kafka and franz-go run as fast as they may on an instance
with a limit. After its first bytes and a warm-up, which uses up the bursts and lets the leases follow the load, the
bytes that the brokers have counted for the instance are read twice, ten seconds apart. What they count is what they
limit: bytes of Produce requests, and of records in Fetch responses.

    even      a topic with a partition on each broker
    skewed    a topic whose partitions are all on broker 1, which by its partitions would get a third of the limit

Then the noisy neighbour: the p99 of one record in flight of another instance, and the brokers' CPU, with and without an
instance that is asked for ten times its limit. Needs Java, Maven and Go; a client whose tools are missing is left out.

    python benchmarks/instances/clients.py [--seconds 10] [--warm-up 12] [--limit BYTES] [--json]
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import which

import psutil
from confluent_kafka import Producer

sys.path.insert(0, str(Path(__file__).parents[2]))

from headrace.client.core.cluster import Cluster
from headrace.client.operations.instance_admin import InstanceAdmin
from headrace.client.operations.instance_flow_admin import InstanceFlowAdmin
from headrace.protocol import messages as m
from tests.asker import Asker
from tests.cluster.local_cluster import LocalCluster
from tests.peers import kafka
from tests.zookeeper_server import ZooKeeperServer

HERE = Path(__file__).parent
RECORD_BYTES = 1024
BROKERS = (1, 2, 3)
NOISE = 10
"""How many times its limit the noisy neighbour wants."""

_CONFLUENT = """
import sys
from confluent_kafka import Consumer, Producer
work, bootstrap, topic = sys.argv[1:]
settings = {"bootstrap.servers": bootstrap}
if work == "produce":
    client, record = Producer({**settings, "acks": "all", "linger.ms": 5}), bytes(1024)
    while True:
        try:
            client.produce(topic, record)
            client.poll(0)
        except BufferError:
            client.poll(0.05)
else:
    client = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    client.subscribe([topic])
    while True:
        client.consume(500, 0.5)
"""


class Instance:
    """An instance of the cluster, with its topics."""

    def __init__(self, cluster: LocalCluster, name: str, **fields: object) -> None:
        self.cluster, self.name = cluster, name
        with Cluster(cluster.bootstrap) as operator:
            admin = InstanceAdmin(operator)
            admin.create_instance(name, fields)
            endpoints = admin.await_listeners(name).endpoints
        self.addresses = {int(broker): str(address) for broker, address in endpoints.items()}
        self.bootstrap = ",".join(self.addresses.values())

    def topic(self, name: str, *replicas: Sequence[int]) -> None:
        """Creates a topic with these replicas of its partitions; the first one of each leads."""
        wish = m.CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                m.CreateTopicsRequest.CreatableReplicaAssignment(partition_index=number, broker_ids=list(brokers))
                for number, brokers in enumerate(replicas)
            ],
        )
        with Asker(next(iter(self.addresses.values()))) as asker:
            made = asker.ask(m.CreateTopicsRequest(topics=[wish], timeout_ms=20_000), 5).topics[0]
            assert made.error_code == 0, made

    def alter(self, **fields: object) -> None:
        """Changes limits."""
        with Cluster(self.cluster.bootstrap) as operator:
            InstanceAdmin(operator).alter_instance(self.name, fields)

    def total(self, direction: str) -> int:
        """The bytes that all brokers have counted."""
        with Cluster(self.cluster.bootstrap) as operator:
            flow = InstanceFlowAdmin(operator).describe_flow([self.name])
        return sum(each[direction]["total"] for each in flow.of(self.name).values())


def rate(instance: Instance, direction: str, seconds: float) -> float:
    """Bytes/s over so many seconds from now."""
    began, before = time.monotonic(), instance.total(direction)
    time.sleep(seconds)
    return (instance.total(direction) - before) / (time.monotonic() - began)


def commands(directory: Path) -> Mapping[str, Mapping[str, Sequence[str]]]:
    """For each client that can run here, the beginning of its command to produce and to consume; bootstrap and topic
    follow."""
    found: dict[str, Mapping[str, Sequence[str]]] = {
        "confluent-kafka": {each: (sys.executable, "-c", _CONFLUENT, each) for each in ("produce", "consume")}
    }
    if which("go"):
        program = directory / "franz"
        subprocess.run(["go", "build", "-C", str(HERE / "franz"), "-o", str(program), "."], check=True)
        found["franz-go"] = {each: (str(program), each) for each in ("produce", "consume")}
    if not kafka.missing_tools():
        java = kafka.java_command(directory, "-Xmx512m")
        found["Java"] = {
            "produce": (*java, "org.apache.kafka.tools.ProducerPerformance"),
            "consume": (*java, "org.apache.kafka.tools.ConsumerPerformance"),
        }
    return found


@contextmanager
def client(name: str, work: str, command: Sequence[str], bootstrap: str, topic: str) -> Iterator[None]:
    """A client that runs meanwhile."""
    arguments = [bootstrap, topic]
    if name == "Java" and work == "produce":
        arguments = ["--topic", topic, "--num-records", "1000000000", "--record-size", str(RECORD_BYTES)]
        arguments += ["--throughput", "-1", "--producer-props", f"bootstrap.servers={bootstrap}", "acks=all"]
    elif name == "Java":
        arguments = ["--topic", topic, "--num-records", "1000000000", "--bootstrap-server", bootstrap]
        arguments += ["--group", topic, "--timeout", "600000"]
    process = subprocess.Popen(
        [*command, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield
        assert process.poll() is None, f"{name} ended with {process.returncode}"
    finally:
        process.kill()
        process.wait()


def fill(bootstrap: str, topic: str, size: int, partitions: int) -> None:
    """Produces so many bytes."""
    producer, record = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 20}), bytes(RECORD_BYTES)
    for number in range(size // RECORD_BYTES):
        while True:
            try:
                producer.produce(topic, record, partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.05)
    assert producer.flush(300) == 0


def accuracy(cluster: LocalCluster, directory: Path, options: argparse.Namespace) -> list[dict[str, object]]:
    """One row for each client, direction and placement."""
    rows: list[dict[str, object]] = []
    limit, needed = options.limit, int(options.limit * (options.warm_up + options.seconds) * 1.5)
    topics = {"even": ((1, 2, 3), (2, 3, 1), (3, 1, 2)), "skewed": ((1, 2, 3),) * 3}
    for name, works in commands(directory).items():
        if options.client not in (None, name):
            continue
        instance = Instance(cluster, name.lower(), burst_seconds=0.5)
        for topic, replicas in topics.items():
            instance.topic(topic, *replicas)
        instance.topic("idle", *((2, 3, 1),) * 3, *((3, 1, 2),) * 3)
        for topic in topics:
            fill(instance.bootstrap, topic, needed, 3)
        instance.alter(bytes_in=limit, bytes_out=limit)
        for work, direction in (("produce", "in"), ("consume", "out")):
            for topic in topics:
                before = instance.total(direction)
                with client(name, work, works[work], instance.bootstrap, topic):
                    while instance.total(direction) < before + limit:  # a JVM may take long to start
                        time.sleep(0.5)
                    time.sleep(options.warm_up)
                    found = rate(instance, direction, options.seconds)
                row = {"client": name, "direction": direction, "topic": topic, "of limit": round(found / limit, 4)}
                rows.append(row)
                print(json.dumps(row), file=sys.stderr)
    return rows


def latency(address: str, topic: str, seconds: float) -> list[float]:
    """Milliseconds of one record in flight at a time, acks=all."""
    from tests.wire import batch

    part = m.ProduceRequest.PartitionProduceData(index=0, records=batch([bytes(RECORD_BYTES)]))
    data = m.ProduceRequest.TopicProduceData(name=topic, partition_data=[part])
    request = m.ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data])
    took, until = [], time.monotonic() + seconds
    with Asker(address) as asker:
        while time.monotonic() < until:
            began = time.perf_counter()
            assert asker.ask(request, 9).responses[0].partition_responses[0].error_code == 0
            took.append((time.perf_counter() - began) * 1000)
            time.sleep(0.005)
    return took


def neighbour(cluster: LocalCluster, directory: Path, options: argparse.Namespace) -> dict[str, object]:
    """Another instance's latency, and the brokers' CPU, with a noisy neighbour that keeps to its limit, and with one
    that wants ten times as much; in turns, medians of the rounds."""
    quiet = Instance(cluster, "quiet")
    quiet.topic("orders", (1, 2, 3))
    noisy = Instance(cluster, "noisy", bytes_in=options.limit, burst_seconds=0.5)
    noisy.topic("orders", (1, 2, 3), (2, 3, 1), (3, 1, 2))
    processes = [psutil.Process(cluster.pid(each)) for each in BROKERS]
    java = kafka.java_command(directory, "-Xmx512m")
    found: dict[str, list[tuple[float, float]]] = {"at its limit": [], "at ten times its limit": []}
    for _ in range(options.rounds):
        for name, wanted in (("at its limit", 1), ("at ten times its limit", NOISE)):
            throughput = (
                int(options.limit * 0.95 / RECORD_BYTES) if wanted == 1 else NOISE * options.limit // RECORD_BYTES
            )
            command = [
                *java, "org.apache.kafka.tools.ProducerPerformance", "--topic", "orders", "--num-records", "1000000000",
                "--record-size", str(RECORD_BYTES), "--throughput", str(throughput),
                "--producer-props", f"bootstrap.servers={noisy.bootstrap}", "acks=all",
            ]  # fmt: skip
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                time.sleep(options.warm_up)
                before = cpu_seconds(processes)
                took = latency(quiet.addresses[1], "orders", options.seconds)
                used = cpu_seconds(processes) - before
            finally:
                process.kill()
                process.wait()
            found[name].append((statistics.quantiles(took, n=100)[98], used / options.seconds))
    return {
        name: {
            "quiet p99 ms": round(statistics.median(each[0] for each in rounds), 2),
            "CPU of the brokers": round(statistics.median(each[1] for each in rounds), 3),
        }
        for name, rounds in found.items()
    }


def cpu_seconds(processes: Sequence[psutil.Process]) -> float:
    """The CPU seconds of all brokers so far."""
    return sum(each.cpu_times().user + each.cpu_times().system for each in processes)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--warm-up", type=float, default=12.0)
    parser.add_argument("--limit", type=int, default=3 << 20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", choices=("accuracy", "neighbour"))
    parser.add_argument("--client", choices=("confluent-kafka", "franz-go", "Java"))
    options = parser.parse_args()
    results: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        with (
            ZooKeeperServer(home / "zookeeper") as zookeeper,
            LocalCluster(home / "headrace", zookeeper.address) as cluster,
        ):
            cluster.wait_until_ready()
            if options.only != "neighbour":
                results["accuracy"] = accuracy(cluster, home, options)
            if options.only != "accuracy" and not kafka.missing_tools():
                results["noisy neighbour"] = neighbour(cluster, home, options)
    if options.json:
        print(json.dumps(results, indent=1))
        return
    for name, rows in results.items():
        print(name)
        for row in rows if isinstance(rows, list) else [rows]:
            print("  ", json.dumps(row))


if __name__ == "__main__":
    main()
