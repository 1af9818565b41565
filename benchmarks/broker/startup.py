"""Measures a start from process start to `ready HOST:PORT`, its imports, and the memory of an idle broker.

Reports the time and processor time of twenty starts on an empty directory and of twenty on a filled one: medians, with
a warm file cache and modules compiled to byte code, as in an installation. Then it compares the import time of each
package with its budget (`python -X importtime`, the best of five, which is slower than an ordinary import). Prints
tables, or one object with `--json`.

With `--beside PYTHON`, the interpreter of another installation starts alternately, for comparison.
Usage: python benchmarks/broker/startup.py [--json] [--beside PYTHON]
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.harness import HeadraceServer, child_environment
from tests.wire import Wire, batch

RUNS = 20
IMPORT_RUNS = 5
SETTLE_SECONDS = 0.5

BUDGET_MS = {
    "headrace.broker": 26,
    "headrace.network": 4,
    "headrace.log": 18,
    "headrace.controller": 12,
    "headrace.metadata": 7,
    "headrace.metastore": 4,
    "headrace.records": 12,
    "headrace.coordinators": 14,
    "headrace.config": 18,
    "headrace.protocol": 6,
    "headrace.replication": 3,
    "headrace, the rest": 5,
    "asyncio": 10,
    "ssl": 7,
    "uvloop": 6,
    "standard library, the rest": 50,
    "other packages": 2,
}
"""For each package's modules, without those that they import from other packages."""

_OF_ITS_OWN = ("asyncio", "uvloop", "ssl")
_LINE = re.compile(r"import time:\s+(\d+) \|\s+\d+ \|\s*(\S+)")


class Start(NamedTuple):
    """One start of a broker."""

    ready_ms: float
    cpu_ms: float
    idle_mib: float


class Server(HeadraceServer):
    """`headrace serve` of any installation."""

    python = sys.executable

    def command(self) -> list[str]:
        """The command line that starts it."""
        return [self.python, *super().command()[1:]]


def measure(data: Path, python: str) -> Start:
    """Start a broker, measure it when it is idle, and stop it."""
    server = Server(data)
    server.python = python
    started = time.perf_counter()
    server.start()
    ready_ms = 1_000 * (time.perf_counter() - started)
    assert server.process is not None
    process = psutil.Process(server.process.pid)
    used = process.cpu_times()
    time.sleep(SETTLE_SECONDS)
    resident = process.memory_info().rss
    server.stop()
    return Start(ready_ms, 1_000 * (used.user + used.system), resident / (1 << 20))


def fill(data: Path) -> None:
    """Create ten topics of three partitions, with records in each."""
    server = HeadraceServer(data).start()
    with Wire(server.bootstrap) as wire:
        for number in range(10):
            wire.create_topic(f"topic-{number}", 3)
            for partition in range(3):
                wire.produce(f"topic-{number}", batch([b"x" * 1_000] * 100), partition=partition)
    server.stop()


def import_times_ms(data: Path) -> tuple[dict[str, float], int]:
    """The import time of one broker until it stops, by package, and the number of modules."""
    server = HeadraceServer(data)
    command = server.command()
    log = data.with_name("imports")
    with log.open("w") as errors:
        process = subprocess.Popen(
            [command[0], "-X", "importtime", *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=child_environment(),
        )
        assert process.stdout is not None
        process.stdout.readline()
        process.terminate()
        process.communicate()
    found: Counter[str] = Counter()
    names = [match.groups() for line in log.read_text().splitlines() if (match := _LINE.match(line))]
    for microseconds, name in names:
        found[_group(name)] += int(microseconds)
    return {name: found[name] / 1000 for name in BUDGET_MS}, len(names)


def _group(name: str) -> str:
    parts = name.split(".")
    if parts[0] == "headrace":
        package = ".".join(parts[:2])
        return package if package in BUDGET_MS else "headrace, the rest"
    top = parts[0].removeprefix("_")
    if top in _OF_ITS_OWN:
        return top
    is_standard = parts[0] in sys.stdlib_module_names
    return "standard library, the rest" if is_standard else "other packages"


def least(runs: Sequence[dict[str, float]]) -> dict[str, float]:
    """The best time of each package."""
    return {name: round(min(run[name] for run in runs), 1) for name in BUDGET_MS}


def medians(runs: Sequence[Start]) -> dict[str, float]:
    """The median of each figure."""
    return {figure: round(statistics.median(getattr(each, figure) for each in runs), 1) for figure in Start._fields}


def main() -> None:
    """Runs both cases and prints them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--beside", metavar="PYTHON")
    given = parser.parse_args()
    pythons = {"": sys.executable} | ({" beside": given.beside} if given.beside else {})
    results: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as directory:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(Path(directory, "byte-code"))
        for name, python in pythons.items():
            measure(Path(directory, f"warm-up{name}"), python)
        fill(Path(directory, "filled"))
        for case, one in (("empty directory", False), ("30 partitions", True)):
            runs: dict[str, list[Start]] = {name: [] for name in pythons}
            for number in range(RUNS):
                for name, python in pythons.items():
                    data = Path(directory, "filled" if one else f"empty{name}-{number}")
                    runs[name].append(measure(data, python))
            results |= {case + name: medians(each) for name, each in runs.items()}
        imports = [import_times_ms(Path(directory, f"imports-{number}")) for number in range(IMPORT_RUNS)]
    by_package, modules = least([each for each, _ in imports]), imports[0][1]
    if given.json:
        print(json.dumps({**results, "imports_ms": by_package, "modules": modules}))
        return
    for name, figures in results.items():
        print(
            f"{name:<24} ready in {figures['ready_ms']:.0f} ms (median of {RUNS}), "
            f"{figures['cpu_ms']:.0f} ms of processor time, idle {figures['idle_mib']} MiB"
        )
    print(f"\nimports: {modules} modules, {sum(by_package.values()):.0f} ms of {sum(BUDGET_MS.values())}")
    for name, spent in sorted(by_package.items(), key=lambda each: -each[1]):
        over = "   over its budget" if spent > BUDGET_MS[name] else ""
        print(f"{name:<28} {spent:6.1f} ms of {BUDGET_MS[name]}{over}")


if __name__ == "__main__":
    main()
