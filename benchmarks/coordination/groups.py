"""Measures consumer groups, headrace beside Apache Kafka: how long a large group needs to join, and what many small
groups cost the producers.

    join    1,000 members join a group and share the partitions of a topic, by KIP-848 and by the classic protocol:
            seconds until each partition has its owner, and CPU seconds of the broker
    beats   the p99 of a paced producer without load, and while 1,000 groups of 3 members of KIP-848 heartbeat; with
            --elsewhere also while they heartbeat to another headrace: what the machine adds, and not the broker

Both brokers have Kafka's default settings. Both run at the same time on this machine, but receive requests in turns.
Reports medians of the rounds, and the ratio of each pair. Apache Kafka needs Java and Maven.

    python benchmarks/coordination/groups.py [join|beats] [--rounds 3] [--members 1000] [--partitions 1000]
                                             [--groups 1000] [--seconds 20] [--alone] [--elsewhere] [--json]
"""

import argparse
import asyncio
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.broker.small_requests import Peer, listening_process
from benchmarks.coordination.group_members import KINDS, Connection, Group, Member, NewMember, find_coordinator
from benchmarks.paired import Summary, report, summarise
from benchmarks.request_load import produce_frame
from tests.harness import HeadraceServer
from tests.peers import kafka
from tests.wire import Wire

TOPIC = "group-benchmark"
MEMBERS_OF_A_SMALL_GROUP = 3
PACE_S = 0.005
JOIN_TIMEOUT_S = 300
SETTINGS = {
    key: value
    for key, value in kafka.SHARED_SETTINGS.items()
    if not key.startswith("group.")  # groups have Kafka's defaults
}


class Joined(NamedTuple):
    """One group that joined."""

    join_s: float
    broker_cpu_s: float


class Share(NamedTuple):
    """What of one core the broker took while groups sent heartbeats."""

    broker_cpu_share: float


class Produced(NamedTuple):
    """The latency of a paced producer."""

    p50_ms: float
    p99_ms: float


