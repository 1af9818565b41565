"""Measures the lookup of an offset in a partition of up to 1 TiB. `python benchmarks/log/lookup.py [DIR]`

Segments are sparse files of 1 GiB. Their indexes are complete (an entry per MiB), and a batch exists at each position
that a lookup reads. So a lookup takes the same steps as in a full log, on a small disk. The first column is the first
lookup in a segment, which reads its index; the second is any later lookup; the third is the time to open the directory
after a clean stop.
"""

import json
import random
import statistics
import struct
import sys
import tempfile
import time
from pathlib import Path

from headrace.config import TopicConfig
from headrace.log.filenames import INDEX, LOG, TIME_INDEX, offset_file
from headrace.log.files import LocalFiles
from headrace.log.partition_log import PartitionLog
from headrace.records.format2.batch import Record, encode_batch
from headrace.types import TopicPartition

PARTITION = TopicPartition("bench", 0)
GIB, MIB = 1 << 30, 1 << 20
ENTRIES = GIB // MIB - 1
RECORDS_PER_MIB = 1_000
RECORDS_PER_SEGMENT = RECORDS_PER_MIB * (ENTRIES + 1)
TARGETS = 400
INDEX_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")


def make(directory: Path, segments: int, seed: int) -> list[int]:
    """Create a partition of that many GiB; returns the offsets for lookups."""
    directory.mkdir(parents=True)
    chosen = random.Random(seed)
    index = b"".join(INDEX_ENTRY.pack(n * RECORDS_PER_MIB, n * MIB) for n in range(1, ENTRIES + 1))
    targets = []
    for number in range(segments):
        base = number * RECORDS_PER_SEGMENT
        times = b"".join(TIME_ENTRY.pack(base + n, n * RECORDS_PER_MIB) for n in range(1, ENTRIES + 1))
        (directory / offset_file(base, INDEX)).write_bytes(index)
        (directory / offset_file(base, TIME_INDEX)).write_bytes(times)
        with (directory / offset_file(base, LOG)).open("wb") as log:
            for slot in [*chosen.sample(range(1, ENTRIES), max(2, TARGETS // segments)), ENTRIES]:
                offset = base + slot * RECORDS_PER_MIB
                log.seek(slot * MIB)
                log.write(encode_batch([Record(0, offset, None, b"x" * 100)], base_offset=offset))
                targets.append(offset)
            log.truncate(GIB)
    base = segments * RECORDS_PER_SEGMENT
    (directory / offset_file(base, LOG)).write_bytes(encode_batch([Record(0, 0, None, b"last")], base_offset=base))
    (directory / offset_file(base, INDEX)).touch()
    (directory / offset_file(base, TIME_INDEX)).touch()
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    chosen.shuffle(targets)
    return targets


def microseconds_each(log: PartitionLog, targets: list[int]) -> float:
    """The median time of a read of one batch."""
    spent = []
    for offset in targets:
        began = time.perf_counter()
        found = log.read(offset, 1, end_offset=log.log_end_offset, at_least_one=True)
        spent.append(time.perf_counter() - began)
        assert found.size > 100
    return 1e6 * statistics.median(spent)


def main() -> None:
    """Prints one line of JSON for each size."""
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as root:
        for segments in (1, 4, 16, 64, 256, 1024):
            directory = Path(root, str(segments), str(PARTITION))
            targets = make(directory, segments, seed=segments)
            began = time.perf_counter()
            log = PartitionLog.open(
                directory,
                PARTITION,
                TopicConfig(),
                files=LocalFiles(),
                now_ms=0,
                was_clean=True,
                recovery_point=1 << 60,
            )
            opened_ms = 1_000 * (time.perf_counter() - began)
            first = microseconds_each(log, targets)
            again = microseconds_each(log, targets)
            print(
                json.dumps(
                    {
                        "GiB": segments,
                        "first us": round(first, 1),
                        "us": round(again, 1),
                        "open ms": round(opened_ms, 1),
                    }
                ),
                flush=True,
            )


if __name__ == "__main__":
    main()
