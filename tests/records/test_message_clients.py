"""Our message sets in other libraries' hands, and theirs in ours."""

import shutil
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatch as AiokafkaBatch
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder as AiokafkaBuilder
from kafka.record.legacy_records import LegacyRecordBatch as KafkaPythonBatch
from kafka.record.legacy_records import LegacyRecordBatchBuilder as KafkaPythonBuilder

from headrace.records.binary import column_of
from headrace.records.codecs.compression import Codec
from headrace.records.format2.batch import Record, encode_batch
from headrace.records.legacy.message_columns import build_message_set, scan_message_set
from headrace.records.legacy.message_set import decode_message_set, encode_message_set
from headrace.records.legacy.produced_sets import check_produced_set, place_set
from tests.peers import kafka
from tests.records.message_samples import CODECS, GOLDEN_SETS, as_stored, rows_of
from tests.records.samples import many_records

GOLDEN = Path(__file__).parent / "golden"
ROWS = [row._replace(headers=()) for row in many_records(60)]
LIBRARIES = {"kafka-python": (KafkaPythonBuilder, KafkaPythonBatch), "aiokafka": (AiokafkaBuilder, AiokafkaBatch)}

libraries = pytest.mark.parametrize("library", LIBRARIES)
both_formats = pytest.mark.parametrize("magic", [0, 1])


def built(library: str, magic: int, codec: Codec) -> bytes:
    """The rows as the library's producer builds them."""
    builder: Any = LIBRARIES[library][0](magic, int(codec), 1 << 24)
    for row in ROWS:
        builder.append(row.offset, row.timestamp_ms, row.key, row.value)
    return bytes(builder.build())


def read(library: str, message_set: bytes, magic: int) -> list[Record]:
    """What the library's consumer reads from each entry of a set."""
    batch: Any = LIBRARIES[library][1]
    found = []
    pos = 0
    while pos < len(message_set):
        end = pos + 12 + int.from_bytes(message_set[pos + 8 : pos + 12], "big")
        entry = batch(bytearray(message_set[pos:end]), magic)
        assert entry.validate_crc()
        found += [Record(r.offset, -1 if r.timestamp is None else r.timestamp, r.key, r.value) for r in entry]
        pos = end
    return found


def can_do(magic: int, codec: Codec) -> bool:
    """Neither has the lz4 of Kafka 0.8 as it is installed here: kafka-python wants xxhash, aiokafka refuses."""
    return not (magic == 0 and codec is Codec.LZ4)


@libraries
@both_formats
def test_plain_messages_are_byte_for_byte_theirs(library: str, magic: int) -> None:
    theirs = built(library, magic, Codec.NONE)
    assert encode_message_set(ROWS, magic=magic) == theirs
    columns = scan_message_set(theirs)
    assert build_message_set(columns.keys, columns.values, 0, len(ROWS), columns.timestamps_ms, magic=magic) == theirs


@libraries
@both_formats
@pytest.mark.parametrize("codec", CODECS)
def test_we_take_place_and_read_what_they_wrote(library: str, magic: int, codec: Codec) -> None:
    if not can_do(magic, codec):
        pytest.skip("the library does not write it")
    sent = bytearray(built(library, magic, codec))
    assert decode_message_set(sent) == as_stored(ROWS, magic)
    checked = check_produced_set(memoryview(sent), max_message_bytes=1 << 24)
    placed = place_set(sent, checked, base_offset=7)
    moved = as_stored([row._replace(offset=row.offset + 7) for row in ROWS], magic)
    assert rows_of(scan_message_set(placed.data)) == moved
    assert placed.is_rewritten == (magic == 0 and codec is not Codec.NONE)


@libraries
@both_formats
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("stamp", [None, 1_800_000_000_000])
def test_they_read_what_we_wrote(library: str, magic: int, codec: Codec, stamp: int | None) -> None:
    if not can_do(magic, codec):
        pytest.skip("the library does not read it")
    ours = encode_message_set(ROWS, magic=magic, codec=codec, base_offset=100, log_append_time_ms=stamp)
    moved = as_stored([row._replace(offset=row.offset + 100) for row in ROWS], magic, stamp)
    assert read(library, bytes(ours), magic) == moved


def _java(program: Path, *arguments: str) -> list[str]:
    if reason := kafka.missing_tools():
        pytest.skip(reason)
    java = shutil.which("java")
    assert java is not None
    command = [java, "-cp", f"{kafka.jars()}/*", str(program), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout.splitlines()


@pytest.mark.peer
@pytest.mark.slow
def test_the_golden_sets_are_what_apache_kafka_writes_today() -> None:
    lines = dict(line.split() for line in _java(GOLDEN / "MakeMessageSets.java"))
    assert {name: bytes.fromhex(data) for name, data in lines.items()} == {
        name: data for name, data in GOLDEN_SETS.items() if name.startswith("4.3.1")
    }


@pytest.mark.peer
@pytest.mark.slow
def test_apache_kafka_reads_what_we_wrote(tmp_path: Path) -> None:
    rows = [row._replace(headers=()) for row in many_records(2000)]
    shifted = [row._replace(offset=row.offset + 2000) for row in rows]
    keys, values = column_of([row.key for row in rows]), column_of([row.value for row in rows])
    times = memoryview(b"".join(row.timestamp_ms.to_bytes(8, "little") for row in rows)).cast("q")
    write: dict[str, Callable[[int, Codec], bytes | bytearray]] = {
        "objects": lambda magic, codec: encode_message_set(shifted, magic=magic, codec=codec, base_offset=None),
        "columns": lambda magic, codec: build_message_set(
            keys, values, 0, 2000, times, magic=magic, codec=codec, base_offset=2000
        ),
        "stamped": lambda magic, codec: encode_message_set(
            shifted, magic=magic, codec=codec, base_offset=None, log_append_time_ms=5
        ),
    }
    files, expected = [], []
    for magic in (0, 1):
        for codec in CODECS:
            for name, writer in write.items():
                files.append(tmp_path / f"v{magic}-{codec.name}-{name}.bin")
                sent = bytearray(encode_message_set(rows, magic=magic, codec=codec))
                checked = check_produced_set(memoryview(sent), max_message_bytes=1 << 24)
                first = place_set(sent, checked, base_offset=0).data
                files[-1].write_bytes(bytes(first) + bytes(writer(magic, codec)))
                second = as_stored(shifted, magic, 5 if name == "stamped" else None)
                expected.append(as_stored(rows, magic) + second)
    files.append(tmp_path / "mixed.bin")
    files[-1].write_bytes(files[0].read_bytes() + bytes(encode_batch(rows, base_offset=4000)))
    expected.append(expected[0] + [row._replace(offset=row.offset + 4000) for row in rows])
    assert _java(GOLDEN / "ReadBatches.java", *map(str, files)) == [f"{len(e)} {_checksum(e)}" for e in expected]


def _checksum(rows: list[Record]) -> int:
    """The CRC-32 that the Java reader takes of everything in some records without headers."""
    crc = 0
    for row in rows:
        crc = zlib.crc32(row.offset.to_bytes(8, "big") + row.timestamp_ms.to_bytes(8, "big", signed=True), crc)
        for part in (row.key, row.value):
            size = -1 if part is None else len(part)
            crc = zlib.crc32(size.to_bytes(4, "big", signed=True) + (part or b""), crc)
    return crc
