"""Measures records per second beside aiokafka (Cython) and kafka-python (Python).

Each library reads and writes batches of 100-byte values with short keys, as its own client does: the others create an
object per record, headrace's columns none. Then the benchmark measures the broker's check of a produced batch, and the
codecs. Reports the best of some runs, with one thread. Usage: python benchmarks/records/batches.py
"""

import argparse
import json
import time
from array import array
from collections.abc import Callable, Iterable
from functools import partial

from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

from headrace.records.codecs.compression import Codec, compress, decompress
from headrace.records.format2 import kernel
from headrace.records.format2.batch import HEADER_BYTES, Record, decode_records, encode_batch
from headrace.records.format2.columns import build_batch, column_of, partitions_of, scan_batches
from headrace.records.format2.validation import check_produced

RUNS = 7
VALUE_BYTES = 100
BATCH_RECORDS = 1000
BATCHES = 100
NOW_MS = 1_700_000_000_000


def best_seconds(work: Callable[[], object]) -> float:
    """The seconds of the fastest run."""
    shortest = float("inf")
    for _ in range(RUNS):
        started = time.perf_counter()
        work()
        shortest = min(shortest, time.perf_counter() - started)
    return shortest


def built_by(builder: Callable[..., object], rows: list[Record]) -> bytes:
    """One batch, built record by record, as the library's producer does."""
    made = builder(2, 0, False, -1, -1, -1, 1 << 24)
    append = made.append  # type: ignore[attr-defined]
    for row in rows:
        append(row.offset, row.timestamp_ms, row.key, row.value, [])
    return bytes(made.build())  # type: ignore[attr-defined]


def objects_of(records: KafkaPythonRecords | AiokafkaRecords) -> int:
    """All keys and values, read record by record, as the library's consumer does."""
    count = 0
    while (batch := records.next_batch()) is not None:
        for record in batch:
            if record.key is not None and record.value is not None:
                count += 1
    assert count > 0
    return count


def records_per_second() -> Iterable[tuple[str, str, float]]:
    """(what, whose, records per second)"""
    rows = [Record(i, NOW_MS + i, b"key-%d" % i, b"v" * VALUE_BYTES) for i in range(BATCH_RECORDS)]
    keys, values = column_of([row.key for row in rows]), column_of([row.value for row in rows])
    times = array("q", [row.timestamp_ms for row in rows])
    batch = bytes(encode_batch(rows))
    fetched = b"".join(bytes(encode_batch(rows, base_offset=at * BATCH_RECORDS)) for at in range(BATCHES))
    one, many = BATCH_RECORDS, BATCH_RECORDS * BATCHES
    runs: list[tuple[str, str, int, Callable[[], object]]] = [
        ("write", "headrace, from columns", one, lambda: build_batch(keys, values, 0, one, times)),
        ("write", "headrace, from objects", one, lambda: encode_batch(rows)),
        ("write", "aiokafka", one, lambda: built_by(AiokafkaBuilder, rows)),
        ("write", "kafka-python", one, lambda: built_by(KafkaPythonBuilder, rows)),
        ("read", "headrace, to columns", many, lambda: scan_batches(fetched)),
        ("read", "headrace, to objects", one, lambda: decode_records(batch)),
        ("read", "aiokafka", many, lambda: objects_of(AiokafkaRecords(fetched))),
        ("read", "kafka-python", one, lambda: objects_of(KafkaPythonRecords(batch))),
        ("walk", "headrace", one, lambda: kernel.walk(batch, HEADER_BYTES, len(batch), one, NOW_MS, False)),
        ("partition", "headrace", one, lambda: partitions_of(keys, 0, one, 3)),
    ]
    for what, whose, count, work in runs:
        yield what, whose, count / best_seconds(work)


def check_microseconds() -> Iterable[tuple[str, int, float]]:
    """(codec, records in the batch, µs to check it as a broker does)"""
    for codec in Codec:
        for count in (1, 100, 1000):
            rows = [Record(i, NOW_MS + i, None, b"v%015d" % i * 6) for i in range(count)]
            yield codec.name.lower(), count, _check_microseconds(memoryview(encode_batch(rows, codec=codec)))


def _check_microseconds(batch: memoryview) -> float:
    turns = 100
    return best_seconds(lambda: [check_produced(batch, max_message_bytes=1 << 24) for _ in range(turns)]) / turns * 1e6


def codec_megabytes() -> Iterable[tuple[str, float, float, float]]:
    """(codec, ratio, MB/s in, MB/s out) over a megabyte of events"""
    events = b"".join(b'{"id": %d, "carrier": "UA", "delay": %d}\n' % (i, i * 7919 % 97) for i in range(24_000))
    for codec in list(Codec)[1:]:
        packed = compress(codec, events)
        packing = best_seconds(partial(compress, codec, events))
        unpacking = best_seconds(partial(decompress, codec, packed))
        yield codec.name.lower(), len(events) / len(packed), len(events) / packing / 1e6, len(events) / unpacking / 1e6


def main() -> None:
    """Print the tables, or the same as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    as_json = parser.parse_args().json
    rates, checks, codecs = list(records_per_second()), list(check_microseconds()), list(codec_megabytes())
    if as_json:
        print(
            json.dumps({"compiled": kernel.COMPILED, "records_per_second": rates, "check_us": checks, "codecs": codecs})
        )
        return
    print(f"kernel compiled: {kernel.COMPILED}\n\nrecords/s ({VALUE_BYTES}-byte values, {BATCH_RECORDS} a batch)")
    for what, whose, rate in rates:
        print(f"  {what:10} {whose:24} {rate / 1e6:10.2f} M/s")
    print("\ncheck of a produced batch (96-byte values)")
    for codec, count, microseconds in checks:
        print(f"  {codec:8} {count:6} records {microseconds:10.1f} µs")
    print("\ncodecs              ratio   compress  decompress")
    for codec, ratio, packing, unpacking in codecs:
        print(f"  {codec:14} {ratio:8.1f} {packing:7.0f} MB/s {unpacking:7.0f} MB/s")


if __name__ == "__main__":
    main()
