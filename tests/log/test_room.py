"""Room: zeros behind the last batch of an active segment's file, so that appends find large folios to copy to."""

import logging
import os
import random
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from headrace.config import TopicConfig
from headrace.limits import INT32_MAX, ROOM_BYTES
from headrace.log import append_state, truncation
from headrace.log.append_state import NOT_APPENDED, FileEnd, LateWrites, zeros_behind
from headrace.log.files import DiskFile, Files, LocalFiles, LogFile, PathText
from headrace.log.page_cache import keeps_large_folios
from headrace.log.partition_log import PartitionLog
from headrace.log.segment import file_records, preallocation
from headrace.log.segment.preallocation import filled_to
from headrace.log.watched_files import DirectoryWatch, WatchedFiles
from headrace.offline.dump import dump
from headrace.offline.stored_partitions import find_partitions, open_stored
from headrace.offline.verify import CheckedSegment, Damage, verify
from headrace.records.format2.header import set_base_offset
from headrace.records.format2.plain_batch import BATCH_FIELDS, is_plain
from tests.broker.refusing_disk import refusing
from tests.log.support import NOW_MS, Background, SimulatedDisk, append_batch, batch_of, config, open_log, read_all
from tests.uncompiled import uncompiled

VALUE = bytes(range(256)) * 60
"""Of a record; 15 KiB."""
ALWAYS = {"preallocate_room": "always", "segment_bytes": 64 << 20}
Way = Callable[[PartitionLog, int], None]
general: list[int] = []
"""What took the general way because the short one did not take it."""


def numbered(number: int, value: bytes = VALUE) -> bytearray:
    return batch_of(b"%08d" % number + value)


def generally(log: PartitionLog, number: int) -> None:
    append_batch(log, numbered(number))


def plainly(log: PartitionLog, number: int, late: LateWrites | None = None) -> None:
    batch = memoryview(numbered(number))
    found = memoryview(bytearray(8 * BATCH_FIELDS)).cast("q")
    assert is_plain(batch, 0, len(batch), log.batch_bytes_max, False, True, found)
    count, max_timestamp, producer_id, epoch, sequence = found
    base_offset = log.append_plain(
        batch, 0, len(batch), 0, NOW_MS, count, max_timestamp, producer_id, epoch, sequence, late
    )
    if base_offset == NOT_APPENDED:
        general.append(number)
        append_batch(log, bytearray(batch))


def as_follower(log: PartitionLog, number: int) -> None:
    batch = numbered(number)
    set_base_offset(batch, log.log_end_offset, 0)
    if log.append_run(memoryview(batch), 0, len(batch), 1 << 20, NOW_MS) == 0:
        general.append(number)
        append_batch(log, batch)


late_writes = LateWrites()


def late(log: PartitionLog, number: int) -> None:
    plainly(log, number, late_writes)
    if number % 5 == 0:
        assert late_writes.write() == 0


WAYS: dict[str, Way] = {"general": generally, "plain": plainly, "follower": as_follower, "late": late}


def opened(directory: Path, files: Files | None = None, **settings: object) -> PartitionLog:
    return open_log(directory / "flights-0", config(**{**ALWAYS, **settings}), files)


def filled(log: PartitionLog, way: Way, numbers: range) -> PartitionLog:
    for number in numbers:
        way(log, number)
    late_writes.write()
    return log


def numbers_in(log: PartitionLog) -> list[int]:
    return [int((record.value or b"")[:8]) for record in read_all(log)]


def length(log: PartitionLog) -> int:
    return Path(log.active.records.text).stat().st_size


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Way:
    return WAYS[request.param]


def test_a_file_of_a_mebibyte_and_more_ends_at_a_multiple_of_the_room(tmp_path: Path, way: Way) -> None:
    log = opened(tmp_path)
    general.clear()
    lengths = set()
    for number in range(200):
        way(log, number)
        if way is late and number % 5:
            continue
        if log.active.size < preallocation.ROOM_FROM_BYTES:
            assert length(log) == log.active.size
        else:
            assert length(log) % ROOM_BYTES == 0
            assert 0 <= length(log) - log.active.size < ROOM_BYTES
            lengths.add(length(log))
    late_writes.write()
    assert all(after - before <= 2 * ROOM_BYTES for before, after in pairwise(sorted(lengths)))
    assert len(lengths) > 10
    assert general in ([], [0])
    content = Path(log.active.records.text).read_bytes()
    assert not any(content[log.active.size :])
    assert numbers_in(log) == list(range(200))


