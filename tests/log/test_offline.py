"""Partitions read from their files alone: what a reader of committed records would see, whatever state they are in."""

import random
from pathlib import Path

import pytest

from headrace.log.directories.checkpoints import LOG_START_OFFSET, write_offsets
from headrace.log.files import LocalFiles
from headrace.offline import stored_partitions
from headrace.offline.stored_partitions import StoredLog, find_partitions, open_stored
from headrace.records.codecs.compression import Codec
from headrace.records.format2.batch import Record, encode_batch
from headrace.records.format2.columns import RecordColumns
from headrace.records.format2.control import ABORT, COMMIT, Marker, encode_marker
from headrace.types import TopicPartition
from tests.log.log_writer_07 import LogWriter07
from tests.records.conversion_samples import NOW_MS, random_pieces

FILES = LocalFiles()
PARTITION = TopicPartition("flights", 0)


def write_log(directory: Path, *segments: bytes) -> Path:
    """Segments that are named by number 0, 1000, 2000…"""
    directory.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(segments):
        (directory / f"{number * 1000:020d}.log").write_bytes(data)
    return directory


def opened(path: Path) -> StoredLog:
    (stored,) = find_partitions(FILES, path)
    return open_stored(FILES, stored)


def records_of(rows: RecordColumns) -> list[Record]:
    found = []
    for row in range(rows.count):
        headers = []
        if rows.headers is not None:
            for at in range(rows.headers.list_offsets[row], rows.headers.list_offsets[row + 1]):
                name = rows.headers.keys.value(at)
                assert name is not None
                headers.append((name.decode(), rows.headers.values.value(at)))
        key = None if rows.keys is None else rows.keys.value(row)
        value = None if rows.values is None else rows.values.value(row)
        found.append(Record(rows.offsets[row], rows.timestamps_ms[row], key, value, tuple(headers)))
    return found


def read(log: StoredLog) -> list[Record]:
    return [record for rows in log.columns() for record in records_of(rows)]


def batch(first: int, count: int = 3, *, producer_id: int = -1) -> bytes:
    rows = [Record(first + i, NOW_MS + i, b"k", b"%d" % (first + i)) for i in range(count)]
    transactional = producer_id >= 0
    return bytes(
        encode_batch(
            rows, base_offset=first, producer_id=producer_id, producer_epoch=0 if transactional else -1,
            base_sequence=first if transactional else -1, is_transactional=transactional,
        )
    )  # fmt: skip


def marker(kind: int, offset: int, producer_id: int) -> bytes:
    made = encode_marker(
        Marker(kind, 0), producer_id=producer_id, producer_epoch=0, timestamp_ms=NOW_MS, base_offset=offset
    )
    return bytes(made)


def offsets(records: list[Record]) -> list[int]:
    return [record.offset for record in records]


def test_every_format_in_one_partition_reads_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_partitions, "CHUNK_BYTES", 500)
    parts = random_pieces(random.Random(3), 80)
    half = len(parts) // 2
    directory = write_log(
        tmp_path / "flights-0", b"".join(p.data for p in parts[:half]), b"".join(p.data for p in parts[half:])
    )
    log = opened(directory)
    assert read(log) == [row for part in parts for row in part.seen_as(part.magic)]
    assert (log.formats, log.damages, log.bytes_read) == (["0", "1", "2"], [], log.size_bytes)


def test_a_data_directory_is_its_partitions_and_nothing_else(tmp_path: Path) -> None:
    for name in ("a-0", "a-1", "b.c-12", "a-0.1f2e-delete", "a-2.1f2e-future", "empty-0", "notes"):
        (tmp_path / name).mkdir()
        if name != "empty-0":
            write_log(tmp_path / name, batch(0))
    LogWriter07(FILES, tmp_path / "old_topic_3").append([b"x"])
    (tmp_path / "meta.properties").write_text("")
    found = [(each.partition, each.is_07) for each in find_partitions(FILES, tmp_path)]
    assert found == [
        (TopicPartition("a", 0), False),
        (TopicPartition("a", 1), False),
        (TopicPartition("b.c", 12), False),
        (TopicPartition("old_topic", 3), True),
    ]
    with pytest.raises(FileNotFoundError):
        find_partitions(FILES, tmp_path / "notes")


