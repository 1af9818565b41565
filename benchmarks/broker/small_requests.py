"""Measures requests with one 100-byte record, acks=1, over raw sockets: headrace, the floor and Apache Kafka, in turns.

The floor (`floor.c`) is a program in C that does the least there is to do for such a request, on one core: a ratio to
it in the same round says how much of one core's possible rate a broker reaches. Each connection has one request in
flight. The client is a single thread with little work per request (10 µs), because it shares the machine with the
broker, and a broker of several threads lacks the CPU time that the client uses. All run at the same time on this
machine, but receive requests in turns, after `--warm` seconds of load each: code that the JVM has not compiled yet
would flatter us. Reports medians of the rounds with their spread, and the ratios of headrace in each round to the
others. CPU is that of the broker. A peer is left out where what it needs is missing: a C compiler, or Java and Maven.
With `--workers 2` headrace is two brokers, each of which gets half of the connections from a client process of its own.

    python benchmarks/broker/small_requests.py [--seconds 4] [--rounds 5] [--warm 60] [--connections 1,10,50,500]
                                               [--workers N] [--json]
"""

import argparse
import multiprocessing
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil
from confluent_kafka.admin import AdminClient, NewTopic

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.paired import report, summarise
from benchmarks.request_load import Loaded as Round
from benchmarks.request_load import cpu_seconds, load, produce_frame
from tests.harness import HeadraceServer, free_ports, free_range, stop_process
from tests.peers import kafka
from tests.wire import Wire

TOPIC = "small-requests"
CONNECTIONS = (1, 10, 50, 500)
FLOOR = Path(__file__).with_name("floor.c")


class Result(NamedTuple):
    """What is reported of a round."""

    requests_per_s: float
    p50_ms: float
    p99_ms: float
    broker_cpu_us_per_request: float


class Peer(NamedTuple):
    """A measured broker: its name, its port, and its process. `others`: further workers of the same name."""

    name: str
    port: int
    process: psutil.Process
    others: tuple["Peer", ...] = ()


def run_round(peer: Peer, connections: int, seconds: float, topic: str = TOPIC, partitions: int = 1) -> Round:
    """Loads a broker for `seconds`; each connection sends to one partition."""
    targets = [(peer.port, produce_frame(topic, number)) for number in range(partitions)]
    return load(targets, connections, seconds, lambda: cpu_seconds([peer.process]))


def run_all(peer: Peer, connections: int, seconds: float) -> Round:
    """As `run_round`, with the connections spread over the peer's workers, each of which has a client of its own."""
    if not peer.others:
        return run_round(peer, connections, seconds)
    workers = [peer._replace(others=()), *peer.others]
    context = multiprocessing.get_context("fork")
    with context.Pool(len(workers)) as clients:
        share = max(1, connections // len(workers))
        calls = [
            clients.apply_async(
                _of_pid, (each.port, each.process.pid, share, seconds, TOPIC if not n else f"{TOPIC}-{n}")
            )
            for n, each in enumerate(workers)
        ]
        rounds = [each.get() for each in calls]
    rate, cpu_s = sum(each.requests_per_s for each in rounds), sum(each.broker_cpu_s for each in rounds)
    return Round(rate, max(each.p50_ms for each in rounds), max(each.p99_ms for each in rounds), cpu_s)


def _of_pid(port: int, pid: int, connections: int, seconds: float, topic: str) -> Round:
    return run_round(Peer("headrace", port, psutil.Process(pid)), connections, seconds, topic)


@contextmanager
def peers(warm_s: float = 3, workers: int = 1, *, with_floor: bool = False) -> Iterator[list[Peer]]:
    """headrace, the floor if it is wanted and there is a compiler, and Apache Kafka if it can run."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        found = [headrace(stack, directory / "headrace", workers)]
        compiler = shutil.which("cc")
        if with_floor and compiler is not None:
            found.append(floor(stack, directory, compiler))
        if kafka.missing_tools() is None:
            port = int(stack.enter_context(kafka.run_kafka(directory / "kafka")).rpartition(":")[2])
            found.append(Peer("Apache Kafka", port, listening_process(port)))
            with Wire(f"127.0.0.1:{port}") as wire:
                wire.create_topic(TOPIC, 1)
        for peer in found:
            run_all(peer, 10, warm_s)
        yield found


def headrace(stack: ExitStack, directory: Path, workers: int = 1) -> Peer:
    """A broker, or so many workers, each of which leads a topic with one partition."""
    arguments = () if workers == 1 else ("--workers", str(workers))
    listen = f"127.0.0.1:{free_range(workers)}"
    server = HeadraceServer(directory, arguments=arguments, listen=listen).start()
    stack.callback(server.stop)
    ports = [int(each.rpartition(":")[2]) for each in server.bootstrap.split(",")]
    made = [Peer("headrace", port, listening_process(port)) for port in ports]
    with Wire(f"127.0.0.1:{ports[0]}") as wire:
        if workers == 1:
            wire.create_topic(TOPIC, 1)
        else:
            admin = AdminClient({"bootstrap.servers": server.bootstrap})
            names = [TOPIC if not number else f"{TOPIC}-{number}" for number in range(workers)]
            topics = [NewTopic(name, 1, replica_assignment=[[number]]) for number, name in enumerate(names)]
            for each in admin.create_topics(topics).values():
                each.result()
    return made[0]._replace(others=tuple(made[1:]))


def floor(stack: ExitStack, directory: Path, compiler: str) -> Peer:
    """The floor, compiled and started."""
    program, (port,) = directory / "floor", free_ports(1)
    subprocess.run([compiler, "-O3", "-msse4.2", "-mpclmul", "-o", str(program), str(FLOOR)], check=True)
    process = subprocess.Popen([str(program), str(port), str(directory)], stdout=subprocess.PIPE)
    stack.callback(stop_process, process)
    assert process.stdout is not None
    process.stdout.readline()
    return Peer("floor", port, psutil.Process(process.pid))


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
    parser.add_argument("--warm", type=float, default=60, help="seconds of load on each broker before the rounds")
    parser.add_argument("--connections", default=",".join(map(str, CONNECTIONS)))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results = {}
    with peers(options.warm, options.workers, with_floor=True) as found:
        for connections in map(int, options.connections.split(",")):
            rounds: dict[str, list[Result]] = {peer.name: [] for peer in found}
            for _ in range(options.rounds):
                for peer in found:
                    rounds[peer.name].append(result(run_all(peer, connections, options.seconds), options.seconds))
            results[f"{connections} connection{'s' if connections > 1 else ''}"] = summarise(rounds)
    report(results, as_json=options.json)


def result(one: Round, seconds: float) -> Result:
    """What is reported of a round of so many seconds."""
    return Result(*one[:3], 1e6 * one.broker_cpu_s / (one.requests_per_s * seconds))


if __name__ == "__main__":
    main()
