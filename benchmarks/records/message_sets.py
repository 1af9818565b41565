"""Measures message sets of formats 0 and 1 beside aiokafka (Cython) and kafka-python (Python), in one run.

    python benchmarks/records/message_sets.py [--records N] [--turns N] [--json FILE]

The records have 100 bytes and no key. aiokafka and kafka-python create an object per record; headrace uses columns.
Sets are read with and without CRC checks (the record classes of the others do not check them), and written with CRCs.
They are plain, or one wrapper of each codec. Then the benchmark measures the broker's check and offset assignment of a
produced set. The libraries take turns, so that other load affects all of them. Reports medians of the processor time,
and ratios, with one thread.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from array import array
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from aiokafka.record.legacy_records import LegacyRecordBatchBuilder as AiokafkaBuilder
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from kafka.record.legacy_records import LegacyRecordBatchBuilder as KafkaPythonBuilder
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

from headrace.records.binary import BinaryColumn, column_of
from headrace.records.codecs.compression import Codec
from headrace.records.legacy import message_kernel
from headrace.records.legacy.message_columns import build_message_set, scan_message_set
from headrace.records.legacy.produced_sets import check_produced_set, place_set

VALUE_BYTES = 100
NOW_MS = 1_700_000_000_000
TIMES = 10
CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)

Work = Callable[[], object]


def rates_of(turns: int, contenders: dict[str, tuple[int, Work]]) -> dict[str, float]:
    """Records per second of processor time of each, the median; it says how many records its work takes."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(turns):
        for name, (_, work) in contenders.items():
            started = time.process_time()
            work()
            seconds[name].append(time.process_time() - started)
    return {name: contenders[name][0] / statistics.median(taken) for name, taken in seconds.items()}


def many_times(work: Work) -> Work:
    """`TIMES` times the work, each result dropped before the next, as a consumer's are."""

    def repeated() -> None:
        for _ in range(TIMES):
            work()

    return repeated


def event(number: int) -> bytes:
    """A value of 100 bytes that compresses to about a third, as events do."""
    text = b'{"id": %d, "carrier": "UA", "delay": %d, "tail": "N%x", "note": "' % (
        number, number * 7919 % 97, number * 2654435761 % (1 << 32),
    )  # fmt: skip
    return text.ljust(VALUE_BYTES - 2, b"x") + b'"}'


def read_objects(records: Any) -> int:
    """All keys and values, record by record, as the library's consumer does it."""
    count = 0
    while (batch := records.next_batch()) is not None:
        for record in batch:
            if record.value is not None and record.key is None:
                count += 1
    assert count > 0
    return count


def write_objects(builder: Any, case: Case) -> bytes:
    """One set, record by record, as the library's producer does it."""
    made = builder(case.magic, case.codec, 1 << 30)
    for offset, value in enumerate(case.rows):
        made.append(offset, NOW_MS + offset, None, value)
    return bytes(made.build())


class Case(NamedTuple):
    """So many records of one format and codec."""

    magic: int
    codec: Codec
    rows: list[bytes]
    values: BinaryColumn
    times: array[int]

    @property
    def others_can(self) -> bool:
        """Neither library has the lz4 of format 0 as it is installed."""
        return not (self.magic == 0 and self.codec is Codec.LZ4)

    def data(self) -> bytearray:
        """Them all as one set."""
        return build_message_set(None, self.values, 0, len(self.rows), self.times, magic=self.magic, codec=self.codec)


def read(case: Case, turns: int) -> dict[str, float]:
    """Rates of reading: the same set, of about a megabyte; ours many times a turn, or the clock would be too coarse."""
    data, count = bytes(case.data()), len(case.rows)
    contenders: dict[str, tuple[int, Work]] = {
        "headrace": (count * TIMES, many_times(lambda: scan_message_set(data, check_crcs=False))),
        "headrace, CRCs checked": (count * TIMES, many_times(lambda: scan_message_set(data))),
    }
    if case.others_can:
        contenders["aiokafka"] = (count, lambda: read_objects(AiokafkaRecords(data)))
        contenders["kafka-python"] = (count, lambda: read_objects(KafkaPythonRecords(data)))
    return rates_of(turns, contenders)


def write(case: Case, turns: int) -> dict[str, float]:
    """Rates of writing; likewise."""
    count = len(case.rows)
    contenders: dict[str, tuple[int, Work]] = {
        "headrace": (count * TIMES, many_times(case.data)),
    }
    if case.others_can:
        for name, builder in (("aiokafka", AiokafkaBuilder), ("kafka-python", KafkaPythonBuilder)):
            contenders[name] = (count, partial(write_objects, builder, case))
    return rates_of(turns, contenders)


def produce(case: Case, turns: int) -> dict[str, float]:
    """Rates of what a broker does with a set before it appends it."""
    buf = case.data()
    checked = check_produced_set(memoryview(buf), max_message_bytes=1 << 30)
    return rates_of(
        turns,
        {
            "check": (
                len(case.rows) * TIMES,
                many_times(lambda: check_produced_set(memoryview(buf), max_message_bytes=1 << 30)),
            ),
            "place": (
                len(case.rows) * TIMES,
                many_times(lambda: place_set(buf, checked, base_offset=7)),
            ),
        },
    )


def results_of(records: int, turns: int) -> Iterator[dict[str, object]]:
    """Rates and ratios of each case."""
    rows = [event(i) for i in range(records)]
    values, times = column_of(rows), array("q", range(NOW_MS, NOW_MS + records))
    for what, contest in (("read", read), ("write", write), ("produce", produce)):
        for magic in (0, 1):
            for codec in CODECS:
                rates = contest(Case(magic, codec, rows, values, times), turns)
                ours = rates.get("headrace", 0.0)
                theirs = {name: rate for name, rate in rates.items() if name in ("aiokafka", "kafka-python")}
                yield {
                    "what": what,
                    "magic": magic,
                    "codec": codec.name.lower(),
                    "records_per_second": {name: round(rate) for name, rate in rates.items()},
                    "times_theirs": {name: round(ours / rate, 1) for name, rate in theirs.items()},
                }


def checksums(turns: int) -> dict[str, float]:
    """GB/s of the kernel's CRC-32 over 1 MiB: by carry-less multiplication (where the processor has it), by tables."""
    data = bytes(range(256)) * 4096
    rates = rates_of(
        turns,
        {
            "folding": (len(data), lambda: message_kernel.crc32_of(data, True)),
            "tables": (len(data), lambda: message_kernel.crc32_of(data, False)),
        },
    )
    return {name: round(rate / 1e9, 2) for name, rate in rates.items()}


def main() -> None:
    """Print the tables, and write the same as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=8_000)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results = []
    print(f"kernel compiled: {message_kernel.COMPILED}; million records/s ({VALUE_BYTES}-byte values, no keys)\n")
    for result in results_of(arguments.records, arguments.turns):
        results.append(result)
        rates: Any = result["records_per_second"]
        shown = "   ".join(f"{name} {rate / 1e6:.2f}" for name, rate in rates.items())
        times: Any = result["times_theirs"]
        ratios = ", ".join(f"{times[name]:.0f} x {name}" for name in times)
        print(f"{result['what']:8} v{result['magic']} {result['codec']:7} {shown}   {ratios}", flush=True)
    crc = checksums(arguments.turns)
    print(f"\nCRC-32, GB/s: {crc}")
    if arguments.json:
        document = {
            "records": arguments.records,
            "value_bytes": VALUE_BYTES,
            "kernel_compiled": message_kernel.COMPILED,
            "crc32_gigabytes_per_second": crc,
            "results": results,
        }
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
