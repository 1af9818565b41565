"""From process start to `ready HOST:PORT`: time and processor time; and what an idle broker holds in memory.

Medians of ten starts on an empty directory and of ten on one that was filled, warm file cache. Prints a table, or
with `--json` one object. Usage: python benchmarks/broker/startup.py [--json]
"""

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

RUNS = 10
SETTLE_SECONDS = 0.5


class Start(NamedTuple):
    """One start of a broker."""

    ready_ms: float
    cpu_ms: float
    idle_mib: float


def measure(data: Path) -> Start:
    """Start a broker, look at it once it is idle, stop it."""
    started = time.perf_counter()
    server = HeadraceServer(data).start()
    ready_ms = 1_000 * (time.perf_counter() - started)
    assert server.process is not None
    process = psutil.Process(server.process.pid)
    used = process.cpu_times()
    time.sleep(SETTLE_SECONDS)
    resident = process.memory_info().rss
    server.stop()
    return Start(ready_ms, 1_000 * (used.user + used.system), resident / (1 << 20))


def fill(data: Path) -> None:
    """Ten topics of three partitions, with something in each."""
    server = HeadraceServer(data).start()
    with Wire(server.bootstrap) as wire:
        for number in range(10):
            wire.create_topic(f"topic-{number}", 3)
            for partition in range(3):
                wire.produce(f"topic-{number}", batch([b"x" * 1_000] * 100), partition=partition)
    server.stop()


def main() -> None:
    """Runs both cases and prints them."""
    with tempfile.TemporaryDirectory() as directory:
        measure(Path(directory, "warm-up"))
        empty = [measure(Path(directory, f"empty-{number}")) for number in range(RUNS)]
        fill(Path(directory, "filled"))
        filled = [measure(Path(directory, "filled")) for _ in range(RUNS)]
    results = {
        name: {figure: round(statistics.median(getattr(each, figure) for each in runs), 1) for figure in Start._fields}
        for name, runs in (("empty directory", empty), ("30 partitions", filled))
    }
    if "--json" in sys.argv:
        print(json.dumps(results))
        return
    for name, figures in results.items():
        print(
            f"{name:<16} ready in {figures['ready_ms']:.0f} ms (median of {RUNS}), "
            f"{figures['cpu_ms']:.0f} ms of processor time, idle {figures['idle_mib']} MiB"
        )


if __name__ == "__main__":
    main()
