"""Measures the start of a broker with ten thousand partitions, after a clean stop and after `kill -9`.

Reports the time from process start to `ready HOST:PORT`, the processor time until then, and the resident memory of the
idle broker. `--records` writes one batch to each partition first.
Usage: python benchmarks/log/many_partitions.py [--partitions 10000] [--runs 3] [--records]
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import psutil

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.harness import HeadraceServer
from tests.wire import Wire, batch

PARTITIONS_PER_TOPIC = 1_000
SETTLE_SECONDS = 2


class Start(NamedTuple):
    """One start of a broker: the time until it is ready, and its memory when it is idle."""

    seconds: float
    cpu_seconds: float
    idle_mib: float


def start(data: Path) -> tuple[HeadraceServer, Start]:
    """Start a broker on `data`; returns it with the measured start."""
    began = time.perf_counter()
    server = HeadraceServer(data).start()
    seconds = time.perf_counter() - began
    assert server.process is not None
    process = psutil.Process(server.process.pid)
    used = process.cpu_times()
    time.sleep(SETTLE_SECONDS)
    return server, Start(seconds, used.user + used.system, process.memory_info().rss / (1 << 20))


def fill(data: Path, partitions: int, *, records: bool) -> float:
    """Create the topics; returns the seconds."""
    server = HeadraceServer(data).start()
    began = time.perf_counter()
    with Wire(server.bootstrap) as wire:
        for number in range(-(-partitions // PARTITIONS_PER_TOPIC)):
            count = min(PARTITIONS_PER_TOPIC, partitions - number * PARTITIONS_PER_TOPIC)
            if error := wire.create_topic(f"topic-{number}", count):
                raise SystemExit(f"topic-{number} could not be made: error {error}")
            for partition in range(count if records else 0):
                wire.produce(f"topic-{number}", batch([b"x" * 100]), partition=partition)
    seconds = time.perf_counter() - began
    server.stop()
    return seconds


def main() -> None:
    """Fills a directory, then starts a broker on it again and again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--records", action="store_true")
    wanted = parser.parse_args()
    clean, killed = [], []
    with tempfile.TemporaryDirectory() as directory:
        data = Path(directory, "data")
        made = fill(data, wanted.partitions, records=wanted.records)
        for _ in range(wanted.runs):
            server, took = start(data)
            clean.append(took)
            server.kill()
            server, took = start(data)
            killed.append(took)
            server.stop()
    results = {
        name: {figure: round(statistics.median(getattr(each, figure) for each in runs), 2) for figure in Start._fields}
        for name, runs in (("after a clean stop", clean), ("after kill -9", killed))
    }
    print(json.dumps({"partitions": wanted.partitions, "made in s": round(made, 1), **results}, indent=1))


if __name__ == "__main__":
    main()
