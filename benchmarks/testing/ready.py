"""Measures the start and stop of `headrace.testing.Broker` in tests, with `import pytest` for comparison.

    first in process    in a new interpreter, which includes the import of the broker
    in process          any later broker in that interpreter
    subprocess          a new interpreter each time

Reports medians of ten runs of each, in turns, with a warm file cache. CPU is the total of start and stop; on a busy
machine it is more reliable than the elapsed time. Prints a table and writes the figures to `ready.json` beside this
file. Usage: python benchmarks/testing/ready.py
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from headrace.testing import Broker

RUNS = 10
RESULTS = Path(__file__).with_name("ready.json")
FIRST = """
import time
from headrace.testing import Broker
started, cpu = time.perf_counter(), time.process_time()
with Broker():
    ready = time.perf_counter()
print(ready - started, time.perf_counter() - ready, time.process_time() - cpu)
"""
PLUGIN = """
import pytest, time
started, cpu = time.perf_counter(), time.process_time()
import headrace.testing.pytest_plugin
print(time.perf_counter() - started, 0, time.process_time() - cpu)
"""


class Run(NamedTuple):
    """The seconds of one run."""

    ready: float
    gone: float
    cpu: float


def in_fresh_interpreter(script: str) -> Run:
    """The three numbers that a script prints, run in a new interpreter."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return Run(*map(float, done.stdout.split()))


def here(*, in_process_of_its_own: bool) -> Run:
    """Measure a broker that this process starts."""
    started, cpu = time.perf_counter(), cpu_seconds()
    with Broker(subprocess=in_process_of_its_own):
        ready = time.perf_counter()
    return Run(ready - started, time.perf_counter() - ready, cpu_seconds() - cpu)


def cpu_seconds() -> float:
    """The CPU seconds of this process and of its finished child processes."""
    times = os.times()
    return sum(times[:4])


CASES: dict[str, Callable[[], Run]] = {
    "first in process": lambda: in_fresh_interpreter(FIRST),
    "in process": lambda: here(in_process_of_its_own=False),
    "subprocess": lambda: here(in_process_of_its_own=True),
    "plugin, unused": lambda: in_fresh_interpreter(PLUGIN),
}


def main() -> None:
    """Runs all cases in turns and prints the medians."""
    for case in CASES.values():
        case()  # warm-up
    runs: dict[str, list[Run]] = {name: [] for name in CASES}
    load_before = os.getloadavg()[0]
    for _ in range(RUNS):
        for name, case in CASES.items():
            runs[name].append(case())
    about = {
        "runs": RUNS,
        "cores": os.cpu_count(),
        "load_before_and_after": [round(load_before, 1), round(os.getloadavg()[0], 1)],
        "niceness": os.nice(0),
        "python": sys.version.split()[0],
    }
    figures = {name: summary(each) for name, each in runs.items()}
    RESULTS.write_text(json.dumps({"about": about, "figures": figures}, indent=2) + "\n")
    print(", ".join(f"{name} {value}" for name, value in about.items()))
    for name, found in figures.items():
        print(f"{name:<18}", ", ".join(f"{what} {value}" for what, value in found.items()))


def summary(runs: Sequence[Run]) -> dict[str, float | list[float]]:
    """The medians, and the spread of the waiting times."""
    ready = [milliseconds(each.ready) for each in runs]
    return {
        "ready_ms": round(statistics.median(ready), 1),
        "ready_ms_spread": [min(ready), max(ready)],
        "gone_ms": milliseconds(statistics.median(each.gone for each in runs)),
        "cpu_ms": milliseconds(statistics.median(each.cpu for each in runs)),
    }


def milliseconds(seconds: float) -> float:
    """Milliseconds, rounded to a tenth."""
    return round(seconds * 1_000, 1)


if __name__ == "__main__":
    main()
