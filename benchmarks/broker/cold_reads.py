"""Measures whether a consumer of records on disk delays consumers of records in memory.

A reader reads a topic of some GiB again and again. Meanwhile a client produces to another topic, one record per
request, and reads its tail. In half of the rounds, the pages of the first topic are dropped from the page cache before
(`posix_fadvise`). Reports the p50 and p99 of the produces and of the tail fetches in ms, for alternating warm and cold
rounds: medians, and the ratio of each pair of rounds. The effect is smaller if the disk of DIR has a cache of its own.

    python benchmarks/broker/cold_reads.py [--dir DIR] [--gib 2] [--seconds 6] [--rounds 5]
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.harness import HeadraceServer
from tests.wire import Wire, batch

COLD, HOT = "cold", "hot"
FETCH_BYTES = 8 << 20


class Round(NamedTuple):
    """The latencies of the producer and of the tail reader, and the bytes of the cold reader."""

    produce_p50_ms: float
    produce_p99_ms: float
    fetch_p50_ms: float
    fetch_p99_ms: float
    read_mb_per_second: float


def fill(wire: Wire, gib: float) -> None:
    """Fill the cold topic with batches of 1 MB."""
    records = batch([b"x" * 10_000] * 100)
    for _ in range(int(gib * (1 << 30) / len(records))):
        assert wire.produce(COLD, records).error_code == 0


def drop_pages(data: Path) -> None:
    """Drop the cold topic from the page cache."""
    for path in data.glob(f"{COLD}-0/*.log"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class Reader:
    """Reads the cold topic again and again until it is stopped."""

    def __init__(self, bootstrap: str) -> None:
        self.bytes = 0
        self._wanted = True
        self._bootstrap = bootstrap
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def stop(self) -> None:
        """Stops the reader."""
        self._wanted = False
        self._thread.join()

    def _read(self) -> None:
        offset = 0
        with Wire(self._bootstrap) as wire:
            while self._wanted:
                found = wire.fetch(COLD, offset, max_bytes=FETCH_BYTES)
                self.bytes += len(found.records)
                offset += 100 * max(1, len(found.records) // 1_000_000)
                if not found.records:
                    offset = 0


def percentiles(waits: list[float]) -> tuple[float, float]:
    """p50 and p99 in ms."""
    cuts = statistics.quantiles(waits, n=100)
    return 1_000 * cuts[49], 1_000 * cuts[98]


def run_round(server: HeadraceServer, seconds: float, *, is_cold: bool) -> Round:
    """Produces and reads the tail for some seconds."""
    if is_cold:
        drop_pages(server.data)
    produces, fetches = [], []
    record = batch([b"y" * 100])
    with Wire(server.bootstrap) as wire:
        offset = wire.list_offset(HOT, -1)[2]
        reader = Reader(server.bootstrap)
        began = now = time.perf_counter()
        while now - began < seconds:
            assert wire.produce(HOT, record).error_code == 0
            after_produce = time.perf_counter()
            assert wire.fetch(HOT, offset).records
            offset += 1
            produces.append(after_produce - now)
            now = time.perf_counter()
            fetches.append(now - after_produce)
        reader.stop()
    return Round(*percentiles(produces), *percentiles(fetches), reader.bytes / (now - began) / 1e6)


def main() -> None:
    """Prints the medians of the warm and cold rounds, and of their ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir")
    parser.add_argument("--gib", type=float, default=2)
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--rounds", type=int, default=5)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=wanted.dir) as directory:
        server = HeadraceServer(Path(directory, "data")).start()
        try:
            with Wire(server.bootstrap) as wire:
                assert wire.create_topic(COLD) == wire.create_topic(HOT) == 0
                fill(wire, wanted.gib)
            pairs = [
                (run_round(server, wanted.seconds, is_cold=False), run_round(server, wanted.seconds, is_cold=True))
                for _ in range(wanted.rounds)
            ]
        finally:
            server.stop()
    warm, cold = zip(*pairs, strict=True)
    result = {
        name: {
            figure: round(statistics.median(getattr(each, figure) for each in rounds), 3) for figure in Round._fields
        }
        for name, rounds in (("warm", warm), ("cold", cold))
    }
    ratios = {
        figure: round(statistics.median(getattr(b, figure) / getattr(a, figure) for a, b in pairs), 2)
        for figure in Round._fields[:-1]
    }
    print(json.dumps({**result, "ratio": ratios}, indent=1))


if __name__ == "__main__":
    main()
