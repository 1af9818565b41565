"""Measures how the throughput of small requests grows with workers: `headrace serve --workers 1` beside `--workers 2`.

Each worker is pinned to a core of its own, together with a client process that sends it requests of one 100-byte
record, acks=1, on so many connections with one request in flight each. A pair does the same work whether the other core
is idle or not, so the ratio of two pairs to one shows what workers share: caches, memory, the kernel, the supervisor.
Reports medians of the rounds, and the ratio of each pair of rounds.

    python benchmarks/broker/workers.py [--seconds 4] [--rounds 5] [--connections 50] [--json]
"""

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil
from confluent_kafka.admin import AdminClient, NewTopic

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.broker.small_requests import Peer, Round, listening_process, run_round
from tests.harness import HeadraceServer, free_range

CORES = sorted(os.sched_getaffinity(0))


class Group(NamedTuple):
    """The workers of one supervisor: what asks each, and the supervisor's process."""

    peers: list[Peer]
    supervisor: psutil.Process


class Sum(NamedTuple):
    """The result of one round of all workers."""

    requests_per_s: float
    p99_ms: float
    workers_cpu_s: float
    supervisor_cpu_s: float


@contextmanager
def workers(count: int, directory: Path) -> Iterator[Group]:
    """So many workers, each on a core of its own, with a topic each that it leads."""
    listen = f"127.0.0.1:{free_range(count)}"
    server = HeadraceServer(directory / f"workers-{count}", arguments=("--workers", str(count)), listen=listen).start()
    try:
        assert server.process is not None
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        peers = []
        for number, address in enumerate(server.bootstrap.split(",")):
            port = int(address.rpartition(":")[2])
            process = listening_process(port)
            process.cpu_affinity([CORES[number]])
            new = NewTopic(f"topic-{number}", 1, replica_assignment=[[number]])
            admin.create_topics([new])[new.topic].result()
            peers.append(Peer(f"topic-{number}", port, process))
        yield Group(peers, psutil.Process(server.process.pid))
    finally:
        server.stop()


def ask(group: Group, connections: int, seconds: float) -> Sum:
    """Asks all workers at the same time, each from a process on its core."""
    with multiprocessing.get_context("fork").Pool(len(group.peers)) as pool:
        before = group.supervisor.cpu_times()
        work = [(each.name, each.port, connections, seconds, CORES[n]) for n, each in enumerate(group.peers)]
        found = pool.starmap(_ask_one, work)
        after = group.supervisor.cpu_times()
    return Sum(
        sum(each.requests_per_s for each in found),
        max(each.p99_ms for each in found),
        sum(each.broker_cpu_s for each in found),
        after.user + after.system - before.user - before.system,
    )


def _ask_one(topic: str, port: int, connections: int, seconds: float, core: int) -> Round:
    os.sched_setaffinity(0, [core])
    return run_round(Peer(topic, port, listening_process(port)), connections, seconds, topic)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--connections", type=int, default=50)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    counts = [each for each in (1, 2) if each <= len(CORES)]
    rounds: dict[int, list[Sum]] = {each: [] for each in counts}
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        groups = {count: stack.enter_context(workers(count, directory)) for count in counts}
        for group in groups.values():
            ask(group, options.connections, 3)  # warms it up
        for _ in range(options.rounds):
            for count, group in groups.items():
                rounds[count].append(ask(group, options.connections, options.seconds))
    results: dict[str, dict[str, float]] = {
        f"{count} workers": {field: statistics.median(getattr(each, field) for each in some) for field in Sum._fields}
        for count, some in rounds.items()
    }
    results["ratio"] = {
        "requests_per_s": statistics.median(
            b.requests_per_s / a.requests_per_s for a, b in zip(rounds[1], rounds[counts[-1]], strict=True)
        )
    }
    if options.json:
        print(json.dumps(results, indent=1))
        return
    for name, row in results.items():
        print(f"{name:10}", "  ".join(f"{field} {value:,.2f}" for field, value in row.items()))


if __name__ == "__main__":
    main()
