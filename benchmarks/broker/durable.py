"""Measures the cost of flushing records before they are acknowledged: `headrace.flush.acks` on and off, beside Apache
Kafka's `flush.messages=1`.

Requests have one 100-byte record and acks=1, over raw sockets, with one request in flight per connection, as in
`small_requests.py`. Both brokers run on this machine, but receive requests in turns. Reports medians of the rounds, and
the ratios of flushed headrace to the others within a round. An extra round under strace counts the syncs; strace slows
the broker down, so this round gives no other figure. The duration of a sync depends on the disk, which is measured
first: an append of 4 KiB and an fdatasync, repeatedly.

    python benchmarks/broker/durable.py [--seconds 2] [--rounds 5] [--json]
"""

import argparse
import json
import os
import shutil
import statistics
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

from small_requests import Peer, Round, listening_process, run_round

from tests.harness import HeadraceServer
from tests.peers import kafka
from tests.wire import Wire

CASES = ((1, 1), (10, 1), (50, 1), (50, 10))
"""Connections, and the partitions that they share."""
PARTITIONS = 10
COUNTING_S = 1.5


class Way(NamedTuple):
    """A case: a broker, a topic, and the settings of the topic."""

    name: str
    peer: Peer
    topic: str


def disk_sync_ms(directory: Path, seconds: float = 1) -> dict[str, float]:
    """The time of one appended and synced page in ms, without other load."""
    took, page, end = [], bytes(4096), time.perf_counter() + seconds
    with (directory / "page").open("wb", buffering=0) as file:
        while (started := time.perf_counter()) < end:
            file.write(page)
            os.fdatasync(file.fileno())
            took.append((time.perf_counter() - started) * 1e3)
    took.sort()
    return {"p50_ms": took[len(took) // 2], "p99_ms": took[int(len(took) * 0.99)]}


@contextmanager
def ways(directory: Path) -> Iterator[list[Way]]:
    """headrace with and without flushes, and Apache Kafka if it can run."""
    with ExitStack() as stack:
        server = HeadraceServer(directory / "headrace").start()
        stack.callback(server.stop)
        assert server.process is not None
        ours = Peer("headrace", server.port, psutil.Process(server.process.pid))
        found = [Way("headrace, flushed", ours, "flushed"), Way("headrace, not flushed", ours, "plain")]
        make(ours, "flushed", {"headrace.flush.acks": "true"})
        make(ours, "plain", {})
        if kafka.missing_tools() is None:
            port = int(stack.enter_context(kafka.run_kafka(directory / "kafka")).rpartition(":")[2])
            theirs = Peer("Apache Kafka", port, listening_process(port))
            make(theirs, "flushed", {"flush.messages": "1"})
            found.append(Way("Apache Kafka, flushed", theirs, "flushed"))
        for way in found:
            run_round(way.peer, 10, 2, way.topic, PARTITIONS)  # warms it up
        yield found


def make(peer: Peer, topic: str, settings: dict[str, str]) -> None:
    """Makes a topic."""
    with Wire(f"127.0.0.1:{peer.port}") as wire:
        assert wire.create_topic(topic, PARTITIONS, settings) == 0


def syncs_per_produce(way: Way, connections: int, partitions: int, directory: Path) -> float | None:
    """The broker's fsync, fdatasync and msync calls per acknowledged produce; None without strace."""
    if not shutil.which("strace"):
        return None
    trace = directory / "strace.out"
    command = ["strace", "-f", "-qq", "-e", "trace=fsync,fdatasync,msync", "-e", "signal=none", "-o", str(trace)]
    with subprocess.Popen([*command, "-p", str(way.peer.process.pid)], stderr=subprocess.DEVNULL) as strace:
        while "TracerPid:\t0" in Path(f"/proc/{way.peer.process.pid}/status").read_text():
            time.sleep(0.01)
        measured = run_round(way.peer, connections, COUNTING_S, way.topic, partitions)
        strace.terminate()
    calls = sum("sync(" in line for line in trace.read_text().splitlines())  # once, also of one in two halves
    return calls / (measured.requests_per_s * COUNTING_S)


def measure(seconds: float, rounds: int, directory: Path) -> dict[str, object]:
    """Measure all cases."""
    cases: dict[str, dict[str, dict[str, float | None]]] = {}
    disk = disk_sync_ms(directory)
    with ways(directory) as found:
        for connections, partitions in CASES:
            runs: dict[str, list[Round]] = {way.name: [] for way in found}
            for _ in range(rounds):
                for way in found:
                    runs[way.name].append(run_round(way.peer, connections, seconds, way.topic, partitions))
            row: dict[str, dict[str, float | None]] = {
                name: {field: statistics.median(getattr(each, field) for each in mine) for field in Round._fields}
                for name, mine in runs.items()
            }
            for way in found:
                row[way.name]["syncs_per_produce"] = syncs_per_produce(way, connections, partitions, directory)
            flushed, *others = found
            for other in others:
                row[f"ratio to {other.name}"] = {
                    field: statistics.median(
                        getattr(a, field) / max(getattr(b, field), 1e-9)
                        for a, b in zip(runs[flushed.name], runs[other.name], strict=True)
                    )
                    for field in Round._fields
                }
            cases[f"{connections} connections, {partitions} partition{'s' if partitions > 1 else ''}"] = row
    return {"load": os.getloadavg(), "disk": disk, "cases": cases}


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        results = measure(options.seconds, options.rounds, Path(directory))
    if options.json:
        print(json.dumps(results, indent=1))
        return
    print(f"one page appended and synced: {results['disk']}, load {results['load']}")
    cases = results["cases"]
    assert isinstance(cases, dict)
    for case, row in cases.items():
        print(case)
        for name, each in row.items():
            shown = "  ".join(f"{field} {value:.3f}" for field, value in each.items() if value is not None)
            print(f"  {name:32} {shown}")


if __name__ == "__main__":
    main()
