"""Measures what a flood of refused connections costs the others.

Two processes connect to an instance whose address list does not allow them, as fast as they can. Meanwhile a client
produces single records, one in flight, to the topic of another instance. `times` is the quotient of the p99s.

    python benchmarks/instances/refused_connections.py [--seconds 5] [--rounds 3] [--json]
"""

import argparse
import json
import multiprocessing
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import NamedTuple

import psutil

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.request_load import produce_frame
from headrace.client.core.cluster import Cluster
from headrace.client.operations.admin import Admin
from headrace.client.operations.instance_admin import InstanceAdmin
from tests.harness import HeadraceServer, receive_frame

FLOODERS, NETWORKS = 2, 10_000
DENIED = "127.0.0.2"


class Measured(NamedTuple):
    """One round."""

    calm_p99_ms: float
    flood_p99_ms: float
    refused_per_s: float
    cpu_us_per_refused: float


def flood(port: int, stop: "Synchronized[int]", counted: "Synchronized[int]") -> None:
    """Connects until it is told to stop."""
    count = 0
    while not stop.value:
        with suppress(OSError), socket.socket() as sock:
            sock.settimeout(5)
            sock.bind((DENIED, 0))
            sock.connect(("127.0.0.1", port))
            sock.recv(1)
            count += 1
    with counted.get_lock():
        counted.value += count


def produce_for(port: int, frame: bytes, seconds: float) -> list[float]:
    """Latencies of produces, in ms."""
    found = []
    with socket.create_connection(("127.0.0.1", port)) as sock:
        end = time.perf_counter() + seconds
        while (began := time.perf_counter()) < end:
            sock.sendall(frame)
            receive_frame(sock)
            found.append((time.perf_counter() - began) * 1000)
            time.sleep(0.001)
    return found


def p99(latencies: list[float]) -> float:
    """The 99th percentile."""
    return statistics.quantiles(latencies, n=100)[-1]


def measure(victim: int, target: int, process: psutil.Process, frame: bytes, seconds: float) -> Measured:
    """One calm time, and one with the flood."""
    calm = p99(produce_for(victim, frame, seconds))
    stop, counted = multiprocessing.Value("i", 0), multiprocessing.Value("i", 0)
    flooders = [multiprocessing.Process(target=flood, args=(target, stop, counted)) for _ in range(FLOODERS)]
    for each in flooders:
        each.start()
    before, began = cpu_s(process), time.perf_counter()
    loud = p99(produce_for(victim, frame, seconds))
    stop.value = 1
    elapsed, used = time.perf_counter() - began, cpu_s(process) - before
    for each in flooders:
        each.join()
    return Measured(calm, loud, counted.value / elapsed, used * 1e6 / max(1, counted.value))


def cpu_s(process: psutil.Process) -> float:
    """The processor time of the broker."""
    times = process.cpu_times()
    return float(times.user + times.system)


def run(seconds: float, rounds: int, say: Callable[[str], None]) -> list[Measured]:
    """Measures in a new broker."""
    with tempfile.TemporaryDirectory() as directory:
        server = HeadraceServer(Path(directory, "data")).start()
        try:
            with Cluster(server.bootstrap) as cluster:
                admin = InstanceAdmin(cluster)
                deny = [f"10.{n >> 8}.{n & 255}.0/24" for n in range(NETWORKS - 1)]
                admin.create_instance("target", {"deny": [*deny, DENIED]})
                admin.create_instance("victim")
                victim, target = (
                    int(admin.await_listeners(each).bootstrap.rpartition(":")[2]) for each in ("victim", "target")
                )
            with Cluster(f"127.0.0.1:{victim}") as cluster:
                Admin(cluster).create_topic("small")
            assert server.process is not None
            process, frame, found = psutil.Process(server.process.pid), produce_frame("small"), []
            for number in range(rounds):
                found.append(measure(victim, target, process, frame, seconds))
                say(f"round {number + 1}: {found[-1]}")
            return found
        finally:
            server.stop()


def main() -> None:
    """Prints the medians."""
    parser = argparse.ArgumentParser(description="Measures what a flood of refused connections costs the others.")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = run(given.seconds, given.rounds, lambda text: print(text, file=sys.stderr))
    columns = zip(Measured._fields, zip(*found, strict=True), strict=True)
    medians = {name: round(statistics.median(values), 3) for name, values in columns}
    medians["times"] = round(medians["flood_p99_ms"] / medians["calm_p99_ms"], 2)
    print(json.dumps(medians) if given.json else "\n".join(f"{name:22}{value:10}" for name, value in medians.items()))


if __name__ == "__main__":
    main()
