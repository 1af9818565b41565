"""What a log is after a crash, or after damage to its files: on a real disk, file by file."""

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.log import appending, truncation
from headrace.log.partition_log import PartitionLog
from headrace.records.codecs.compression import Codec
from headrace.records.format2.batch import Record, encode_batch
from headrace.records.legacy.message_set import encode_message_set
from tests.log.support import (
    NOW_MS,
    Stored,
    append,
    append_batch,
    batch_of,
    config,
    max_timestamp_offset,
    offset_for_time,
    open_log,
    read_all,
)
from tests.rotation import random_bytes

SETTINGS = config(segment_bytes=2000)
FIRST = "00000000000000000000"


@pytest.fixture
def written(tmp_path: Path) -> list[Stored]:
    """A log of several segments, left as a kill -9 leaves it; its records."""
    log = open_log(tmp_path, SETTINGS)
    for number in range(60):
        append(
            log,
            b"value %d" % number,
            timestamps_ms=[NOW_MS + number],
            producer_id=7,
            sequence=number,
            epoch=number // 20,
        )
    assert len(log.segments) > 2
    return read_all(log)


def last_segment(directory: Path) -> Path:
    return max(directory.glob("*.log"))


def reopen(directory: Path, **more: Any) -> PartitionLog:
    return open_log(directory, SETTINGS, **more)


def assert_whole(log: PartitionLog, records: list[Stored]) -> None:
    """The log holds these records, finds each, and knows the producer's last sequence."""
    assert read_all(log) == records
    assert log.log_end_offset == len(records)
    assert log.producers.entries[7].last_sequence == len(records) - 1
    for record in records:
        assert offset_for_time(log, record.timestamp_ms, len(records)) == (
            record.offset,
            record.timestamp_ms,
            record.offset // 20,
        )


def test_everything_that_was_written_survives_a_kill(tmp_path: Path, written: list[Stored]) -> None:
    log = reopen(tmp_path)
    assert_whole(log, written)
    assert log.flusher.recovery_point == 0, "recovery alone brings nothing to the disk"
    assert log.leader_epochs.entries == [(0, 0), (1, 20), (2, 40)]
    assert append(log, b"next", producer_id=7, sequence=60).base_offset == 60


@pytest.mark.parametrize("cut", [1, 30, 61, 75])
def test_a_torn_tail_is_cut_off(tmp_path: Path, written: list[Stored], cut: int) -> None:
    path = last_segment(tmp_path)
    os.truncate(path, path.stat().st_size - cut)
    assert_whole(reopen(tmp_path), written[:-1])


@pytest.mark.parametrize(
    "tail", [b"\0" * 5000, b"\xff" * 100, random_bytes("tail", 3000)], ids=["zeros", "ones", "random"]
)
def test_a_tail_of_garbage_is_cut_off(tmp_path: Path, written: list[Stored], tail: bytes) -> None:
    path = last_segment(tmp_path)
    size = path.stat().st_size
    path.write_bytes(path.read_bytes() + tail)
    assert_whole(reopen(tmp_path), written)
    assert path.stat().st_size == size


def test_a_flipped_bit_ends_the_log_before_its_batch(tmp_path: Path, written: list[Stored]) -> None:
    path = tmp_path / f"{FIRST}.log"
    data = bytearray(path.read_bytes())
    batch_bytes = len(batch_of(b"value 0"))
    data[3 * batch_bytes + 70] ^= 4
    path.write_bytes(data)
    assert_whole(reopen(tmp_path), written[:3])
    assert [child.name for child in tmp_path.glob("*.log")] == [path.name], "what followed is gone"


def test_what_is_below_the_recovery_point_is_not_read(tmp_path: Path, written: list[Stored]) -> None:
    path = tmp_path / f"{FIRST}.log"
    data = bytearray(path.read_bytes())
    data[80] ^= 4
    path.write_bytes(data)
    assert reopen(tmp_path, recovery_point=59).log_end_offset == 60


def test_a_clean_stop_is_followed_by_no_scan(tmp_path: Path, written: list[Stored]) -> None:
    reopen(tmp_path).close(NOW_MS)
    path = last_segment(tmp_path)
    data = bytearray(path.read_bytes())
    data[80] ^= 4
    path.write_bytes(data)
    log = reopen(tmp_path, was_clean=True)
    assert (log.log_end_offset, log.flusher.recovery_point) == (60, 60)
    assert log.producers.entries[7].last_sequence == 59


