"""Measures what a broker pays as it grows: idle connections, partitions and groups beside the same traffic.

Two brokers run at the same time: one with nothing but a topic, and one that gets, step by step,

    connections   5,000 that have sent one request and are idle
    partitions    10,000 without records
    groups        1,000 of three members each, which heartbeat (coordination/groups.py)

After each step fifty connections with one 100-byte record in flight each ask both in turns. The p99 and the CPU of a
request are those of the pairs; the memory is the broker's, divided by what came. Then the general way of a request is
measured too: Metadata of one topic, and a Fetch that finds nothing new, on one connection.

    python benchmarks/broker/growth.py [--rounds 5] [--seconds 2] [--connections 5000] [--partitions 10000]
        [--groups 1000] [--json]
"""

import argparse
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.broker.small_requests import TOPIC, Peer, run_round
from benchmarks.paired import report, summarise
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.protocol.headers import write_request_header
from tests.harness import HeadraceServer, receive_frame
from tests.wire import Wire

BUSY_CONNECTIONS = 50
PARTITIONS_OF_A_TOPIC = 1_000
SETTLE_S = 3.0
GROUPS = Path(__file__).parents[1] / "coordination" / "groups.py"
GROUP_TOPIC = "group-benchmark"


class Memory(NamedTuple):
    """What one of them takes, in resident memory."""

    connection_bytes: float
    partition_bytes: float


class Asked(NamedTuple):
    """One round of one broker."""

    produce_p99_ms: float
    produce_cpu_us: float
    metadata_p50_ms: float
    fetch_p50_ms: float


def asked(peer: Peer, seconds: float) -> Asked:
    """Ask a broker for so long."""
    produced = run_round(peer, BUSY_CONNECTIONS, seconds)
    with socket.create_connection(("127.0.0.1", peer.port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        metadata = p50_ms(connection, metadata_frame(), seconds / 4)
        fetch = p50_ms(connection, fetch_frame(), seconds / 4)
    cpu_us = 1e6 * produced.broker_cpu_s / (produced.requests_per_s * seconds)
    return Asked(produced.p99_ms, cpu_us, metadata, fetch)


def p50_ms(connection: socket.socket, frame: bytes, seconds: float) -> float:
    """The median time of a request, one in flight."""
    times: list[float] = []
    ends = time.perf_counter() + seconds
    while (begun := time.perf_counter()) < ends:
        connection.sendall(frame)
        receive_frame(connection)
        times.append(time.perf_counter() - begun)
    return 1e3 * statistics.median(times)


def metadata_frame() -> bytes:
    """A Metadata request for the one topic."""
    topic = m.MetadataRequest.MetadataRequestTopic(name=TOPIC)
    return _frame(ApiKey.METADATA, 12, m.MetadataRequest(topics=[topic]))


def fetch_frame() -> bytes:
    """A Fetch from far behind the end: answered at once, with an error and no records."""
    partition = m.FetchRequest.FetchPartition(partition=0, fetch_offset=1 << 40, partition_max_bytes=1 << 20)
    topic = m.FetchRequest.FetchTopic(topic=TOPIC, partitions=[partition])
    return _frame(ApiKey.FETCH, 11, m.FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=0, topics=[topic]))


def _frame(key: ApiKey, version: int, request: Any) -> bytes:
    body = write_request_header(key, version, 1, "bench") + request.encode(version)
    return len(body).to_bytes(4, "big") + body


def connect(server: HeadraceServer, count: int) -> list[socket.socket]:
    """Idle connections, each of which has produced once."""
    found = []
    frame = metadata_frame()
    for _ in range(count):
        found.append(socket.create_connection(("127.0.0.1", server.port)))
        found[-1].sendall(frame)
        receive_frame(found[-1])
    return found


def create(server: HeadraceServer, count: int) -> None:
    """Partitions without records."""
    with Wire(server.bootstrap) as wire:
        for number in range(-(-count // PARTITIONS_OF_A_TOPIC)):
            some = min(PARTITIONS_OF_A_TOPIC, count - number * PARTITIONS_OF_A_TOPIC)
            if code := wire.create_topic(f"many-{number}", some):
                raise RuntimeError(f"many-{number} cannot be created: error {code}")


@contextmanager
def heartbeats(server: HeadraceServer, groups: int) -> Iterator[None]:
    """Groups of three members that heartbeat."""
    command = [sys.executable, str(GROUPS), "members", str(server.port), str(groups)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as members:
        assert members.stdout is not None
        assert members.stdin is not None
        if members.stdout.readline() != "complete\n":
            raise RuntimeError(f"the members ended with {members.wait()}")
        yield
        members.stdin.close()


def resident(peer: Peer) -> int:
    """The resident memory of a broker, in bytes, when it is idle."""
    time.sleep(SETTLE_S)
    return int(peer.process.memory_info().rss)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--connections", type=int, default=5_000)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--groups", type=int, default=1_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    results = {}
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers, peers = [], []
        for name in ("grown", "small"):
            servers.append(HeadraceServer(directory / name).start())
            stack.callback(servers[-1].stop)
            process = servers[-1].process
            assert process is not None
            peers.append(Peer(name, servers[-1].port, psutil.Process(process.pid)))
            with Wire(servers[-1].bootstrap) as wire:
                wire.create_topic(TOPIC)
                wire.create_topic(GROUP_TOPIC, 3)
            asked(peers[-1], options.seconds)  # warms it up
        grown, peer = servers[0], peers[0]

        def measure(step: str) -> None:
            rounds: dict[str, list[Asked]] = {each.name: [] for each in peers}
            for _ in range(options.rounds):
                for each in peers:
                    rounds[each.name].append(asked(each, options.seconds))
            results[step] = summarise(rounds)

        measure("nothing more")
        before = resident(peer)
        idle = [stack.enter_context(each) for each in connect(grown, options.connections)]
        a_connection = (resident(peer) - before) / len(idle)
        measure(f"{options.connections:,} idle connections")
        before = resident(peer)
        create(grown, options.partitions)
        a_partition = (resident(peer) - before) / options.partitions
        measure(f"and {options.partitions:,} partitions")
        with heartbeats(grown, options.groups):
            measure(f"and {options.groups:,} groups")
        results["memory"] = summarise({"headrace": [Memory(a_connection, a_partition)]})
    report(results, as_json=options.json)


if __name__ == "__main__":
    main()
