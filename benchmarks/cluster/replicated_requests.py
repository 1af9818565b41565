"""Measures replicated produce requests (3 brokers, min.insync.replicas=2, acks=all): headrace beside Apache Kafka.

Raw connections to the leaders of three partitions have one request in flight each, of one batch: of one record of 100
bytes, or of 15 records of 1 KiB, which is what a default producer sends under load. Both clusters run at the same time,
but receive requests in turns, after `--warm` seconds of load each. The client is a single thread. Reports medians of
the rounds with their spread, and the ratios of the pairs; CPU is that of the three brokers. Apache Kafka needs Java and
Maven, and is left out without.

    python benchmarks/cluster/replicated_requests.py [--rounds 5] [--seconds 3] [--warm 60] [--connections 1,10,50]
        [--json]
"""

import argparse
import select
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.paired import report, summarise
from headrace.client.operations.admin import Admin, NewTopic
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.protocol.headers import write_request_header
from headrace.records.format2.batch import Record, encode_batch
from tests.cluster.local_cluster import LocalCluster
from tests.peers import kafka
from tests.peers.kafka_cluster import KafkaCluster
from tests.zookeeper_server import ZooKeeperServer

TOPIC, PARTITIONS, REPLICAS = "replicated-requests", 3, 3
VERSION = 9
BATCHES = {"100 B": (1, 100), "15 KiB": (15, 1024)}
"""The number of records in a batch, and their size."""


class Round(NamedTuple):
    """The result of one round."""

    requests_per_s: float
    p50_ms: float
    p99_ms: float
    brokers_cpu_us_per_request: float


class Cluster(NamedTuple):
    """A measured cluster, with the port of each partition's leader."""

    name: str
    leaders: Sequence[int]
    brokers: Sequence[psutil.Process]

    def cpu_s(self) -> float:
        """The CPU seconds of all brokers so far."""
        used = [each.cpu_times() for each in self.brokers]
        return float(sum(each.user + each.system for each in used))


def produce_frame(index: int, records: int, record_bytes: int) -> bytes:
    """A complete Produce request."""
    now_ms = int(time.time() * 1000)
    batch = encode_batch([Record(number, now_ms, None, bytes(record_bytes), ()) for number in range(records)])
    partition = m.ProduceRequest.PartitionProduceData(index=index, records=bytes(batch))
    topic = m.ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[partition])
    body = m.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic]).encode(VERSION)
    head = write_request_header(ApiKey.PRODUCE, VERSION, 1, "bench")
    return (len(head) + len(body)).to_bytes(4, "big") + head + body


def run_round(cluster: Cluster, connections: int, seconds: float, records: int, record_bytes: int) -> Round:
    """Sends on every connection as soon as the answer is there."""
    frames = [produce_frame(index, records, record_bytes) for index in range(PARTITIONS)]
    latencies: list[float] = []
    note, clock = latencies.append, time.perf_counter
    with select.epoll() as poll, ExitStack() as stack:
        calls, sent = {}, {}
        for number in range(connections):
            index = number % PARTITIONS
            address = ("127.0.0.1", cluster.leaders[index])
            connection = stack.enter_context(socket.create_connection(address))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            poll.register(connection, select.EPOLLIN)
            calls[connection.fileno()] = connection.recv, connection.sendall, frames[index]
            sent[connection.fileno()] = clock()
            connection.sendall(frames[index])
        before, now, end = cluster.cpu_s(), 0.0, clock() + seconds
        while now < end:
            for number, _ in poll.poll(1):
                receive, send, frame = calls[number]
                if not receive(4096):
                    raise ConnectionError(f"{cluster.name} closed the connection")
                now = clock()
                note(now - sent[number])
                sent[number] = now
                send(frame)
        cpu_s = cluster.cpu_s() - before
    latencies.sort()
    count = len(latencies)
    p50, p99 = latencies[count // 2] * 1e3, latencies[int(count * 0.99)] * 1e3
    return Round(count / seconds, p50, p99, 1e6 * cpu_s / count)


def measured(name: str, bootstrap: str, brokers: Sequence[int]) -> Cluster:
    """Creates the topic, one of whose partitions is led by each broker."""
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, REPLICAS)])
        addresses, topic = admin.describe_cluster().brokers, admin.describe_topic(TOPIC)
    leaders = [addresses[topic.partitions[index].leader].port for index in range(PARTITIONS)]
    return Cluster(name, leaders, [psutil.Process(pid) for pid in brokers])


@contextmanager
def clusters() -> Iterator[list[Cluster]]:
    """Three brokers of headrace and, if it can run, three of Apache Kafka."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        zookeeper = stack.enter_context(ZooKeeperServer(directory / "zookeeper"))
        ours = stack.enter_context(LocalCluster(directory / "headrace", zookeeper.address))
        ours.wait_until_ready()
        found = [measured("headrace", ours.bootstrap, [ours.pid(each) for each in ours.brokers])]
        if kafka.missing_tools() is None:
            theirs = stack.enter_context(KafkaCluster(directory))
            pids = [each.pid for each in theirs.processes.values()]
            found.append(measured("Apache Kafka", theirs.bootstrap, pids))
        yield found


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--warm", type=float, default=60, help="seconds of load on each cluster before the rounds")
    parser.add_argument("--connections", default="1,10,50")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results = {}
    with clusters() as found:
        for each in found:
            for batch in BATCHES.values():
                run_round(each, 10, options.warm / len(BATCHES), *batch)
        for name, batch in BATCHES.items():
            for connections in map(int, options.connections.split(",")):
                rounds: dict[str, list[Round]] = {each.name: [] for each in found}
                for _ in range(options.rounds):
                    for each in found:
                        rounds[each.name].append(run_round(each, connections, options.seconds, *batch))
                work = f"{name}, {connections} connection{'s' if connections > 1 else ''}"
                results[work] = summarise(rounds)
    report(results, as_json=options.json)


if __name__ == "__main__":
    main()