@pytest.mark.parametrize("was_clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize("suffix", ["index", "timeindex"])
@pytest.mark.parametrize("damage", ["missing", "empty", "short", "random", "zeros", "of another segment"])
def test_a_damaged_index_is_made_again(
    tmp_path: Path, written: list[Stored], suffix: str, damage: str, was_clean: bool
) -> None:
    reopen(tmp_path).close(NOW_MS)
    chance = random.Random(damage)
    for path in tmp_path.glob(f"*.{suffix}"):
        data = path.read_bytes()
        match damage:
            case "missing":
                path.unlink()
            case "empty":
                path.write_bytes(b"")
            case "short":
                path.write_bytes(data[: len(data) // 2 + 3])
            case "random":
                path.write_bytes(chance.randbytes(len(data)))
            case "zeros":
                path.write_bytes(bytes(10_000))
            case _:
                path.write_bytes(bytes.fromhex("00000001 00000050 00000009 00000500"))
    assert_whole(reopen(tmp_path, was_clean=was_clean), written)


@pytest.mark.parametrize("content", [b"", b"0\n", b"0\n2\n0 0\n", b"\0" * 20, None])
def test_lost_leader_epochs_are_taken_from_the_batches(
    tmp_path: Path, written: list[Stored], content: bytes | None
) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    expected = [(0, 0), (1, 20), (2, 40)]
    assert reopen(tmp_path, recovery_point=59).leader_epochs.entries == expected
    assert reopen(tmp_path).leader_epochs.entries == expected


def test_a_log_that_ends_before_its_start_begins_there(tmp_path: Path, written: list[Stored]) -> None:
    log = reopen(tmp_path, log_start_offset=100)
    assert (log.log_start_offset, log.log_end_offset) == (100, 100)
    assert append(log, b"next", producer_id=7, sequence=3).base_offset == 100


def test_messages_of_older_formats_are_kept_up_to_the_first_bad_one(tmp_path: Path) -> None:
    rows = [Record(0, NOW_MS, None, b"v", ())] * 3
    messages = encode_message_set(rows, magic=0) + encode_message_set(rows, magic=1, codec=Codec.GZIP, base_offset=3)
    path = tmp_path / f"{FIRST}.log"
    path.write_bytes(
        messages + encode_batch(rows, base_offset=6) + encode_message_set(rows, magic=0, base_offset=9)[:-1]
    )
    log = reopen(tmp_path)
    assert (log.log_start_offset, log.log_end_offset) == (0, 11)
    assert log.leader_epochs.entries == []
    assert max_timestamp_offset(log) == (3, NOW_MS, -1)


def test_a_segment_whose_offsets_go_back_ends_there(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, b"a", b"b")
    append(log, b"c")
    path = tmp_path / f"{FIRST}.log"
    path.write_bytes(path.read_bytes() + path.read_bytes())
    assert open_log(tmp_path).log_end_offset == 3


# Leftovers of an interrupted deletion or compaction


def touch(directory: Path, *names: str) -> None:
    for name in names:
        (directory / name).touch()


def test_files_on_their_way_out_are_removed(tmp_path: Path, written: list[Stored]) -> None:
    touch(tmp_path, f"{FIRST}.log.deleted", "00000000000000000500.log.cleaned", "00000000000000000500.index")
    assert_whole(reopen(tmp_path), written)
    assert not [*tmp_path.glob("*.deleted"), *tmp_path.glob("*.cleaned"), *tmp_path.glob("*500*")]


def compacted(directory: Path, keep: Callable[[int], bool]) -> None:
    """The first segment as compaction leaves it, beside the old one."""
    source = open_log(directory / "source")
    for offset in range(20):
        if keep(offset):
            batch = batch_of(b"kept")
            batch[:8] = offset.to_bytes(8, "big")
            appending.append_replicated(source, memoryview(batch), now_ms=NOW_MS)
    (directory / "source" / f"{FIRST}.log").rename(directory / f"{FIRST}.log.swap")


def test_a_compacted_segment_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for _ in range(20):
        append(log, b"old")
    log.roll(NOW_MS)
    append(log, b"after")
    compacted(tmp_path, keep=lambda offset: offset % 5 == 0)
    log = open_log(tmp_path, recovery_point=20)
    assert [(record.offset, record.value) for record in read_all(log)] == [
        (0, b"kept"),
        (5, b"kept"),
        (10, b"kept"),
        (15, b"kept"),
        (20, b"after"),
    ]


def test_a_compaction_that_was_not_complete_is_undone(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for _ in range(20):
        append(log, b"old")
    compacted(tmp_path, keep=lambda offset: offset == 0)
    touch(tmp_path, f"{FIRST}.log.cleaned")
    assert len(read_all(open_log(tmp_path))) == 20


def test_truncation_drops_the_batch_that_holds_the_offset(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for number in range(4):
        append_batch(log, batch_of(b"a", b"b", producer_id=7, sequence=2 * number))
    truncation.truncate_to(log, 4, NOW_MS)
    assert len(read_all(log)) == log.log_end_offset == 4
    assert log.producers.entries[7].last_sequence == 3
    truncation.truncate_to(log, 100, NOW_MS)
    assert log.log_end_offset == 4
    truncation.truncate_fully(log, 1000, NOW_MS)
    assert (log.log_start_offset, log.log_end_offset, read_all(log)) == (1000, 1000, [])
    assert open_log(tmp_path).log_end_offset == 1000
