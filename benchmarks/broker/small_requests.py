"""Measures requests with one 100-byte record, acks=1, over raw sockets: headrace beside Apache Kafka, in turns.

Each connection has one request in flight. The client is a single thread with little work per request (10 µs), because
it shares the machine with the broker, and a broker of several threads lacks the CPU time that the client uses. Both
brokers run at the same time on this machine, but receive requests in turns. Reports medians of the rounds, and the
ratio of each pair of rounds. CPU seconds are those of the broker. Apache Kafka needs Java and Maven; without them
headrace is measured alone.

    python benchmarks/broker/small_requests.py [--seconds 4] [--rounds 5] [--json]
"""

import argparse
import json
import select
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil

sys.path.insert(0, str(Path(__file__).parents[2]))

from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.protocol.headers import write_request_header
from headrace.records.format2.batch import Record, encode_batch
from tests.harness import HeadraceServer
from tests.peers import kafka
from tests.wire import Wire

TOPIC = "small-requests"
CONNECTIONS = (1, 10, 50)
VERSION = 9


class Round(NamedTuple):
    """The result of one round of requests."""

    requests_per_s: float
    p50_ms: float
    p99_ms: float
    broker_cpu_s: float


class Peer(NamedTuple):
    """A measured broker: its name, its port, and its process."""

    name: str
    port: int
    process: psutil.Process


def produce_frame(topic_name: str = TOPIC, index: int = 0) -> bytes:
    """A complete Produce request."""
    batch = encode_batch([Record(0, int(time.time() * 1000), None, b"x" * 100, ())])
    partition = m.ProduceRequest.PartitionProduceData(index=index, records=bytes(batch))
    topic = m.ProduceRequest.TopicProduceData(name=topic_name, partition_data=[partition])
    body = m.ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic]).encode(VERSION)
    head = write_request_header(ApiKey.PRODUCE, VERSION, 1, "bench")
    return (len(head) + len(body)).to_bytes(4, "big") + head + body


def run_round(peer: Peer, connections: int, seconds: float, topic: str = TOPIC, partitions: int = 1) -> Round:
    """Sends on every connection as soon as the answer is there, for `seconds`; each connection to one partition."""
    frames = [produce_frame(topic, number) for number in range(partitions)]
    latencies: list[float] = []
    note, clock = latencies.append, time.perf_counter
    with select.epoll() as poll, ExitStack() as stack:
        calls = {}
        sent = {}
        for number in range(connections):
            frame = frames[number % partitions]
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", peer.port)))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            poll.register(connection, select.EPOLLIN)
            calls[connection.fileno()] = connection.recv, connection.send, frame
            sent[connection.fileno()] = clock()
            connection.sendall(frame)
        before, now, end = peer.process.cpu_times(), 0.0, clock() + seconds
        while now < end:
            for number, _ in poll.poll(1):
                receive, send, frame = calls[number]
                if not receive(4096):
                    raise ConnectionError(f"{peer.name} closed the connection")
                now = clock()
                note(now - sent[number])
                sent[number] = now
                send(frame)  # two hundred bytes fit
        after = peer.process.cpu_times()
    latencies.sort()
    cpu_s = after.user + after.system - before.user - before.system
    count = len(latencies)
    return Round(count / seconds, latencies[count // 2] * 1e3, latencies[int(count * 0.99)] * 1e3, cpu_s)


@contextmanager
def peers() -> Iterator[list[Peer]]:
    """headrace, and Apache Kafka if it can run."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = HeadraceServer(directory / "headrace").start()
        stack.callback(server.stop)
        assert server.process is not None
        found = [Peer("headrace", server.port, psutil.Process(server.process.pid))]
        if kafka.missing_tools() is None:
            port = int(stack.enter_context(kafka.run_kafka(directory / "kafka")).rpartition(":")[2])
            found.append(Peer("Apache Kafka", port, listening_process(port)))
        for peer in found:
            with Wire(f"127.0.0.1:{peer.port}") as wire:
                wire.create_topic(TOPIC, 1)
            run_round(peer, 10, 3)  # warms it up
        yield found


def listening_process(port: int) -> psutil.Process:
    """The process that listens on a loopback port."""
    for each in psutil.net_connections("tcp"):
        if each.status == psutil.CONN_LISTEN and each.laddr.port == port and each.pid is not None:
            return psutil.Process(each.pid)
    raise LookupError(f"nobody listens on port {port}")


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results: dict[str, dict[str, dict[str, float]]] = {}
    with peers() as found:
        for connections in CONNECTIONS:
            rounds: dict[str, list[Round]] = {peer.name: [] for peer in found}
            for _ in range(options.rounds):
                for peer in found:
                    rounds[peer.name].append(run_round(peer, connections, options.seconds))
            row = {
                name: {field: statistics.median(getattr(each, field) for each in runs) for field in Round._fields}
                for name, runs in rounds.items()
            }
            if len(found) > 1:
                ours, theirs = (rounds[peer.name] for peer in found)
                row["ratio"] = {
                    field: statistics.median(
                        getattr(a, field) / max(getattr(b, field), 1e-9) for a, b in zip(ours, theirs, strict=True)
                    )
                    for field in Round._fields
                }
            results[str(connections)] = row
    if options.json:
        print(json.dumps(results, indent=1))
        return
    print(f"{'connections':>11}  {'':12}  {'requests/s':>10}  {'p50 ms':>7}  {'p99 ms':>7}  {'CPU s':>6}")
    for connection_count, row in results.items():
        for name, each in row.items():
            print(
                f"{connection_count:>11}  {name:12}  {each['requests_per_s']:>10.2f}  {each['p50_ms']:>7.3f}  "
                f"{each['p99_ms']:>7.3f}  {each['broker_cpu_s']:>6.2f}"
            )


if __name__ == "__main__":
    main()