@contextmanager
def brokers(partitions: int, *, alone: bool) -> Iterator[list[Peer]]:
    """headrace, and Apache Kafka if it can run, each with the topic."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = HeadraceServer(directory / "headrace", SETTINGS).start()
        stack.callback(server.stop)
        assert server.process is not None
        found = [Peer("headrace", server.port, psutil.Process(server.process.pid))]
        if not alone and kafka.missing_tools() is None:
            running = kafka.run_kafka(directory / "kafka", is_kept=False, settings=SETTINGS)
            port = int(stack.enter_context(running).rpartition(":")[2])
            found.append(Peer("Apache Kafka", port, listening_process(port)))
        for peer in found:
            with Wire(f"127.0.0.1:{peer.port}") as wire:
                wire.create_topic(TOPIC, partitions)
        yield found


async def join(peer: Peer, kind: str, members: int, partitions: int) -> Joined:
    """A new group of this kind joins, and leaves afterwards."""
    group = Group(f"{kind}-{time.time_ns()}", TOPIC, partitions, members)
    connections = [await Connection.to(peer.port) for _ in range(members)]
    await find_coordinator(connections[0], group.group_id)
    joining: list[Member] = [KINDS[kind](group, each) for each in connections]
    cpu_before, start = cpu_s(peer), time.perf_counter()
    tasks = [asyncio.create_task(member.run()) for member in joining]
    complete = asyncio.create_task(group.complete.wait())
    await asyncio.wait([complete, *tasks], timeout=JOIN_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        if task.done():
            task.result()  # raises what it ended with
    assert complete.done(), f"{peer.name}: the group was not complete after {JOIN_TIMEOUT_S} s"
    joined = Joined(time.perf_counter() - start, cpu_s(peer) - cpu_before)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for each in connections:
        each.close()  # an answer may still come
    goodbye = await Connection.to(peer.port)
    for member in joining:
        await goodbye.ask(*member.leaving())
    goodbye.close()
    return joined


def cpu_s(peer: Peer) -> float:
    """The CPU seconds that the broker has used."""
    times = peer.process.cpu_times()
    return times.user + times.system


async def heartbeat(port: int, groups: int) -> None:
    """Small groups join and heartbeat until stdin ends. Prints a line when all are complete."""
    found = [Group(f"small-{number}", TOPIC, 3, MEMBERS_OF_A_SMALL_GROUP) for number in range(groups)]
    tasks: list[asyncio.Task[None]] = []
    await find_coordinator(await Connection.to(port), found[0].group_id)
    for group in found:
        members = [NewMember(group, await Connection.to(port)) for _ in range(MEMBERS_OF_A_SMALL_GROUP)]
        tasks += [asyncio.create_task(member.run()) for member in members]
        await asyncio.sleep(0.005)  # spreads the heartbeats
    await asyncio.gather(*(group.complete.wait() for group in found))
    print("complete", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for task in tasks:
        task.cancel()


@contextmanager
def heartbeats(port: int, groups: int) -> Iterator[None]:
    """Small groups that heartbeat, in a process of their own."""
    command = [sys.executable, __file__, "members", str(port), str(groups)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as members:
        assert members.stdout is not None
        assert members.stdin is not None
        if members.stdout.readline() != "complete\n":
            raise RuntimeError(f"the members at port {port} ended with {members.wait()}")
        yield
        members.stdin.close()


@contextmanager
def another_broker() -> Iterator[int]:
    """The port of another headrace, with the topic."""
    with tempfile.TemporaryDirectory() as directory:
        server = HeadraceServer(Path(directory), SETTINGS).start()
        try:
            with Wire(server.bootstrap) as wire:
                wire.create_topic(TOPIC, 3)
            yield server.port
        finally:
            server.stop()


def produce(peer: Peer, seconds: float) -> Produced:
    """One small record after the other, one every few milliseconds."""
    frame, latencies = produce_frame(TOPIC), []
    with socket.create_connection(("127.0.0.1", peer.port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        start = time.perf_counter()
        for number in range(int(seconds / PACE_S)):
            due = start + number * PACE_S
            time.sleep(max(0.0, due - time.perf_counter()))
            sent = time.perf_counter()
            connection.sendall(frame)
            assert connection.recv(4096), f"{peer.name} closed the connection"
            latencies.append(time.perf_counter() - sent)
    latencies.sort()
    return Produced(latencies[len(latencies) // 2] * 1e3, latencies[int(len(latencies) * 0.99)] * 1e3)


def measure_joins(options: argparse.Namespace) -> dict[str, Summary]:
    """Both protocols, in turns."""
    results: dict[str, Summary] = {}
    with brokers(options.partitions, alone=options.alone) as found:
        for kind in options.kind or KINDS:
            for peer in found:
                asyncio.run(join(peer, kind, 50, options.partitions))  # warms it up
            runs: dict[str, list[Joined]] = {peer.name: [] for peer in found}
            for _ in range(options.rounds):
                for peer in found:
                    runs[peer.name].append(asyncio.run(join(peer, kind, options.members, options.partitions)))
            results[kind] = summarise(runs)
    return results


def measure_heartbeats(options: argparse.Namespace) -> dict[str, Summary]:
    """The producer without load and under load, broker by broker."""
    results: dict[str, Summary] = {}
    shares: dict[str, list[Share]] = {}
    with brokers(3, alone=options.alone) as found:
        for peer in found:
            produce(peer, 3)  # warms it up
            unloaded = [produce(peer, options.seconds) for _ in range(options.rounds)]
            elsewhere = []
            if options.elsewhere:
                with another_broker() as port, heartbeats(port, options.groups):
                    elsewhere = [produce(peer, options.seconds) for _ in range(options.rounds)]
            with heartbeats(peer.port, options.groups):
                before = cpu_s(peer)
                loaded = [produce(peer, options.seconds) for _ in range(options.rounds)]
                cpu = cpu_s(peer) - before
            sides = {"with heartbeats": loaded, "without heartbeats": unloaded}
            if elsewhere:
                sides["heartbeats elsewhere"] = elsewhere
            results[peer.name] = summarise(sides)
            shares[peer.name] = [Share(cpu / options.seconds / options.rounds)]
    results["processor time"] = summarise(shares)
    return results


def main() -> None:
    """Measures and prints."""
    if sys.argv[1:2] == ["members"]:
        asyncio.run(heartbeat(int(sys.argv[2]), int(sys.argv[3])))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("join", "beats"), nargs="?", default="join")
    parser.add_argument("--kind", action="append", choices=KINDS, help="of joins; both by default")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--members", type=int, default=1000)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=20, help="of a round of the producer")
    parser.add_argument("--alone", action="store_true", help="without Apache Kafka")
    parser.add_argument("--elsewhere", action="store_true", help="let the members heartbeat to another broker, too")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results = measure_joins(options) if options.what == "join" else measure_heartbeats(options)
    report(results, as_json=options.json)


if __name__ == "__main__":
    main()
