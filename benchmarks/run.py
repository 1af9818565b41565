"""Records the main benchmarks in docs/performance.md: what `make bench` does, in about half an hour.

Each benchmark of recorded.py prints its results as an object (`--json`, `paired.py`). They are stored in a file of its
own in benchmarks/results with the command, the day, the machine, its load before and after, and all versions. Then
docs/performance.md gets its tables (scripts/performance_page.py) and a chart of all ratios (chart.py). One that takes
longer than `LIMIT_S` is ended and counts as failed. What was recorded before an interrupt stays; a benchmark can be
recorded again by its name. Those of `PRINTED`, and all that are named by their path, only print.

    python benchmarks/run.py [NAME...]     all that are recorded, or those named: java_clients_100_b, log/append ...
    python benchmarks/run.py printed       the main ones that only print
"""

import json
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import chart
from benchmarks.recorded import LIMIT_S, RECORDED, RESULTS, ROOT, file_of, stored
from tests.peers import kafka

END_S = 20.0

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
    names = sys.argv[1:] or list(RECORDED)
    if names == ["printed"]:
        names = list(PRINTED)
    if unknown := [name for name in names if name not in RECORDED and not _program(name).exists()]:
        print(
            f"there is no benchmark {', '.join(unknown)}; there are {', '.join([*RECORDED, *PRINTED])}", file=sys.stderr
        )
        return 2
    failed = 0
    try:
        for name in names:
            print(f"== {name}", flush=True)
            if name not in RECORDED:
                failed += subprocess.run([sys.executable, str(_program(name))], cwd=ROOT).returncode != 0
            elif reason := kafka.missing_tools():
                print(f"not recorded: {reason}")
                failed += 1
            else:
                failed += not record(name)
    except KeyboardInterrupt:
        failed += 1
    if set(names) & RECORDED.keys():
        chart.draw({RECORDED[stem].title: run for stem, run in stored().items()}, ROOT / "docs" / "performance.svg")
        subprocess.run([sys.executable, "scripts/performance_page.py"], cwd=ROOT, check=True)
    return failed


def _program(name: str) -> Path:
    return ROOT / "benchmarks" / f"{name}.py"


def record(stem: str) -> bool:
    """Run a benchmark and store its results; whether it had any."""
    benchmark, _, arguments = RECORDED[stem]
    command = [f"benchmarks/{benchmark}.py", *arguments]
    before = os.getloadavg()[0]
    printed = output([sys.executable, *command, "--json"], LIMIT_S)
    if printed is None or not printed.startswith("{"):
        print(f"{stem} failed", printed or "", file=sys.stderr)
        return False
    results = json.loads(printed)
    run = {
        "benchmark": benchmark,
        "command": shlex.join(["python", *command]),
        "day": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "load": [round(before, 1), round(os.getloadavg()[0], 1)],
        "versions": versions(),
        "results": results,
    }
    RESULTS.mkdir(exist_ok=True)
    file_of(stem).write_text(json.dumps(run, indent=1) + "\n")
    print(json.dumps(results), flush=True)
    return True


def output(command: Sequence[str], limit_s: float) -> str | None:
    """What a program prints; None if it fails, or does not end in time. Its brokers end with it."""
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            printed, _ = process.communicate(timeout=limit_s)
        except (subprocess.TimeoutExpired, KeyboardInterrupt) as reason:
            _end(process)
            if isinstance(reason, KeyboardInterrupt):
                raise
            print(f"it took longer than {limit_s:.0f} s", file=sys.stderr)
            return None
    return printed if process.returncode == 0 else None


def _end(process: subprocess.Popen[str]) -> None:
    """An interrupt lets a benchmark stop its brokers; what is left after a while is killed."""
    started = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=END_S)
    process.kill()
    for each in started:
        with suppress(psutil.NoSuchProcess):  # psutil knows a process by its start, too
            each.kill()


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
