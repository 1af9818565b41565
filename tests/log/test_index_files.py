"""How long the files of a segment are while it is written to, when it is closed, and after a kill; and that nothing
that happens to an index changes what a reader is given."""

import errno
import logging
import os
import random
import shutil
import struct
from array import array
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.config import TopicConfig
from headrace.log import disk_calls
from headrace.log.partition_log import PartitionLog
from headrace.log.segment.txn_index import ENTRY, AbortedTransaction
from headrace.offline import repair as repairs
from headrace.offline.dump import dump
from headrace.offline.usage import usage_of
from headrace.offline.verify import BadIndex, CheckedSegment, verify
from headrace.records.format2.control import ABORT, COMMIT
from tests.examples import examples
from tests.log.support import (
    NOW_MS,
    SimulatedDisk,
    Stored,
    append,
    append_marker,
    config,
    fetch,
    max_timestamp_offset,
    offset_for_time,
    open_log,
    read_all,
)

FIRST = "00000000000000000000"
FULL = {".index": 10 << 20, ".timeindex": (10 << 20) - 4}
"""`segment.index.bytes` as it is by default, in whole entries of 8 and of 12 bytes."""


def full_size(**more: object) -> TopicConfig:
    return config(segment_index_bytes=10 << 20, **more)


def sizes(directory: Path, base_offset: int = 0) -> dict[str, int]:
    return {path.suffix: path.stat().st_size for path in directory.glob(f"{base_offset:020}.*")}


