"""Flushes, full disks, retention and the removal of segments."""

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import OffsetOutOfRange, StorageError
from headrace.log import truncation, upkeep
from headrace.log.files import Bytes, DiskFile, LocalFiles, LogFile, PathText
from headrace.log.flusher import HELD_FILES_MAX, FlushScheduling, FlushWork, HeldFiles
from headrace.records.format2.control import ABORT
from tests.examples import examples
from tests.log.support import (
    NOW_MS,
    Background,
    SimulatedDisk,
    append,
    append_marker,
    config,
    delete,
    fetch,
    open_log,
    purge,
    read_all,
)


class FailingFile(DiskFile):
    """A file of a disk that fails when told to."""

    error: int | None = None
    fails_at = ""
    suffix = ""

    def __init__(self, path: Path, flags: int) -> None:
        super().__init__(path, flags)
        self.path = path

    def fails(self, where: str) -> bool:
        return FailingFile.fails_at == where and self.path.name.endswith(FailingFile.suffix)

    def write(self, data: Bytes, position: int) -> None:
        if self.fails("write"):
            super().write(memoryview(data)[: len(data) // 2], position)
            raise OSError(FailingFile.error, "no luck")
        super().write(data, position)

    def sync(self) -> None:
        if self.fails("sync"):
            raise OSError(FailingFile.error, "no luck")
        super().sync()


class FailingFiles(LocalFiles):
    """A disk that fails when told to."""

    def open(self, path: PathText, *, create: bool = False) -> LogFile:
        return FailingFile(Path(path), os.O_RDWR | os.O_CREAT if create else os.O_RDWR)

    def fail(self, where: str, error: int = errno.EIO, suffix: str = "") -> None:
        FailingFile.fails_at, FailingFile.error, FailingFile.suffix = where, error, suffix


@pytest.fixture
def failing() -> FailingFiles:
    files = FailingFiles()
    files.fail("")
    return files


# Flushes


def test_the_recovery_point_advances_to_where_the_log_ended_when_the_flush_began(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, b"a", b"b")
    work = log.flusher.begin()
    append(log, b"c")
    work.run()
    log.flusher.finish(work, NOW_MS)
    assert (log.flusher.recovery_point, log.flusher.unflushed_records) == (2, 1)


def test_a_flush_from_before_a_truncation_says_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for _ in range(4):
        append(log, b"a")
    work = log.flusher.begin()
    truncation.truncate_to(log, 1, NOW_MS)
    append(log, b"other")
    log.flusher.finish(work, NOW_MS)
    assert log.flusher.recovery_point <= 1


def test_a_flush_is_due_after_so_many_records_or_so_much_time(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(flush_messages=3, flush_ms=1000))
    assert not log.flusher.is_due(NOW_MS + 10**6), "there is nothing to flush"
    append(log, b"a", b"b")
    assert not log.flusher.is_due(NOW_MS + 999)
    assert log.flusher.is_due(NOW_MS + 1000)
    append(log, b"c")
    assert log.flusher.is_due(NOW_MS)
    log.flusher.flush(NOW_MS + 5)
    assert not log.flusher.is_due(NOW_MS + 1004)


def test_a_roll_hands_the_flush_of_the_closed_segment_to_the_background(tmp_path: Path) -> None:
    background = Background(waits=True)
    log = open_log(tmp_path, scheduling=background.scheduling)
    waiting = background.works
    append(log, b"a")
    log.roll(NOW_MS)
    append(log, b"b")
    assert log.flusher.recovery_point == 0
    [(work, done)] = waiting
    work()
    done(None)
    assert log.flusher.recovery_point == 1


def test_a_failed_flush_stops_appends_and_leaves_reads(tmp_path: Path, failing: FailingFiles) -> None:
    log = open_log(tmp_path, files=failing)
    append(log, b"a")
    failing.fail("sync")
    with pytest.raises(StorageError):
        log.flusher.flush(NOW_MS)
    failing.fail("")
    with pytest.raises(StorageError):
        append(log, b"b")
    assert len(read_all(log)) == 1
    assert log.flusher.recovery_point == 0
    with pytest.raises(StorageError):  # the next start has to look at what is there
        log.close(NOW_MS)


def test_a_full_disk_refuses_an_append_and_heals(tmp_path: Path, failing: FailingFiles) -> None:
    log = open_log(tmp_path, files=failing)
    append(log, b"a", producer_id=7, sequence=0)
    failing.fail("write", errno.ENOSPC)
    with pytest.raises(StorageError):
        append(log, b"long " * 20, producer_id=7, sequence=1)
    assert log.log_end_offset == 1
    failing.fail("")
    assert append(log, b"b", producer_id=7, sequence=1).base_offset == 1
    assert [record.value for record in read_all(log)] == [b"a", b"b"]
    assert [record.value for record in read_all(open_log(tmp_path))] == [b"a", b"b"]


def test_an_index_that_cannot_be_written_does_not_fail_the_append(tmp_path: Path, failing: FailingFiles) -> None:
    log = open_log(tmp_path, config(index_interval_bytes=0), files=failing)
    failing.fail("write", errno.ENOSPC, suffix="index")
    for number in range(600):
        assert append(log, b"v", timestamps_ms=[NOW_MS + number]).base_offset == number
    failing.fail("")
    for number in range(600, 610):
        append(log, b"v", timestamps_ms=[NOW_MS + number])
    assert (tmp_path / "00000000000000000000.index").stat().st_size > 4096
    assert [record.offset for record in read_all(open_log(tmp_path))] == list(range(610))


def test_a_roll_that_fails_is_tried_again_by_the_next_append(tmp_path: Path, failing: FailingFiles) -> None:
    log = open_log(tmp_path, config(segment_bytes=100), files=failing)
    append(log, b"a")
    failing.fail("write", errno.ENOSPC)
    for _ in range(3):
        with pytest.raises(StorageError):
            append(log, b"b")
    failing.fail("")
    assert append(log, b"b").base_offset == 1
    assert [segment.base_offset for segment in log.segments] == [0, 1]
    assert [record.value for record in read_all(open_log(tmp_path))] == [b"a", b"b"]


def test_no_second_flush_is_due_while_one_is_under_way(tmp_path: Path) -> None:
    background = Background(waits=True)
    log = open_log(tmp_path, config(flush_ms=1), scheduling=background.scheduling)
    waiting = background.works
    append(log, b"a")
    log.flusher.flush_in_background(NOW_MS)
    append(log, b"b")
    assert not log.flusher.is_due(NOW_MS + 1)
    waiting[0][0]()
    waiting[0][1](None)
    assert log.flusher.is_due(NOW_MS + 1)


def test_what_fills_the_count_during_a_flush_is_flushed_after_it(tmp_path: Path) -> None:
    background = Background(waits=True)
    log = open_log(tmp_path, config(flush_messages=1), scheduling=background.scheduling)
    waiting = background.works
    for value in (b"a", b"b", b"c"):
        append(log, value)
        log.flusher.flush_by_count(NOW_MS)
    for flushed_to in (1, 3):
        ((work, done),) = waiting
        waiting.clear()
        work()
        done(None)
        assert log.flusher.recovery_point == flushed_to
    assert not waiting


def test_rolls_in_quick_succession_sync_each_segment_once(tmp_path: Path) -> None:
    class CountingFile(DiskFile):
        def sync(self) -> None:
            synced.append(os.readlink(f"/proc/self/fd/{self.fd}"))
            super().sync()

    class CountingFiles(LocalFiles):
        def open(self, path: PathText, *, create: bool = False) -> LogFile:
            return CountingFile(path, os.O_RDWR | os.O_CREAT)

        def open_readonly(self, path: PathText) -> LogFile:
            return CountingFile(path, os.O_RDONLY)

    synced: list[str] = []
    background = Background(waits=True)
    log = open_log(tmp_path, files=CountingFiles(), scheduling=background.scheduling)
    waiting = background.works
    for value in (b"a", b"b", b"c", b"d"):
        append(log, value)
        log.roll(NOW_MS)
    while waiting:
        work, done = waiting.pop()
        work()
        done(None)
    assert log.flusher.recovery_point == 4
    assert len(synced) == len(set(synced)), "no file is synced twice"
    for suffix in (".log", ".index", ".timeindex"):
        of_segments = sorted(path for path in synced if path.endswith(suffix))
        assert of_segments == [str(segment.path(suffix)) for segment in log.segments[:4]]


def test_after_a_failed_flush_a_later_one_moves_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, b"a")
    first, second = log.flusher.begin(), log.flusher.begin()
    log.flusher.finish(first, NOW_MS, OSError("no luck"))
    log.flusher.finish(second, NOW_MS)
    assert log.flusher.recovery_point == 0


def test_a_flush_does_not_mind_what_was_deleted_under_it(tmp_path: Path) -> None:
    background = Background(waits=True)
    log = open_log(tmp_path / "flights-0", scheduling=background.scheduling)
    append(log, b"a")
    log.roll(NOW_MS)
    append(log, b"b")
    work = log.flusher.begin()
    delete(log)
    work.run()
    log.flusher.finish(work, NOW_MS)
    assert log.flusher.recovery_point == 0, "a deleted log is not flushed any more"


def test_flush_work_syncs_closed_segments_with_their_indexes(tmp_path: Path) -> None:
    background = Background(waits=True)
    log = open_log(tmp_path, scheduling=background.scheduling)
    works: list[FlushWork] = []
    append(log, b"a")
    log.roll(NOW_MS)
    append(log, b"b")
    works.append(log.flusher.begin())
    assert len(works[0].logs) == 2
    assert {Path(path).suffix for path in works[0].paths} >= {".index", ".timeindex"}


def files_open(directory: Path) -> int:
    """Descriptors of files in a directory; garbage of other tests may close descriptors meanwhile."""
    found = 0
    for each in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # of the list itself
            found += os.readlink(f"/proc/self/fd/{each}").startswith(f"{directory}/")
    return found


def test_rolls_of_many_logs_keep_a_bounded_number_of_files_open(tmp_path: Path) -> None:
    background, held = Background(waits=True), HeldFiles()
    scheduling = FlushScheduling(background, held=held)
    logs = [open_log(tmp_path / f"{number}", scheduling=scheduling) for number in range(HELD_FILES_MAX // 3 + 20)]
    for log in logs:
        append(log, b"v")
    before = files_open(tmp_path)
    for log in logs:
        log.roll(NOW_MS)
    assert files_open(tmp_path) - before <= len(logs) + HELD_FILES_MAX
    assert HELD_FILES_MAX - 3 < held.count <= HELD_FILES_MAX
    background.run_all()
    assert held.count == 0
    assert all(log.flusher.recovery_point == 1 for log in logs)
    assert files_open(tmp_path) - before == len(logs)


def test_a_roll_during_a_flush_keeps_no_file_open_for_the_next_one(tmp_path: Path) -> None:
    background = Background(waits=True)
    log = open_log(tmp_path, scheduling=FlushScheduling(background, held=HeldFiles()))
    append(log, b"v")
    log.flusher.flush_in_background(NOW_MS)
    before = files_open(tmp_path)
    log.roll(NOW_MS)
    assert files_open(tmp_path) == before + 1
    work = log.flusher.begin()
    assert {Path(path).suffix for path in work.paths} == {".index", ".timeindex", ".snapshot"}
    assert not work.opened


def test_the_first_aborted_transaction_of_a_new_segment_is_flushed(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, b"v")
    log.roll(NOW_MS)
    index = log.active.text(".txnindex")
    assert index not in log.flusher.begin().paths
    append(log, b"v")
    append(log, b"v", producer_id=7, sequence=0, is_transactional=True)
    append_marker(log, ABORT, 7)
    assert index in log.flusher.begin().paths
    truncation.truncate_to(log, 2, NOW_MS)
    assert index in log.flusher.begin().paths, "what was cut off it must not come back"


# Retention


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(-1, 9)), max_size=6),
    st.integers(0, 12),
    st.integers(0, 12),
    st.integers(-1, 400),
    st.integers(-1, 9),
    st.booleans(),
)
@settings(max_examples=examples(150))
def test_retention_deletes_what_its_rules_say_one_after_the_other(
    rolls: list[tuple[int, int]], start: int, high_watermark: int, bytes_max: int, age_ms: int, is_deleted: bool
) -> None:
    """`rolls`: the number of records of each segment, and the time of the last of them."""
    rules = {"retention_bytes": bytes_max, "retention_ms": age_ms, "kafka07_enable": False}
    disk = SimulatedDisk()
    log = open_log(
        Path("/data/flights-0"), config(cleanup_policy=("delete" if is_deleted else "compact",), **rules), disk
    )
    for count, time_ms in rolls:
        for _ in range(count):
            append(log, b"v", timestamps_ms=[NOW_MS - 10 + time_ms])
        log.roll(NOW_MS)
    if rolls and rolls[-1][0] == 1:
        append(log, b"v", timestamps_ms=[NOW_MS])
    log.restore_high_watermark(high_watermark)
    log.start_at(min(start, log.high_watermark))
    kept = list(range(len(log.segments)))

    def delete_while(lets_go: Callable[[int], bool]) -> None:
        while kept and end_of(kept[0]) <= log.high_watermark and not is_empty(kept[0]) and lets_go(kept[0]):
            kept.pop(0)

    segments = log.segments
    sizes = [segment.size for segment in segments]

    def end_of(number: int) -> int:
        return segments.end_of(number, log.log_end_offset)

    def is_empty(number: int) -> bool:
        return number == len(segments) - 1 and not sizes[number]

    delete_while(lambda number: end_of(number) <= log.log_start_offset)
    if is_deleted and bytes_max >= 0:
        delete_while(lambda _: sum(sizes[kept[0] + 1 :]) >= bytes_max)
    if is_deleted and age_ms >= 0:
        delete_while(lambda number: NOW_MS - segments[number].largest.timestamp_ms > age_ms)
    expected = [segments[number].base_offset for number in kept] or [log.log_end_offset]
    assert upkeep.delete_old_segments(log, NOW_MS) == len(segments) - len(kept)
    assert [segment.base_offset for segment in log.segments] == expected


