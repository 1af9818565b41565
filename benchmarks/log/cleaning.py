"""Measures the cleaning of a compacted log and its effect on the event loop. `python benchmarks/log/cleaning.py [DIR]`

Each row cleans the same log of 64 MiB, half of whose records are superseded. Meanwhile a loop appends to another log
every millisecond, like a broker that serves produces. The benchmark reports the delay of the loop in three cases:
without cleaning, with the cleaner in its own process (as in the broker), and with the cleaner on a thread of the loop's
process. The cases take turns. Prints medians of the runs, and writes them to FILE with `--json FILE`.
"""

import argparse
import asyncio
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from headrace.broker.background import background_on
from headrace.config import TopicConfig
from headrace.log import appending
from headrace.log.cleaning.cleaner import Cleaner
from headrace.log.cleaning.cleaner_process import ProcessWorker
from headrace.log.cleaning.cleaner_run import CleanerSettings
from headrace.log.cleaning.compaction import CleaningWorker, Compaction
from headrace.log.files import LocalFiles
from headrace.log.partition_log import PartitionLog
from headrace.records.codecs.compression import Codec
from headrace.records.format2.batch import Record, encode_batch, read_header
from headrace.types import TopicPartition

NOW_MS = 1_700_000_000_000
LOG_BYTES = 64 << 20
RUNS = 3
SETTINGS = TopicConfig(cleanup_policy=("compact",), segment_bytes=16 << 20, file_delete_delay_ms=0)
KINDS: tuple[tuple[str, int, Codec], ...] = (
    ("100 records of 100 bytes a batch", 100, Codec.NONE),
    ("100 records of 100 bytes a batch, zstd", 100, Codec.ZSTD),
    ("1 record of 100 bytes a batch", 1, Codec.NONE),
)


class Found(NamedTuple):
    """One run: the seconds of the cleaning (0 without one), and the delay of the loop in ms."""

    seconds: float
    late_p99_ms: float
    late_max_ms: float


def open_log(directory: Path) -> PartitionLog:
    """The measured log."""
    return PartitionLog.open(directory, TopicPartition("bench", 0), SETTINGS, files=LocalFiles(), now_ms=NOW_MS)


def fill(directory: Path, records_per_batch: int, codec: Codec) -> None:
    """Fill a log in which every key occurs twice."""
    log = open_log(directory)
    count = LOG_BYTES // 130 if codec is Codec.NONE else LOG_BYTES // 65
    value = bytes(range(100))
    for first in range(0, count, records_per_batch):
        rows = [
            Record(0, NOW_MS, b"key-%09d" % (number % (count // 2)), value)
            for number in range(first, first + records_per_batch)
        ]
        batch = encode_batch(rows, codec=codec)
        appending.append(log, memoryview(batch), read_header(batch), leader_epoch=0, now_ms=NOW_MS)
    log.roll(NOW_MS)
    log.close(NOW_MS)


async def measure(log: PartitionLog, beside: PartitionLog, make_worker: Callable[[], CleaningWorker] | None) -> Found:
    """Clean, if there is a worker, and measure the delay of the loop."""
    loop = asyncio.get_running_loop()
    pool = ThreadPoolExecutor(1)
    log.restore_high_watermark(log.log_end_offset)
    log.flusher.flush(NOW_MS)
    cleaner = Cleaner(
        log.files,
        {log.partition: log},
        CleanerSettings(),
        background=background_on(loop, pool),
        write_checkpoint=lambda _: lambda: None,
        make_worker=make_worker or (lambda: Compaction(log.files)),
    )
    batch = encode_batch([Record(0, NOW_MS, b"k", b"v" * 100)])
    header, late = read_header(batch), []
    began = time.perf_counter()
    if make_worker is not None:
        cleaner.tick(NOW_MS)
    while (cleaner.numbers.logs_cleaned == 0) if make_worker is not None else time.perf_counter() - began < 1:
        asked = time.perf_counter()
        await asyncio.sleep(0.001)
        appending.append(beside, memoryview(batch), header, leader_epoch=0, now_ms=NOW_MS)
        late.append(1000 * (time.perf_counter() - asked) - 1)
    seconds = time.perf_counter() - began if make_worker is not None else 0.0
    cleaner.stop()
    pool.shutdown()
    late.sort()
    return Found(seconds, late[int(len(late) * 0.99)], late[-1])


def main(where: Path) -> dict[str, dict[str, float]]:
    """Measure every kind of log in the three cases, in turns; returns the figures by kind."""
    told: dict[str, dict[str, float]] = {}
    print(f"{'':40} {'MB/s':>6}  late p99 ms: {'idle':>6} {'process':>8} {'thread':>7}   max: idle process thread")
    for name, records_per_batch, codec in KINDS:
        source = where / "source"
        shutil.rmtree(source, ignore_errors=True)
        fill(source, records_per_batch, codec)
        size = sum(path.stat().st_size for path in source.glob("*.log"))
        runs: dict[str, list[Found]] = {"idle": [], "process": [], "thread": []}
        ways: dict[str, Callable[[], CleaningWorker] | None] = {
            "idle": None, "process": ProcessWorker, "thread": lambda: Compaction(LocalFiles())
        }  # fmt: skip
        for _ in range(RUNS):
            for way, make_worker in ways.items():
                copy = where / "copy"
                shutil.rmtree(copy, ignore_errors=True)
                shutil.rmtree(where / "beside", ignore_errors=True)
                shutil.copytree(source, copy)
                runs[way].append(asyncio.run(measure(open_log(copy), open_log(where / "beside"), make_worker)))
        p99 = {way: statistics.median(each.late_p99_ms for each in found) for way, found in runs.items()}
        most = {way: statistics.median(each.late_max_ms for each in found) for way, found in runs.items()}
        rate = size / 1e6 / statistics.median(each.seconds for each in runs["process"])
        print(
            f"{name:40} {rate:6.0f}               {p99['idle']:6.2f} {p99['process']:8.2f} {p99['thread']:7.2f}"
            f"        {most['idle']:4.1f} {most['process']:7.1f} {most['thread']:6.1f}"
        )
        told[name] = {"mb_per_second": round(rate)}
        told[name] |= {f"late_p99_ms_{way}": round(late, 2) for way, late in p99.items()}
        told[name] |= {f"late_max_ms_{way}": round(late, 1) for way, late in most.items()}
    return told


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", nargs="?", type=Path)
    parser.add_argument("--json", type=Path)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        results = main(wanted.directory or Path(temporary))
    if wanted.json is not None:
        wanted.json.write_text(json.dumps(results, indent=1) + "\n")