def write(log: PartitionLog, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        append(log, b"value %d" % number, timestamps_ms=[NOW_MS + number])


# How long files are


def test_the_indexes_of_an_active_segment_have_their_full_size_and_take_no_space(tmp_path: Path) -> None:
    log = open_log(tmp_path, full_size())
    write(log, 20)
    found = sizes(tmp_path)
    assert {suffix: found[suffix] for suffix in FULL} == FULL
    assert all((tmp_path / (FIRST + suffix)).stat().st_blocks == 0 for suffix in FULL)
    assert usage_of(log.files, tmp_path).index_bytes == 0


def test_a_roll_and_a_clean_stop_leave_entries_alone(tmp_path: Path) -> None:
    log = open_log(tmp_path, full_size())
    write(log, 20)
    entries = (
        len(log.active.indexes.offset_index),
        len(log.active.indexes.time_index) + 1,
    )  # a closed one ends with the largest time
    log.roll(NOW_MS)
    assert sizes(tmp_path) == {".log": log.segments[0].size, ".index": 8 * entries[0], ".timeindex": 12 * entries[1]}
    assert sizes(tmp_path, 20)[".index"] == FULL[".index"]
    log.close(NOW_MS)
    closed = sizes(tmp_path, 20)
    assert (closed[".index"], closed[".timeindex"]) == (0, 0)


def test_a_segment_made_and_not_written_to_is_trimmed_by_a_clean_stop_too(tmp_path: Path) -> None:
    log = open_log(tmp_path, full_size())
    write(log, 3)
    log.close(NOW_MS)
    log = open_log(tmp_path, full_size(), was_clean=True)
    log.roll(NOW_MS)
    log.close(NOW_MS)
    assert sizes(tmp_path, 3)[".index"] == 0


def test_an_index_is_long_again_once_a_reopened_segment_has_entries_for_it(tmp_path: Path) -> None:
    log = open_log(tmp_path, full_size(index_interval_bytes=0))
    write(log, 3)
    log.close(NOW_MS)
    log = open_log(tmp_path, full_size(index_interval_bytes=0), was_clean=True)
    write(log, 600, first=3)  # more than a page of entries
    assert {suffix: sizes(tmp_path)[suffix] for suffix in FULL} == FULL
    assert [record.offset for record in read_all(log)] == list(range(603))
    shutil.copytree(tmp_path, tmp_path.with_name("killed"))
    assert [r.offset for r in read_all(open_log(tmp_path.with_name("killed"), full_size()))] == list(range(603))


def test_after_a_kill_the_indexes_are_made_again_and_hold_their_entries_alone(tmp_path: Path) -> None:
    write(open_log(tmp_path, full_size()), 20)
    log = open_log(tmp_path, full_size())
    assert sizes(tmp_path)[".index"] == 8 * len(log.active.indexes.offset_index) > 0
    assert [record.offset for record in read_all(log)] == list(range(20))


def test_an_index_without_room_for_an_entry_rolls_its_segment(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(segment_index_bytes=40, index_interval_bytes=0))
    write(log, 30)
    assert len(log.segments) > 5
    assert all(sizes(tmp_path, segment.base_offset)[".index"] <= 40 for segment in log.segments)
    assert [record.offset for record in read_all(log)] == list(range(30))


@pytest.mark.parametrize("trouble", ["writes the zeros", "refuses"])
def test_a_file_system_without_holes_is_spared_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    asked: list[int] = []

    class Status:
        def __init__(self, real: os.stat_result) -> None:
            self.st_dev, self.st_size, self.st_blocks = -7, real.st_size, -(-real.st_size // 512)

    def ftruncate(fd: int, size: int) -> None:
        asked.append(size)
        if trouble == "refuses" and size > 1 << 20:
            raise OSError(errno.EFBIG, "too large")
        os.truncate(fd, size)

    monkeypatch.setattr(disk_calls, "_without_holes", set())
    monkeypatch.setattr(disk_calls, "_with_holes", array("Q"))
    monkeypatch.setattr(os, "ftruncate", ftruncate)
    if trouble == "writes the zeros":
        fstat = os.fstat
        monkeypatch.setattr(os, "fstat", lambda fd: Status(fstat(fd)))
    log = open_log(tmp_path, full_size(preallocate=True, segment_bytes=1500))
    write(log, 20)
    if trouble == "writes the zeros":
        assert disk_calls._without_holes == {-7}
        assert max(asked) == 1500, "the first file showed it, and no second was asked for"
        assert sizes(tmp_path, log.active.base_offset)[".index"] < 1000
    assert [record.offset for record in read_all(log)] == list(range(20))
    log.close(NOW_MS)
    assert [r.offset for r in read_all(open_log(tmp_path, full_size(), was_clean=True))] == list(range(20))


# Segments made in advance


def made_in_advance(directory: Path) -> PartitionLog:
    log = open_log(directory, config(preallocate=True, segment_bytes=200_000))
    write(log, 20)
    return log


def test_a_segment_made_in_advance_is_as_long_as_it_may_become_until_it_is_closed(tmp_path: Path) -> None:
    log = made_in_advance(tmp_path)
    assert sizes(tmp_path)[".log"] == 200_000
    assert log.size_bytes == log.active.size < 2000
    assert [record.offset for record in read_all(log)] == list(range(20))
    log.roll(NOW_MS)
    assert sizes(tmp_path)[".log"] == log.segments[0].size
    write(log, 1, first=20)
    log.close(NOW_MS)
    assert sizes(tmp_path, 20)[".log"] == log.segments[1].size


@pytest.mark.parametrize("closes_by", ["a roll", "a stop"])
@pytest.mark.parametrize("seed", range(8))
def test_its_end_is_cut_on_the_disk_too(closes_by: str, seed: int) -> None:
    """Also when its records were flushed long before: what came behind zeros would be lost with the power."""
    directory, ahead = Path("/data/flights-0"), config(preallocate=True, segment_bytes=200_000)
    disk = SimulatedDisk()
    log = open_log(directory, ahead, disk)
    write(log, 20)
    log.flusher.flush(NOW_MS)
    if closes_by == "a stop":
        log.close(NOW_MS)
        log = open_log(directory, ahead, disk, was_clean=True)
    log.roll(NOW_MS)
    write(log, 5, first=20)
    log.flusher.flush(NOW_MS)
    log = open_log(directory, ahead, disk.after_crash(random.Random(seed)))
    assert [record.offset for record in read_all(log)] == list(range(25))


def test_what_a_kill_leaves_of_it_is_read_and_cut(tmp_path: Path) -> None:
    size = made_in_advance(tmp_path).active.size
    for was_clean in (True, False):  # whatever the mark says
        copy = shutil.copytree(tmp_path, tmp_path.with_name(f"copy-{was_clean}"))
        log = open_log(copy, was_clean=was_clean)
        assert [record.offset for record in read_all(log)] == list(range(20))
        assert sizes(copy)[".log"] == size
        assert append(log, b"next").base_offset == 20


def test_the_tools_take_its_room_for_no_damage(tmp_path: Path) -> None:
    log = made_in_advance(tmp_path)
    [found] = verify(tmp_path, deep=True)
    assert isinstance(found, CheckedSegment)
    assert (found.size_bytes, found.batches) == (log.active.size, 20)
    rows = list(dump(tmp_path / f"{FIRST}.log"))
    assert [row["kind"] for row in rows] == ["batch"] * 20 + ["room"]
    assert rows[-1]["position"] == log.active.size
    assert usage_of(log.files, tmp_path).log_bytes < 20_000


# Whatever happens to an index


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of several segments with transactions, cleanly stopped."""
    directory = tmp_path_factory.mktemp("whole") / "flights-0"
    log = open_log(directory, config(segment_bytes=3000))
    for number in range(97):
        append(log, b"value %d" % number, b"x" * (number % 7), timestamps_ms=[NOW_MS + 10 * number] * 2)
        if number % 10 == 0:
            append(log, b"tx", producer_id=5, sequence=number // 10, is_transactional=True)
        if number % 10 == 4:
            append_marker(log, COMMIT if number % 30 == 4 else ABORT, 5)
    log.close(NOW_MS)
    return directory


Seen = tuple[list[Stored], list[object], list[AbortedTransaction], list[bytes]]


def seen(directory: Path, *, was_clean: bool = True) -> Seen:
    """Everything that a reader may ask of a log."""
    log = open_log(directory, config(segment_bytes=3000), was_clean=was_clean)
    end = log.log_end_offset
    times: list[object] = [offset_for_time(log, NOW_MS + 7 * at, end) for at in range(0, 135, 3)]
    times += [max_timestamp_offset(log), *[segment.largest for segment in log.segments]]
    aborted = log.aborted_transactions(0, end)
    return read_all(log), times, aborted, [fetch(log, offset, 200) for offset in range(0, end, 5)]


def damaged(data: bytes, how: str, chance: random.Random) -> bytes:
    at = chance.randrange(max(1, len(data)))
    match how:
        case "bytes":
            count = chance.randrange(1, 9)
            return data[:at] + chance.randbytes(count) + data[at + count :]
        case "bit":
            return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :] if data else b"\1"
        case "truncated":
            return data[:at]
        case "zeroed":
            return data[:at] + bytes(len(data) - at)
        case "zeros in it":
            return data[:at] + bytes(min(20, len(data) - at)) + data[at + 20 :]
        case "longer":
            return data + chance.randbytes(chance.randrange(40))
        case "random":
            return chance.randbytes(len(data))
        case _:
            return b""


DAMAGES = ["bytes", "bit", "truncated", "zeroed", "zeros in it", "longer", "random", "empty"]


@pytest.mark.slow
@settings(max_examples=examples(150), deadline=None)
@given(st.sampled_from(DAMAGES), st.integers(0, 1 << 32), st.sampled_from(["index", "timeindex", "*index"]))
def test_no_damage_to_an_index_changes_what_a_reader_is_given(
    tmp_path_factory: pytest.TempPathFactory, whole: Path, how: str, seed: int, which: str
) -> None:
    chance = random.Random(seed)
    copy = tmp_path_factory.mktemp("copy") / "flights-0"
    shutil.copytree(whole, copy)
    for path in copy.glob(f"*.{which}"):
        if path.suffix != ".txnindex" and chance.random() < 0.7:
            path.write_bytes(damaged(path.read_bytes(), how, chance))
    assert seen(copy) == seen(whole)
    shutil.rmtree(copy)


def swap(data: bytes, size: int) -> bytes:
    return data[size : 2 * size] + data[:size] + data[2 * size :]


OFFSETS = {
    "half an entry": lambda data: data + b"\0\0\0",
    "entries out of order": lambda data: swap(data, 8),
    "an offset below the base": lambda data: struct.pack(">ii", -3, 7) + data[8:],
    "a position past the end": lambda data: data[:-4] + struct.pack(">i", 1 << 30),
}
TIMES = {
    "half an entry": lambda data: data + b"\0\0\0",
    "entries out of order": lambda data: swap(data, 12),
    "a time before all time": lambda data: struct.pack(">q", -3) + data[8:],
    "an offset below the base": lambda data: data[:8] + struct.pack(">i", -3) + data[12:],
    "a last time that no batch has": lambda data: data[:-12] + struct.pack(">q", NOW_MS + (1 << 40)) + data[-4:],
}
Change = Callable[[bytes], bytes]


@pytest.mark.parametrize(
    ("suffix", "change"),
    [("index", change) for change in OFFSETS.values()] + [("timeindex", change) for change in TIMES.values()],
    ids=[f"offsets: {name}" for name in OFFSETS] + [f"times: {name}" for name in TIMES],
)
@pytest.mark.parametrize("number", [0, -1], ids=["a closed segment", "the active segment"])
def test_an_index_that_makes_no_sense_is_made_again_after_a_clean_stop_with_a_warning(
    whole: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, suffix: str, change: Change, number: int
) -> None:
    copy = shutil.copytree(whole, tmp_path / "flights-0")
    path = sorted(copy.glob(f"*.{suffix}"))[number]
    path.write_bytes(change(path.read_bytes()))
    with caplog.at_level(logging.WARNING):
        assert seen(copy) == seen(whole)
    assert [record for record in caplog.records if path.stem in record.message and "are rebuilt" in record.message]
    assert path.read_bytes() == (whole / path.name).read_bytes(), "and it is what it was"


TRANSACTIONS = {
    "half an entry": lambda data: data[:-3],
    "another version": lambda data: b"\0\7" + data[2:],
    "entries out of order": lambda data: swap(data, ENTRY.size) if len(data) > ENTRY.size else data * 2,
    "an offset of another segment": lambda data: ENTRY.pack(0, 5, 0, 0, 0) + data[ENTRY.size :],
    "a stable offset past the marker": lambda data: data[:-8] + struct.pack(">q", 1 << 40),
    "another producer": lambda data: data[:2] + struct.pack(">q", 6) + data[10:],
    "zeros": lambda data: bytes(len(data)),
    "garbage behind": lambda data: data + b"\1" * ENTRY.size,
}


@pytest.mark.parametrize("change", TRANSACTIONS.values(), ids=TRANSACTIONS)
@pytest.mark.parametrize("was_clean", [True, False], ids=["clean", "killed"])
def test_a_transaction_index_that_makes_no_sense_is_made_again_with_a_warning(
    whole: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, change: Change, was_clean: bool
) -> None:
    copy = shutil.copytree(whole, tmp_path / "flights-0")
    for path in copy.glob("*.txnindex"):
        path.write_bytes(change(path.read_bytes()))
    with caplog.at_level(logging.WARNING):
        assert seen(copy, was_clean=was_clean) == seen(whole)
    for path in copy.glob("*.txnindex"):
        assert path.read_bytes() == (whole / path.name).read_bytes()
        assert any(str(path) in record.message for record in caplog.records)


def test_repair_makes_a_transaction_index_again(whole: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(whole, tmp_path / "data" / "flights-0")
    path = sorted(copy.glob("*.txnindex"))[1]
    path.write_bytes(path.read_bytes()[:-3])
    findings = list(verify(copy))
    assert [finding.file for finding in findings if isinstance(finding, BadIndex)] == [path]
    for each in repairs.plan(findings):
        assert repairs.apply(open_log(tmp_path / "other").files, each, tmp_path / "saved") == []
    assert path.read_bytes() == (whole / path.name).read_bytes()
    assert not [finding for finding in verify(copy) if isinstance(finding, BadIndex)]