def test_retention_writes_no_leader_epochs_and_a_start_finds_them(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(retention_ms=-1, retention_bytes=0))
    for epoch in range(3):
        append(log, b"v", epoch=epoch)
        append(log, b"v", epoch=epoch)
        log.roll(NOW_MS)
    written = (tmp_path / "leader-epoch-checkpoint").read_bytes()
    log.restore_high_watermark(4)
    assert upkeep.delete_old_segments(log, NOW_MS) == 2
    assert log.leader_epochs.entries == [(2, 4)]
    assert (tmp_path / "leader-epoch-checkpoint").read_bytes() == written
    assert open_log(tmp_path).leader_epochs.entries == [(2, 4)]
    append(log, b"v", epoch=3)
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n2\n2 4\n3 6\n"


def test_segments_go_when_their_newest_record_is_too_old(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(retention_ms=1000))
    for age_ms in (5000, 3000, 500):
        append(log, b"v", timestamps_ms=[NOW_MS - age_ms])
        log.roll(NOW_MS)
    log.restore_high_watermark(3)
    assert upkeep.delete_old_segments(log, NOW_MS) == 2
    assert (log.log_start_offset, log.log_end_offset) == (2, 3)
    with pytest.raises(OffsetOutOfRange):
        fetch(log, 1)