def test_values_of_kafka_0_7_have_no_key_and_no_time(tmp_path: Path) -> None:
    writer = LogWriter07(FILES, tmp_path / "clicks-1", segment_bytes=100)
    for i in range(20):
        writer.append([b"one %d" % i, b"two"], codec=Codec.GZIP if i % 2 else Codec.NONE)
    log = opened(tmp_path / "clicks-1")
    assert [row[1:4] for row in read(log)] == [
        (-1, None, value) for i in range(20) for value in (b"one %d" % i, b"two")
    ]
    assert log.partition == TopicPartition("clicks", 1) and log.formats == ["0.7"]


def test_aborted_and_unfinished_transactions_are_left_out(tmp_path: Path) -> None:
    """Two producers at once, one that aborts and one that commits; then both again, one without an end."""
    data = [
        batch(0), batch(3, producer_id=7), batch(6, producer_id=8), marker(ABORT, 9, 7), batch(10),
        marker(COMMIT, 13, 8), batch(14, producer_id=7), batch(17, producer_id=8), marker(COMMIT, 20, 7), batch(21),
    ]  # fmt: skip
    log = opened(write_log(tmp_path / "flights-0", b"".join(data[:5]), b"".join(data[5:])))
    assert offsets(read(log)) == [0, 1, 2, 6, 7, 8, 10, 11, 12, 14, 15, 16, 21, 22, 23]
    assert log.records_left_out == 6 and log.damages == []


def test_deleted_records_below_the_log_start_are_left_out(tmp_path: Path) -> None:
    directory = write_log(tmp_path / "flights-0", batch(0) + batch(3))
    write_offsets(FILES, tmp_path / LOG_START_OFFSET, {PARTITION: 4})
    assert offsets(read(opened(directory))) == [4, 5]


@pytest.mark.parametrize("cut", [8, 11, 20, 60, 70])
def test_a_torn_tail_is_told(tmp_path: Path, cut: int) -> None:
    good = batch(0)
    log = opened(write_log(tmp_path / "flights-0", good + batch(3)[:cut]))
    assert offsets(read(log)) == [0, 1, 2]
    assert [(each.offset, each.end_offset) for each in log.damages] == [(len(good), len(good) + cut)]


def test_zeros_behind_the_last_batch_are_room_and_no_damage(tmp_path: Path) -> None:
    log = opened(write_log(tmp_path / "flights-0", batch(0) + bytes(5000)))
    assert offsets(read(log)) == [0, 1, 2] and log.damages == []


def test_one_flipped_bit_costs_one_batch(tmp_path: Path) -> None:
    bad = bytearray(batch(3))
    bad[-3] ^= 1
    log = opened(write_log(tmp_path / "flights-0", batch(0) + bad + batch(6), batch(1000)))
    assert offsets(read(log)) == [0, 1, 2, 6, 7, 8, 1000, 1001, 1002]
    assert len(log.damages) == 1 and "CRC" in log.damages[0].reason


def test_nonsense_costs_the_rest_of_its_file(tmp_path: Path) -> None:
    nonsense = random.Random(5).randbytes(300)
    log = opened(write_log(tmp_path / "flights-0", batch(0) + nonsense + batch(6), batch(1000)))
    assert offsets(read(log)) == [0, 1, 2, 1000, 1001, 1002]
    assert len(log.damages) == 1


@pytest.mark.parametrize("seed", range(30))
def test_random_damage_never_ends_a_reading(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    data = bytearray(b"".join(part.data for part in random_pieces(rng, 15)))
    for _ in range(rng.randrange(1, 20)):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    log = opened(write_log(tmp_path / "flights-0", bytes(data[: rng.randrange(len(data))]), batch(1_000_000)))
    assert offsets(read(log))[-3:] == [1_000_000, 1_000_001, 1_000_002]
