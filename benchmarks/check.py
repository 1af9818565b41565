"""Compares this checkout with another revision of headrace, in about two minutes: what `make bench-check` does.

Both run on the same interpreter with the same packages; the wheel of the other revision lies in a directory of its own.
The two brokers run at the same time, but receive requests in turns, as beside Apache Kafka. Prints the ratio of this
checkout to the other revision for each figure: medians of the pairs with their spread.

    python benchmarks/check.py [REVISION] [--rounds 5] [--seconds 1.5] [--json]

REVISION is the newest tag, if none is given. Without a tag it has to be.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.broker.small_requests import Peer, run_round
from benchmarks.paired import Summary, report, summarise
from tests.harness import HeadraceServer
from tests.wire import Wire, batch

ROOT = Path(__file__).parents[1]
TOPIC, LARGE = "small-requests", "large-batches"
CONNECTIONS = (1, 50)
BATCH_BYTES = 250_000
OURS = "this checkout"


class Moved(NamedTuple):
    """Bytes that went one way."""

    mb_per_s: float
    broker_cpu_ms_per_mb: float


class Start(NamedTuple):
    """A start on an empty directory."""

    ready_ms: float


@dataclass
class Installed(HeadraceServer):
    """`headrace serve` of the wheel in a directory; of this checkout without one."""

    packages: Path | None = None

    def command(self) -> list[str]:
        """The command line that starts it."""
        command = super().command()
        return command if self.packages is None else ["env", f"PYTHONPATH={self.packages}", *command]


def installed(revision: str, directory: Path) -> Path:
    """A directory with the packages of a revision's wheel, built from what git has of it."""
    source, target = directory / "source", directory / "packages"
    source.mkdir()
    archive = subprocess.run(["git", "archive", revision], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    subprocess.run(["tar", "x", "-C", str(source)], input=archive, check=True)
    build = ["-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    print(f"building the wheel of {revision}", file=sys.stderr)
    subprocess.run([sys.executable, *build, "--target", str(target), str(source)], check=True)
    return target


def newest_tag() -> str | None:
    """The newest tag before this checkout; None where there is none."""
    done = subprocess.run(["git", "describe", "--tags", "--abbrev=0"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or None


@contextmanager
def brokers(sides: Mapping[str, Path | None], directory: Path) -> Iterator[list[Peer]]:
    """One broker of each side, warm."""
    with ExitStack() as stack:
        found = []
        for number, (name, packages) in enumerate(sides.items()):
            server = Installed(directory / f"data-{number}", packages=packages)
            server.start()
            stack.callback(server.stop)
            assert server.process is not None
            process = psutil.Process(server.process.pid)
            found.append(Peer(name, server.port, process))
            with Wire(server.bootstrap) as wire:
                wire.create_topic(TOPIC)
                wire.create_topic(LARGE)
            run_round(found[-1], 10, 2)
        yield found


def produce(peer: Peer, seconds: float) -> Moved:
    """Produce batches of 250 KB of 1 KB records, one in flight."""
    records = batch([b"x" * 1000] * (BATCH_BYTES // 1010))

    def one(wire: Wire) -> int:
        if code := wire.produce(LARGE, records).error_code:
            raise RuntimeError(f"{peer.name} refused a batch with error {code}")
        return len(records)

    return _moved(peer, seconds, one)


def fetch(peer: Peer, seconds: float) -> Moved:
    """Fetch a megabyte at a time from the start of what was produced."""
    return _moved(peer, seconds, lambda wire: len(wire.fetch(LARGE, 0, max_bytes=1 << 20).records))


def _moved(peer: Peer, seconds: float, one: Callable[[Wire], int]) -> Moved:
    moved = 0
    with Wire(f"127.0.0.1:{peer.port}") as wire:
        before, began = peer.process.cpu_times(), time.perf_counter()
        while (took_s := time.perf_counter() - began) < seconds:
            moved += one(wire)
        after = peer.process.cpu_times()
    cpu_s = after.user + after.system - before.user - before.system
    return Moved(moved / 1e6 / took_s, 1e3 * cpu_s / (moved / 1e6))


def start(packages: Path | None, directory: Path) -> Start:
    """Start on an empty directory, and stop."""
    with tempfile.TemporaryDirectory(dir=directory) as data:
        began = time.perf_counter()
        server = Installed(Path(data, "data"), packages=packages).start()
        took_s = time.perf_counter() - began
        server.stop()
    return Start(took_s * 1e3)


def main() -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision", nargs="?", default=newest_tag(), help="a tag, a branch or a commit")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.5, help="of each round")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.revision is None:
        parser.error("this checkout has no tag to compare with: name a revision (make bench-check BASE=REVISION)")
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        sides = {OURS: None, options.revision: installed(options.revision, directory)}
        results: dict[str, Summary] = {"start": _starts(sides, directory, options.rounds)}
        with brokers(sides, directory) as found:
            works: dict[str, Callable[[Peer], NamedTuple]] = {
                **{f"small requests, {n} connections": _small(n, options.seconds) for n in CONNECTIONS},
                "produce, 250 KB batches": lambda peer: produce(peer, options.seconds),
                "fetch, 1 MB": lambda peer: fetch(peer, options.seconds),
            }
            for work, run in works.items():
                rounds: dict[str, list[NamedTuple]] = {peer.name: [] for peer in found}
                for _ in range(options.rounds):
                    for peer in found:
                        rounds[peer.name].append(run(peer))
                results[work] = summarise(rounds)
    report(results, as_json=options.json)
    return 0


def _small(connections: int, seconds: float) -> Callable[[Peer], NamedTuple]:
    return lambda peer: run_round(peer, connections, seconds)


def _starts(sides: Mapping[str, Path | None], directory: Path, rounds: int) -> Summary:
    found: dict[str, list[Start]] = {name: [] for name in sides}
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else a checkout is compiled to byte code at each start
    for packages in sides.values():
        start(packages, directory)  # compiles it to byte code
    for _ in range(rounds):
        for name, packages in sides.items():
            found[name].append(start(packages, directory))
    return summarise(found)


if __name__ == "__main__":
    sys.exit(main())