def test_the_active_segment_is_rolled_when_it_is_too_old(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(retention_ms=1000))
    append(log, b"v", timestamps_ms=[NOW_MS - 5000])
    log.restore_high_watermark(1)
    assert upkeep.delete_old_segments(log, NOW_MS) == 1
    assert (log.log_start_offset, log.log_end_offset) == (1, 1)
    assert append(log, b"w").base_offset == 1


def test_segments_go_while_the_log_is_large_enough_without_them(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(retention_ms=-1, retention_bytes=250))
    for _ in range(5):
        append(log, b"v" * 30)
        log.roll(NOW_MS)
    log.restore_high_watermark(5)
    size = log.segments[0].size
    assert upkeep.delete_old_segments(log, NOW_MS) == 5 - -(-250 // size)
    assert 250 <= log.size_bytes < 250 + size


def test_nothing_at_or_above_the_high_watermark_goes(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(retention_ms=0, retention_bytes=0))
    for _ in range(3):
        append(log, b"v", timestamps_ms=[1])
        log.roll(NOW_MS)
    log.restore_high_watermark(2)
    upkeep.delete_old_segments(log, NOW_MS)
    assert log.log_start_offset == 2


def test_a_compacted_topic_keeps_old_segments(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(cleanup_policy=("compact",), retention_ms=0, retention_bytes=0))
    append(log, b"v", timestamps_ms=[1])
    log.roll(NOW_MS)
    log.restore_high_watermark(1)
    assert upkeep.delete_old_segments(log, NOW_MS) == 0


def test_deleted_records_are_out_of_range_and_their_segments_go(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(file_delete_delay_ms=1000))
    for number in range(6):
        append(log, b"a", b"b", epoch=number)
        if number % 2:
            log.roll(NOW_MS)
    log.restore_high_watermark(10)
    with pytest.raises(OffsetOutOfRange):
        upkeep.delete_records_before(log, 11, NOW_MS)
    assert upkeep.delete_records_before(log, 5, NOW_MS) == 5
    assert upkeep.delete_records_before(log, 3, NOW_MS) == 5, "the start does not go back"
    assert [segment.base_offset for segment in log.segments] == [4, 8, 12]
    assert log.leader_epochs.entries[0] == (2, 5)
    assert [record.offset for record in read_all(log)] == list(range(5, 12))
    purge(log, NOW_MS + 999)
    assert len([*tmp_path.glob("*.deleted")]) >= 3
    purge(log, NOW_MS + 1000)
    assert not [*tmp_path.glob("*.deleted")]
    assert not (tmp_path / "00000000000000000000.log").exists()