def test_a_roll_and_a_clean_stop_cut_it(tmp_path: Path, way: Way) -> None:
    log = filled(opened(tmp_path), way, range(100))
    first = Path(log.active.records.text)
    assert first.stat().st_size > log.active.size
    log.roll(NOW_MS)
    assert first.stat().st_size == log.segments[0].size
    filled(log, way, range(100, 200))
    assert length(log) > log.active.size
    log.close(NOW_MS)
    assert length(log) == log.segments[1].size
    again = open_log(log.directory, config(**ALWAYS), was_clean=True)
    assert numbers_in(again) == list(range(200))


def test_a_killed_broker_s_room_is_cut_without_a_warning(
    tmp_path: Path, way: Way, caplog: pytest.LogCaptureFixture
) -> None:
    log = filled(opened(tmp_path), way, range(100))
    assert length(log) > log.active.size
    shutil.copytree(log.directory, tmp_path / "killed" / "flights-0")
    again = opened(tmp_path / "killed")
    assert length(again) == again.active.size == log.active.size
    assert numbers_in(again) == list(range(100))
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]
    filled(again, way, range(100, 120))
    assert numbers_in(again) == list(range(120))
    assert length(again) % ROOM_BYTES == 0


@pytest.mark.parametrize(
    "settings",
    [
        {"preallocate_room": "never"},
        {"flush_messages": 10_000},
        {"flush_ms": 60_000},
        {"flush_acks": True},
        {"preallocate_room": "auto"},
    ],
    ids=str,
)
def test_there_is_none_where_it_does_not_pay(tmp_path: Path, way: Way, settings: dict[str, object]) -> None:
    class Small(LocalFiles):
        def has_large_folios(self, directory: object) -> bool:
            assert directory == str(tmp_path)
            return False

    log = filled(opened(tmp_path, Small(), **settings), way, range(100))
    assert length(log) == log.active.size > preallocation.ROOM_FROM_BYTES


def test_auto_asks_the_disk_once_for_a_segment(tmp_path: Path) -> None:
    asked = []

    class Large(LocalFiles):
        def has_large_folios(self, directory: object) -> bool:
            asked.append(directory)
            return True

    log = filled(opened(tmp_path, Large(), preallocate_room="auto"), plainly, range(80))
    assert length(log) % ROOM_BYTES == 0
    assert len(asked) < 5, "for each room, and not for each append"


