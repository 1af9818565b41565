"""How a broker of ten thousand partitions starts: after a clean stop, and after `kill -9`.

Time from process start to `ready HOST:PORT`, and resident memory once it is idle. `--records` writes one batch to each
partition before. Usage: python benchmarks/log/many_partitions.py [--partitions 10000] [--runs 3] [--records]
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.harness import HeadraceServer
from tests.wire import Wire, batch

PARTITIONS_PER_TOPIC = 1_000
SETTLE_SECONDS = 2


def start(data: Path) -> tuple[HeadraceServer, float, float]:
    """A broker on `data`, the seconds until it was ready, its resident MiB."""
    began = time.perf_counter()
    server = HeadraceServer(data).start()
    seconds = time.perf_counter() - began
    time.sleep(SETTLE_SECONDS)
    assert server.process is not None
    return server, seconds, psutil.Process(server.process.pid).memory_info().rss / (1 << 20)


def fill(data: Path, partitions: int, *, records: bool) -> float:
    """Makes the topics; the seconds that took."""
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
    figures: dict[str, list[float]] = {"clean start s": [], "clean MiB": [], "start after kill s": [], "killed MiB": []}
    with tempfile.TemporaryDirectory() as directory:
        data = Path(directory, "data")
        made = fill(data, wanted.partitions, records=wanted.records)
        for _ in range(wanted.runs):
            server, seconds, mib = start(data)
            figures["clean start s"].append(seconds)
            figures["clean MiB"].append(mib)
            server.kill()
            server, seconds, mib = start(data)
            figures["start after kill s"].append(seconds)
            figures["killed MiB"].append(mib)
            server.stop()
    medians = {name: round(statistics.median(values), 2) for name, values in figures.items()}
    print(json.dumps({"partitions": wanted.partitions, "made in s": round(made, 1), **medians}))


if __name__ == "__main__":
    main()
