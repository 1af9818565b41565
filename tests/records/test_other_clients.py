"""Our batches in other libraries' hands, and theirs in ours."""

import shutil
import subprocess
import zlib
from pathlib import Path

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords
from kio.records.readers import read_batch as read_with_kio

from headrace.records.codecs.compression import Codec
from headrace.records.format2.batch import Record, decode_records, encode_batch, read_header
from headrace.records.format2.columns import scan_batches
from tests.peers import kafka
from tests.records.samples import CODECS, golden_records, many_records

ROWS = [row._replace(offset=i) for i, row in enumerate(golden_records())]
READER = Path(__file__).parent / "golden" / "ReadBatches.java"


def _built_by_kafka_python(codec: Codec) -> bytes:
    builder = KafkaPythonBuilder(2, int(codec), False, -1, -1, -1, 1 << 24)
    for row in ROWS:
        builder.append(row.offset, row.timestamp_ms, row.key, row.value, list(row.headers))
    return bytes(builder.build())


def _built_by_aiokafka(codec: Codec) -> bytes:
    builder = AiokafkaBuilder(2, int(codec), False, -1, -1, -1, 1 << 24)
    for row in ROWS:
        builder.append(row.offset, row.timestamp_ms, row.key, row.value, list(row.headers))
    return bytes(builder.build())


BUILDERS = {"kafka-python": _built_by_kafka_python, "aiokafka": _built_by_aiokafka}


@pytest.mark.parametrize("builder", BUILDERS)
def test_uncompressed_batches_are_byte_for_byte_theirs(builder: str) -> None:
    theirs = bytearray(BUILDERS[builder](Codec.NONE))
    ours = encode_batch(ROWS, leader_epoch=read_header(theirs).leader_epoch)
    assert ours == theirs


@pytest.mark.parametrize("builder", BUILDERS)
@pytest.mark.parametrize("codec", CODECS)
def test_we_read_what_they_wrote(codec: Codec, builder: str) -> None:
    batch = BUILDERS[builder](codec)
    assert read_header(batch).codec is codec
    assert decode_records(batch) == ROWS
    assert scan_batches(batch).count == len(ROWS)


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_python_reads_what_we_wrote(codec: Codec) -> None:
    batch = KafkaPythonRecords(bytes(encode_batch(ROWS, codec=codec))).next_batch()
    assert batch.validate_crc()
    assert [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch] == ROWS


@pytest.mark.parametrize("codec", CODECS)
def test_aiokafka_reads_what_we_wrote(codec: Codec) -> None:
    batch = AiokafkaBatch(bytes(encode_batch(ROWS, codec=codec)))
    assert batch.validate_crc()
    assert [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in batch] == ROWS


def test_kio_reads_what_we_wrote() -> None:
    batch, size = read_with_kio(bytes(encode_batch(ROWS)), 0)
    assert size == len(encode_batch(ROWS))
    assert [(r.offset, r.key, r.value) for r in batch.records] == [(r.offset, r.key, r.value) for r in ROWS]
    assert [tuple(((h.key or b"").decode(), h.value) for h in r.headers) for r in batch.records] == [
        r.headers for r in ROWS
    ]


@pytest.mark.peer
@pytest.mark.slow
def test_apache_kafka_reads_what_we_wrote(tmp_path: Path) -> None:
    if reason := kafka.missing_tools():
        pytest.skip(reason)
    rows = many_records(3000)
    files = []
    for codec in CODECS:
        files.append(tmp_path / f"{codec.name}.bin")
        files[-1].write_bytes(b"".join(bytes(encode_batch(rows, base_offset=at, codec=codec)) for at in (0, 3000)))
    java = shutil.which("java")
    assert java is not None
    command = [java, "-cp", f"{kafka.jars()}/*", str(READER), *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    shifted = [*rows, *(row._replace(offset=row.offset + 3000) for row in rows)]
    assert done.stdout.split("\n")[:-1] == [f"6000 {_checksum(shifted)}"] * len(CODECS)


def _checksum(rows: list[Record]) -> int:
    """The CRC-32 that the Java reader takes of everything in some records."""
    crc = 0
    for row in rows:
        crc = zlib.crc32(row.offset.to_bytes(8, "big") + row.timestamp_ms.to_bytes(8, "big", signed=True), crc)
        parts = [row.key, row.value]
        for name, value in row.headers:
            parts += [name.encode(), value]
        for part in parts:
            size = -1 if part is None else len(part)
            crc = zlib.crc32(size.to_bytes(4, "big", signed=True) + (part or b""), crc)
    return crc