def test_large_batches_take_no_room_along(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for number in range(12):
        append_batch(log, numbered(number, bytes(ROOM_BYTES)))
        assert length(log) == log.active.size
    plainly(log, 12)
    assert length(log) % ROOM_BYTES == 0


def test_a_change_of_the_setting_counts_at_once(tmp_path: Path, way: Way) -> None:
    log = filled(opened(tmp_path, preallocate_room="never"), way, range(80))
    assert length(log) == log.active.size
    log.configure(config(**ALWAYS))
    filled(log, way, range(80, 82))
    assert length(log) % ROOM_BYTES == 0
    log.configure(config(**{**ALWAYS, "preallocate_room": "never"}))
    filled(log, way, range(82, 100))
    assert length(log) == log.active.size, "what was written over the room is all that is there"
    assert numbers_in(log) == list(range(100))


def test_after_a_truncation_there_is_room_again(tmp_path: Path, way: Way) -> None:
    log = filled(opened(tmp_path), way, range(160))
    truncation.truncate_to(log, 100, NOW_MS)
    assert length(log) == log.active.size
    filled(log, way, range(100, 104))
    assert length(log) % ROOM_BYTES == 0
    truncation.truncate_to(log, 10, NOW_MS)
    filled(log, way, range(10, 20))
    assert length(log) == log.active.size, "it is small again"
    assert numbers_in(log) == list(range(20))


@contextmanager
def files_limited_to(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_without_space_for_room_takes_the_batch(tmp_path: Path, way: Way) -> None:
    """The limit for files cuts writes short as a full disk does."""
    log = filled(opened(tmp_path), way, range(66))
    number, size = 66, log.active.size
    assert size < preallocation.ROOM_FROM_BYTES
    batch = len(numbered(0))
    limit = size + 10 * batch + 100
    with files_limited_to(limit):
        filled(log, way, range(66, 76))
        assert log.log_end_offset == 76
        assert length(log) == log.active.size, "zeros that end anywhere would look as lost records do"
        number = 76
        with pytest.raises(Exception, match=r"File too large"):
            way(log, number)
            late_writes.write()
            raise next(iter(late_writes.refused.values())).error
        assert log.log_end_offset == 76
    filled(log, way, range(76, 100))
    assert numbers_in(log) == list(range(100))
    assert length(log) % ROOM_BYTES == 0


def test_refused_late_writes_leave_no_room(tmp_path: Path) -> None:
    files = WatchedFiles(LocalFiles(), DirectoryWatch(LocalFiles(), [tmp_path]))
    log = filled(opened(tmp_path, files), plainly, range(100))
    with refusing(log):
        for number in range(100, 103):
            plainly(log, number, late_writes)
        assert late_writes.write()
    assert log.log_end_offset == 100
    assert length(log) == log.active.size
    filled(log, plainly, range(100, 110))
    assert numbers_in(log) == list(range(110))


def test_no_file_is_larger_than_apache_kafka_opens(tmp_path: Path) -> None:
    log = filled(opened(tmp_path, segment_bytes=INT32_MAX), plainly, range(1))
    records = log.active.records
    last = INT32_MAX + 1 - ROOM_BYTES
    assert [zeros_behind(records, end) for end in (last - 5, last, last + 5, INT32_MAX)] == [5, 0, 0, 0]


def test_room_is_measured_compiled_as_uncompiled() -> None:
    end, plain = FileEnd(), uncompiled(append_state)
    end.has_room = True
    for seed in range(2000):
        position = random.Random(seed).choice((ROOM_BYTES, 1 << 30, INT32_MAX)) * (seed % 3)
        position = max(0, min(INT32_MAX, position + seed % 7 - 3))
        assert zeros_behind(end, position) == plain.zeros_behind(end, position)


# After a power failure


@pytest.mark.parametrize("seed", range(20))
def test_a_flush_that_ends_behind_a_roll_does_not_vouch_for_the_cut(seed: int) -> None:
    disk, background = SimulatedDisk(), Background(waits=True)
    settings = config(segment_bytes=3000, preallocate=True)
    log = open_log(Path("/data/flights-0"), settings, disk, scheduling=background.scheduling)
    filled_to = 8
    for number in range(filled_to):
        append_batch(log, numbered(number, bytes(200)))
    log.flusher.flush_in_background(NOW_MS)
    ((flush, done),) = background.works
    background.works.clear()
    flush()
    log.roll(NOW_MS)
    done(None)
    found = open_log(
        Path("/data/flights-0"), settings, disk.after_crash(random.Random(seed)),
        recovery_point=log.flusher.recovery_point,
    )  # fmt: skip
    assert numbers_in(found) == list(range(filled_to))
    background.run_all()
    assert log.flusher.recovery_point == filled_to


def test_rolls_that_come_faster_than_flushes_do_not_hold_the_recovery_point(tmp_path: Path) -> None:
    background = Background(waits=True)
    log = open_log(
        tmp_path / "flights-0", config(segment_bytes=3000, preallocate=True), scheduling=background.scheduling
    )
    bases = []
    for number in range(50):
        append_batch(log, numbered(number, bytes(200)))
        if log.active.base_offset and log.active.base_offset not in bases:
            bases.append(log.active.base_offset)
            if len(bases) > 1:
                ((flush, done),) = background.works
                background.works.clear()
                flush()
                done(None)
                assert log.flusher.recovery_point == bases[-2], "all but the segment that was cut meanwhile"
    assert len(bases) > 2


def test_records_behind_room_that_a_roll_had_not_cut_on_the_disk_are_kept(tmp_path: Path) -> None:
    log = filled(opened(tmp_path), plainly, range(100))
    log.roll(NOW_MS)
    filled(log, plainly, range(100, 120))
    first = Path(log.segments[0].records.text)
    copied = Path(shutil.copytree(log.directory, tmp_path / "after" / "flights-0")) / first.name
    with copied.open("r+b") as file:
        file.truncate(-(-log.segments[0].size // ROOM_BYTES) * ROOM_BYTES)
    again = opened(tmp_path / "after")
    assert numbers_in(again) == list(range(120))
    assert copied.stat().st_size == log.segments[0].size


def test_zeros_in_place_of_records_end_the_log(tmp_path: Path) -> None:
    log = filled(opened(tmp_path), plainly, range(100))
    size = log.active.size
    log.roll(NOW_MS)
    filled(log, plainly, range(100, 120))
    first = Path(log.segments[0].records.text)
    copied = Path(shutil.copytree(log.directory, tmp_path / "after" / "flights-0")) / first.name
    lost = len(numbered(0))
    with copied.open("r+b") as file:
        file.truncate(size - lost)
        file.truncate(-(-size // ROOM_BYTES) * ROOM_BYTES)
    assert numbers_in(opened(tmp_path / "after")) == list(range(99))


@pytest.mark.parametrize("seed", range(6))
def test_no_flushed_record_is_lost_with_the_power(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(preallocation, "ROOM_FROM_BYTES", 500)
    for module in (preallocation, file_records):
        monkeypatch.setattr(module, "ROOM_BYTES", 512)
    chance, disk, flushed = random.Random(seed), SimulatedDisk(), 0
    log = opened(Path("/data"), disk, segment_bytes=5000)
    for number in range(400):
        append_batch(log, numbered(number, bytes(chance.randrange(300))))
        what = chance.random()
        if what < 0.1:
            log.flusher.flush(NOW_MS)
            flushed = log.log_end_offset
        elif what < 0.13:
            disk = disk.after_crash(chance)
            log = opened(Path("/data"), disk, segment_bytes=5000)
            assert log.log_end_offset >= flushed
            break
        elif what < 0.2:
            log.roll(NOW_MS)
    assert numbers_in(log) == list(range(log.log_end_offset))


# What is known of it


def test_the_tools_know_it(tmp_path: Path) -> None:
    log = filled(opened(tmp_path), plainly, range(100))
    path = Path(log.active.records.text)
    behind = path.stat().st_size - log.active.size
    assert behind > 0
    last = list(dump(path))[-1]
    assert (last["kind"], last["position"], last["bytes_behind"]) == ("room", log.active.size, behind)
    (checked,) = (each for each in verify(path) if isinstance(each, CheckedSegment))
    assert (checked.size_bytes, checked.damages) == (log.active.size, 0)
    with path.open("r+b") as file:
        file.write(bytes(1))
        file.truncate(path.stat().st_size - 1)
        file.seek(0, 2)
        file.write(bytes(3000))
    assert any(isinstance(each, Damage) for each in verify(path)), "zeros that end anywhere are no room"


class Busy(LocalFiles):
    """A disk on which a broker appends batches each time that somebody reads from a segment, up to 300."""

    def __init__(self, log: PartitionLog) -> None:
        self.log, self.number = log, log.log_end_offset
        self.end = self.number + 300

    def open_readonly(self, path: PathText) -> LogFile:
        busy, file = self, DiskFile(path, os.O_RDONLY)
        if not str(path).endswith(".log"):
            return file

        class BusyFile(DiskFile):
            def read(self, size: int, position: int) -> bytes:
                for number in range(busy.number, min(busy.number + 3, busy.end)):
                    plainly(busy.log, number)
                    busy.number += 1
                return super().read(size, position)

        return BusyFile(path, os.O_RDONLY)


@pytest.mark.parametrize("rule", ["never", "always"])
def test_who_reads_a_segment_that_is_written_to_finds_no_damage(tmp_path: Path, rule: str) -> None:
    log = filled(opened(tmp_path, preallocate_room=rule), plainly, range(100))
    assert not [each for each in verify(log.directory, files=Busy(log)) if isinstance(each, Damage)]
    rows = list(dump(Path(log.active.records.text), files=Busy(log)))
    assert {row["kind"] for row in rows} <= {"batch", "room"}
    before = log.log_end_offset
    (found,) = find_partitions(LocalFiles(), tmp_path)
    stored = open_stored(Busy(log), found)
    count = sum(rows.count for rows in stored.columns())
    assert not stored.damages
    assert before <= count <= before + 6, "what is behind is newer than what is known of transactions"


@pytest.mark.parametrize("size", [0, 1, 70_000, 1 << 20, (1 << 20) + 5, 3 << 20])
def test_the_zeros_at_the_end_of_a_file_are_found(tmp_path: Path, size: int) -> None:
    (tmp_path / "x").write_bytes(bytes(50) + b"x" * (size > 50) + bytes(max(0, size - 51)))
    assert filled_to(DiskFile(tmp_path / "x", os.O_RDONLY), size) == (51 if size > 50 else 0)


MOUNTS = [
    "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard",
    "23 22 254:16 / /journal rw,relatime - ext4 /dev/vdb rw,data=journal",
    "24 22 0:45 / /dev/shm rw - tmpfs tmpfs rw",
    "25 22 253:1 / /data rw master:2 - xfs /dev/mapper/data rw,attr2",
    "odd",
]


@pytest.mark.parametrize(
    ("device", "release", "expected"),
    [
        ("254:0", "6.16.0", True),
        ("254:0", "6.18.44-fc", True),
        ("254:0", "7.0-rc1", True),
        ("254:0", "6.15.9", False),
        ("254:0", "5.19.0-generic", False),
        ("254:0", "odd", False),
        ("254:16", "6.18.0", False),
        ("0:45", "6.18.0", False),
        ("253:1", "6.18.0", False),
        ("9:9", "6.18.0", False),
    ],
)
def test_file_systems_with_large_folios(device: str, release: str, expected: bool) -> None:
    assert keeps_large_folios(MOUNTS, device, release) is expected


def test_the_disk_of_this_machine_is_asked(tmp_path: Path) -> None:
    files = LocalFiles()
    assert files.has_large_folios(tmp_path) in {True, False}
    assert files.has_large_folios(tmp_path / "missing") is False


def test_the_default_is_auto() -> None:
    assert preallocation.rule_of(TopicConfig()) == preallocation.AUTO
