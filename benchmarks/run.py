"""Runs the main benchmarks, and records those beside Apache Kafka in docs/performance.md: what `make bench` does.

A recorded benchmark prints its results as an object (`--json`, `paired.py`). They are stored in benchmarks/results with
the command, the day, the machine, its load before and after, and all versions. docs/performance.md gets a table of each
(scripts/performance_page.py) and a chart of all ratios (benchmarks/chart.py). The other benchmarks only print.

    python benchmarks/run.py [NAME...]     all, or those named: broker/java_clients, log/append ...
"""

import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import chart
from tests.peers import kafka

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
RECORDED: Mapping[str, Sequence[str]] = {
    "broker/small_requests": (),
    "broker/java_clients": (),
    "broker/one_in_flight": (),
    "broker/transactions": (),
    "broker/launch_and_memory": (),
}
"""Benchmarks beside Apache Kafka, with their arguments."""

PRINTED = (
    "broker/startup",
    "broker/phases",
    "broker/durable",
    "log/append",
    "records/batches",
    "protocol/codecs",
    "client/throughput",
    "client/one_in_flight",
)


def main() -> int:
    """Runs what was asked for; the number of benchmarks that failed."""
    names = sys.argv[1:] or [*PRINTED, *RECORDED]
    if unknown := [name for name in names if not (ROOT / "benchmarks" / f"{name}.py").exists()]:
        print(
            f"there is no benchmark {', '.join(unknown)}; there are {', '.join([*PRINTED, *RECORDED])}", file=sys.stderr
        )
        return 2
    failed = 0
    for name in names:
        print(f"== {name}", flush=True)
        command = [sys.executable, f"benchmarks/{name}.py", *RECORDED.get(name, ())]
        if name in RECORDED and kafka.missing_tools() is None:
            failed += not record(name, command)
        else:
            failed += subprocess.run(command, cwd=ROOT).returncode != 0
    if set(names) & RECORDED.keys():
        chart.draw(stored(), ROOT / "docs" / "performance.svg")
        subprocess.run([sys.executable, "scripts/reference_pages.py"], cwd=ROOT, check=True)
    return failed


def record(name: str, command: Sequence[str]) -> bool:
    """Run a benchmark and store its results; whether it had any."""
    before = os.getloadavg()[0]
    done = subprocess.run([*command, "--json"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode or not done.stdout.startswith("{"):
        print(done.stdout, f"{name} failed with status {done.returncode}", file=sys.stderr)
        return False
    results = json.loads(done.stdout)
    run = {
        "benchmark": name,
        "command": shlex.join(["python", *command[1:]]),
        "day": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "load": [round(before, 1), round(os.getloadavg()[0], 1)],
        "versions": versions(),
        "results": results,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name.replace('/', '_')}.json").write_text(json.dumps(run, indent=1) + "\n")
    print(json.dumps(results), flush=True)
    return True


def stored() -> list[dict[str, Any]]:
    """All recorded runs, in the order of RECORDED."""
    files = (RESULTS / f"{name.replace('/', '_')}.json" for name in RECORDED)
    return [json.loads(each.read_text()) for each in files if each.exists()]


def machine() -> str:
    """Processor, cores, memory and kernel of this machine."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores of {model}, {gib:.0f} GiB, {platform.system()} {platform.release().partition('-')[0]}"


def versions() -> dict[str, str]:
    """What was measured, and with what."""
    java = subprocess.run([shutil.which("java") or "java", "--version"], capture_output=True, text=True).stdout
    revision = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout
    return {
        "headrace": f"{version('headrace')} ({revision.strip() or 'no checkout'})",
        "Apache Kafka": kafka.VERSION,
        "Python": platform.python_version(),
        "uvloop": version("uvloop"),
        "Java": java.partition("\n")[0],
    }


if __name__ == "__main__":
    sys.exit(main())
