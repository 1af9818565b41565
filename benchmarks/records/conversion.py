"""Measures the conversion for a fetch by an old client.

    python benchmarks/records/conversion.py [--mebibytes 1024] [--json FILE]

A file of batches of format 2 is read in chunks and converted step by step, in a new process for each case. Reports the
megabytes of the file and of its records per CPU second (user and system, including reads, with one thread), and the
growth of the process. Other load affects CPU time little; the elapsed seconds are reported too. Converted records are
dropped, so the benchmark includes no socket.
"""

import argparse
import json
import multiprocessing
import random
import tempfile
import time
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from headrace.records.codecs.compression import Codec
from headrace.records.format2.build import build_batch
from headrace.records.format2.columns import column_of
from headrace.records.legacy.conversion import convert_batches
from headrace.records.legacy.message_columns import build_message_set

RUNS = 1
CHUNK_BYTES = 256 << 10
BATCH_BYTES = 64 << 10
NOW_MS = 1_700_000_000_000


class Case(NamedTuple):
    """One conversion."""

    magic: int
    to_magic: int
    codec: Codec
    value_bytes: int


class Measured(NamedTuple):
    """The cost of one conversion."""

    file_bytes: int
    record_bytes: int
    records: int
    cpu_s: float
    elapsed_s: float
    grown_bytes: int


CASES = [
    Case(2, 1, Codec.NONE, 1024),
    Case(2, 0, Codec.NONE, 1024),
    Case(2, 1, Codec.NONE, 100),
    Case(2, 0, Codec.NONE, 100),
    Case(1, 0, Codec.NONE, 100),
    Case(0, 2, Codec.NONE, 100),
    Case(1, 2, Codec.NONE, 100),
    Case(2, 1, Codec.LZ4, 1024),
    Case(2, 1, Codec.SNAPPY, 1024),
    Case(2, 1, Codec.GZIP, 1024),
]


def write_log(file: Path, case: Case, size: int) -> int:
    """Batches of about 64 KiB until the records in them have `size` bytes; how many bytes those have."""
    rng = random.Random(7)
    count = max(1, BATCH_BYTES // case.value_bytes)
    half = case.value_bytes // 2
    rows = [rng.randbytes(half) + bytes(case.value_bytes - half) for _ in range(count)]
    keys, values = column_of([b"key-%06d" % i for i in range(count)]), column_of(rows)
    times = array("q", range(NOW_MS, NOW_MS + count))
    written = offset = 0
    with file.open("wb") as out:
        while written < size:
            if case.magic == 2:
                data = build_batch(keys, values, 0, count, times, codec=case.codec, base_offset=offset)
            else:
                data = build_message_set(
                    keys, values, 0, count, times, magic=case.magic, codec=case.codec, base_offset=offset
                )
            out.write(data)
            offset += count
            written += count * (case.value_bytes + 10)
    return written


def chunks_of(file: Path) -> Iterator[bytes]:
    """The chunks of the file, as a broker reads them."""
    with file.open("rb") as source:
        while chunk := source.read(CHUNK_BYTES):
            yield chunk


def convert(file: str, to_magic: int) -> tuple[int, float, float, int]:
    """Records, CPU seconds, seconds and bytes that this process grew by at its largest."""
    Path("/proc/self/clear_refs").write_text("5")  # forgets how large it has been
    before = _memory("VmRSS")
    records, rest = 0, b""
    started, cpu_started = time.perf_counter(), time.process_time()
    for chunk in chunks_of(Path(file)):
        rest += chunk
        converted = convert_batches(rest, to_magic)
        records += converted.records
        rest = rest[converted.bytes_consumed :]
    cpu_s, elapsed_s = time.process_time() - cpu_started, time.perf_counter() - started
    return records, round(cpu_s, 3), round(elapsed_s, 3), _memory("VmHWM") - before


def _memory(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024


def measure(case: Case, size: int, directory: Path) -> Measured:
    """The best of some runs, each in a new process."""
    file = directory / "log"
    record_bytes = write_log(file, case, size)
    runs = []
    for _ in range(RUNS):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            runs.append(pool.apply(convert, (str(file), case.to_magic)))
    records, cpu_s, elapsed_s, _ = min(runs, key=lambda run: run[1])
    grown_bytes = max(run[3] for run in runs)
    return Measured(file.stat().st_size, record_bytes, records, cpu_s, elapsed_s, grown_bytes)


def main() -> None:
    """Print the table, and write it as JSON if requested."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mebibytes", type=int, default=1024, help="records in each log")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    print("from  to  codec    value    file MB  records/s    MB/s of file  MB/s of records  grown by MB  elapsed s")
    with tempfile.TemporaryDirectory() as directory:
        for case in CASES:
            found = measure(case, options.mebibytes << 20, Path(directory))
            file_rate, record_rate = found.file_bytes / found.cpu_s / 1e6, found.record_bytes / found.cpu_s / 1e6
            print(
                f"v{case.magic}    v{case.to_magic}  {case.codec.name.lower():7} {case.value_bytes:6} "
                f"{found.file_bytes / 1e6:10,.0f} {found.records / found.cpu_s:10,.0f} {file_rate:15,.0f} "
                f"{record_rate:16,.0f} {found.grown_bytes / 1e6:12.1f} {found.elapsed_s:10.1f}",
                flush=True,
            )
            rates = {"file_mb_per_s": round(file_rate), "record_mb_per_s": round(record_rate)}
            rows.append({**case._asdict(), "codec": case.codec.name.lower(), **found._asdict(), **rates})
    if options.json:
        options.json.write_text(json.dumps({"mebibytes": options.mebibytes, "cases": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
