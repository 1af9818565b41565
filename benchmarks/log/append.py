"""Measures the log of one partition alone: appends, tail reads, recovery. `python benchmarks/log/append.py [DIR]`

Headers are read once, outside the timed loop, because the broker has read them when it checked the batch. DIR (by
default a temporary directory) selects the measured disk. The log is flushed only at rolls, which is the default.
"""

import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from headrace.config import TopicConfig
from headrace.log import appending
from headrace.log.files import LocalFiles
from headrace.log.partition_log import PartitionLog
from headrace.records.format2.batch import Record, encode_batch, read_header
from headrace.types import TopicPartition

PARTITION = TopicPartition("bench", 0)
RUNS = 5


def open_log(directory: Path) -> PartitionLog:
    """The measured log, in a clean directory or in one to recover."""
    return PartitionLog.open(directory, PARTITION, TopicConfig(), files=LocalFiles(), now_ms=0)


def best_of(measure: Callable[[], float]) -> float:
    """The best of some runs, which other load on the machine affects least."""
    return max(measure() for _ in range(RUNS))


def appends_per_second(
    directory: Path, value_bytes: int, records: int, count: int, *, idempotent: bool = False
) -> float:
    """The rate of repeated appends of the same batch."""
    shutil.rmtree(directory, ignore_errors=True)
    log = open_log(directory)
    batch = encode_batch(
        [Record(0, 1_700_000_000_000, None, b"x" * value_bytes, ())] * records,
        producer_id=1 if idempotent else -1,
        producer_epoch=0 if idempotent else -1,
        base_sequence=0 if idempotent else -1,
    )
    view, header = memoryview(batch), read_header(batch)
    headers = [header._replace(base_sequence=n * records) if idempotent else header for n in range(count)]
    append = appending.append
    begin = time.perf_counter()
    for each in headers:
        append(log, view, each, leader_epoch=0, now_ms=0)
    return count / (time.perf_counter() - begin)


def tail_reads_per_second(directory: Path, count: int) -> float:
    """The rate of reads of the newest batch, as by a consumer at the tail."""
    log = open_log(directory)
    batch = encode_batch([Record(0, 1_700_000_000_000, None, b"x" * 100, ())])
    view, header = memoryview(batch), read_header(batch)
    spent = 0.0
    for _ in range(count):
        offset = appending.append(log, view, header, leader_epoch=0, now_ms=0).base_offset
        begin = time.perf_counter()
        log.read(offset, 1 << 20, end_offset=log.log_end_offset, at_least_one=True)
        spent += time.perf_counter() - begin
    return count / spent


def lookups_per_second(directory: Path, count: int) -> float:
    """The rate of reads from offsets all over the log: index, then batch headers."""
    log = open_log(directory)
    step = max(1, log.log_end_offset // count)
    offsets = list(range(0, log.log_end_offset, step))
    begin = time.perf_counter()
    for offset in offsets:
        log.read(offset, 1 << 20, end_offset=log.log_end_offset, at_least_one=True)
    return len(offsets) / (time.perf_counter() - begin)


def recovered_bytes_per_second(directory: Path) -> float:
    """The rate of a recovery as after a kill, which checks all batches and rebuilds the indexes."""
    begin = time.perf_counter()
    log = open_log(directory)
    return log.size_bytes / (time.perf_counter() - begin)


def main() -> None:
    """Measure, and print one line for each."""
    parent = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp())
    directory = parent / "bench-0"
    small = best_of(lambda: appends_per_second(directory, 100, 1, 100_000))
    print(f"append, 1 record of 100 bytes     {small:12,.0f} batches/s")
    print(
        f"  recovery of it                  {best_of(lambda: recovered_bytes_per_second(directory)) / 1e6:12,.0f} MB/s"
    )
    print(f"  look-ups anywhere in it         {best_of(lambda: lookups_per_second(directory, 20_000)):12,.0f} reads/s")
    print(
        f"  reads at the tail               {best_of(lambda: tail_reads_per_second(directory, 20_000)):12,.0f} reads/s"
    )
    idempotent = best_of(lambda: appends_per_second(directory, 100, 1, 100_000, idempotent=True))
    print(f"append, the same, idempotent      {idempotent:12,.0f} batches/s")
    medium = best_of(lambda: appends_per_second(directory, 1000, 15, 20_000))
    print(f"append, 15 records of 1000 bytes  {medium * 15_000 / 1e6:12,.0f} MB/s")
    large = best_of(lambda: appends_per_second(directory, 1000, 250, 2_000))
    print(f"append, 250 records of 1000 bytes {large * 250_000 / 1e6:12,.0f} MB/s")
    print(
        f"  recovery of it                  {best_of(lambda: recovered_bytes_per_second(directory)) / 1e6:12,.0f} MB/s"
    )
    shutil.rmtree(directory)


if __name__ == "__main__":
    main()
