"""Measures what room behind the last batch saves: appends of batches of several sizes with it and without.

    python benchmarks/log/room.py [DIR] [--rounds 7] [--json]

Each round fills segments of 16 MiB by the followers' append, which writes one batch at a time. DIR is by default a
temporary directory; what comes out depends on its file system and the version of Linux. All values are processor time
in microseconds for one batch:

    append      until the segment is full
    flush       the roll and the flush of the full segment
    deletion    the removal of its file from the disk and from memory
"""

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.paired import report, summarise
from headrace.config import TopicConfig
from headrace.log import appending
from headrace.log.files import LocalFiles
from headrace.log.partition_log import PartitionLog
from headrace.records.format2.batch import Record, encode_batch, read_header
from headrace.records.format2.header import set_base_offset
from headrace.types import TopicPartition

NOW_MS = 1_700_000_000_000
SEGMENT_BYTES = 16 << 20
SEGMENTS = 4
"""In each round."""
SIZES = (1_000, 4_000, 15_360, 60_000)
"""Of the records, in bytes; each is a batch."""


class Spent(NamedTuple):
    """Processor time in microseconds for each batch."""

    append_us: float
    flush_us: float
    deletion_us: float


def opened(directory: Path, rule: str) -> PartitionLog:
    """A log with room by this rule."""
    config = TopicConfig(segment_bytes=SEGMENT_BYTES, preallocate_room=rule)
    return PartitionLog.open(directory / "room-0", TopicPartition("room", 0), config, files=LocalFiles(), now_ms=NOW_MS)


def measure(directory: Path, rule: str, value_bytes: int) -> Spent:
    """What appends, flushes and deletions took."""
    log = opened(directory, rule)
    batch = encode_batch([Record(0, NOW_MS, None, bytes(range(256)) * (value_bytes // 256 + 1), ())])
    count, append, flush = 0, 0.0, 0.0
    for _ in range(SEGMENTS):
        appending.append(log, memoryview(batch), read_header(batch), leader_epoch=0, now_ms=NOW_MS)
        begin = time.process_time()
        while log.active.size + len(batch) <= SEGMENT_BYTES:
            set_base_offset(batch, log.log_end_offset, 0)
            assert log.append_run(memoryview(batch), 0, len(batch), 1 << 20, NOW_MS) == len(batch)
            count += 1
        filled = time.process_time()
        log.roll(NOW_MS)
        log.flusher.flush(NOW_MS)
        append, flush = append + filled - begin, flush + time.process_time() - filled
    log.close(NOW_MS)
    begin = time.process_time()
    shutil.rmtree(directory / "room-0")
    return Spent(*(1e6 * each / count for each in (append, flush, time.process_time() - begin)))


def main() -> None:
    """Prints the medians of all sizes, and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", nargs="?", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    wanted = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory(dir=wanted.directory) as directory:
        for size in SIZES:
            rounds: dict[str, list[Spent]] = {"with room": [], "without": []}
            for number in range(wanted.rounds):
                sides = [("with room", "always"), ("without", "never")]
                for side, rule in sides if number % 2 else sides[::-1]:
                    rounds[side].append(measure(Path(directory), rule, size))
            found[f"records of {size:,} bytes"] = summarise(rounds)
    report(found, as_json=wanted.json)


if __name__ == "__main__":
    main()
