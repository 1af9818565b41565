"""Thousands of segments of one log go in slices: other requests are answered between two, and anything may happen."""

import shutil
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from headrace.log import manager as log_manager
from headrace.log import truncation, upkeep
from headrace.log.manager import LogManager
from headrace.log.partition_log import PartitionLog
from headrace.types import TopicPartition
from tests.log.support import NOW_MS, append, config, fetch, read_all

PARTITION = TopicPartition("t", 0)
SEGMENTS_PER_SLICE = 4
SEGMENTS = 3 * SEGMENTS_PER_SLICE + 2
LATER_MS = NOW_MS + 10_000


@pytest.fixture(autouse=True)
def short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (log_manager, upkeep):
        monkeypatch.setattr(module, "SEGMENTS_PER_SLICE", SEGMENTS_PER_SLICE)


def started(directory: Path, **settings: object) -> LogManager:
    made = config(**{"retention_ms": 5000, "file_delete_delay_ms": 60_000, **settings})
    manager = LogManager([directory], broker_id=1, topic_config=lambda _topic: made)
    manager.directories.claim("cluster")
    manager.load(NOW_MS)
    return manager


def filled(manager: LogManager, partition: TopicPartition = PARTITION) -> PartitionLog:
    """A log of many segments with a record each, all committed."""
    log = manager.create(partition, None, NOW_MS)
    for number in range(SEGMENTS):
        append(log, b"%d" % number)
        log.roll(NOW_MS)
    append(log, b"newest", timestamps_ms=[LATER_MS])
    log.restore_high_watermark(log.log_end_offset)
    return log


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[LogManager]:
    made = started(tmp_path / "data")
    yield made
    made.release()


def bases_on_disk(log: PartitionLog) -> list[int]:
    return sorted(int(path.stem) for path in log.directory.glob("*.log"))


def delete_records(manager: LogManager, log: PartitionLog) -> Iterator[None]:
    assert upkeep.delete_records_before(log, SEGMENTS, LATER_MS) == SEGMENTS
    yield
    yield from manager.work(LATER_MS)


def retain(manager: LogManager, log: PartitionLog) -> Iterator[None]:
    return manager.delete_old_segments(LATER_MS)


WAYS = pytest.mark.parametrize("way", [delete_records, retain])
Way = Callable[[LogManager, PartitionLog], Iterator[None]]


@WAYS
def test_each_slice_leaves_a_whole_log_on_the_disk_and_in_memory(manager: LogManager, tmp_path: Path, way: Way) -> None:
    log, before, slices = filled(manager), SEGMENTS + 1, 0
    held = log.read(0, 1000, end_offset=1, at_least_one=True)
    for _ in way(manager, log):
        assert 0 < before - len(log.segments) <= SEGMENTS_PER_SLICE
        before, slices = len(log.segments), slices + 1
        assert bases_on_disk(log) == [segment.base_offset for segment in log.segments]
        first = log.segments[0].base_offset
        assert log.log_start_offset == (SEGMENTS if way is delete_records else first)
        shutil.copytree(tmp_path / "data", tmp_path / f"killed {slices}", ignore=shutil.ignore_patterns(".lock"))
        again = started(tmp_path / f"killed {slices}")
        left = again.logs[PARTITION]
        assert [record.offset for record in read_all(left)] == list(range(left.log_start_offset, SEGMENTS + 1))
        assert left.log_start_offset >= first
        again.release()
        append(log, b"more", timestamps_ms=[LATER_MS])
        log.restore_high_watermark(SEGMENTS + 1)
        truncation.truncate_to(log, SEGMENTS + 1, LATER_MS)
    assert slices == SEGMENTS // SEGMENTS_PER_SLICE
    assert [segment.base_offset for segment in log.segments] == [SEGMENTS]
    assert fetch(log, SEGMENTS)
    assert b"0" in log.read_bytes(held), "a reader goes on with what it has"


@WAYS
def test_a_stop_between_two_slices_loses_and_brings_back_nothing(manager: LogManager, tmp_path: Path, way: Way) -> None:
    log = filled(manager)
    next(way(manager, log))
    start = log.log_start_offset
    manager.close(LATER_MS)
    again = started(tmp_path / "data")
    assert again.was_clean
    log = again.logs[PARTITION]
    assert log.log_start_offset == start
    log.restore_high_watermark(log.log_end_offset)
    list(again.delete_old_segments(LATER_MS))
    assert bases_on_disk(log) == [SEGMENTS]
    again.release()


@WAYS
@pytest.mark.parametrize("end", ["deleted", "failed", "truncating"])
def test_a_log_that_ends_between_two_slices_loses_no_further_segment(manager: LogManager, way: Way, end: str) -> None:
    log = filled(manager)
    deletion = way(manager, log)
    next(deletion)
    if way is delete_records:
        next(deletion)
    before = len(log.segments)
    if end == "deleted":
        manager.delete(PARTITION, LATER_MS)
    elif end == "failed":
        log.fail("a test")
    else:
        log.begin_truncation()
    list(deletion)
    assert len(log.segments) == before


def test_a_truncation_to_another_place_between_two_slices_is_kept(manager: LogManager) -> None:
    log = filled(manager)
    deletion = delete_records(manager, log)
    next(deletion)
    truncation.truncate_fully(log, 7, LATER_MS)
    list(deletion)
    assert (log.log_start_offset, log.log_end_offset, bases_on_disk(log)) == (7, 7, [7])


def test_the_slices_of_many_logs_with_few_segments_each_are_counted_together(manager: LogManager) -> None:
    logs = [manager.create(TopicPartition("t", number), None, NOW_MS) for number in range(SEGMENTS_PER_SLICE)]
    for log in logs:
        for _ in range(4):
            append(log, b"old")
            log.roll(NOW_MS)
        append(log, b"new", timestamps_ms=[LATER_MS])
        log.restore_high_watermark(log.log_end_offset)
    counts = [sum(len(log.segments) for log in logs)]
    counts += [sum(len(log.segments) for log in logs) for _ in manager.delete_old_segments(LATER_MS)]
    assert [before - after for before, after in pairwise(counts)] == [SEGMENTS_PER_SLICE] * 4
    assert counts[-1] == len(logs)


def test_all_records_of_many_segments_can_be_deleted(manager: LogManager) -> None:
    log = filled(manager)
    upkeep.delete_records_before(log, log.log_end_offset, LATER_MS)
    manager.tick(LATER_MS)
    assert bases_on_disk(log) == [log.log_end_offset]
    assert log.log_start_offset == log.log_end_offset == SEGMENTS + 1
    append(log, b"next")


def test_the_slices_go_on_when_renamed_files_are_removed_at_once(tmp_path: Path) -> None:
    manager = started(tmp_path / "data", file_delete_delay_ms=0)
    log = filled(manager)
    upkeep.delete_records_before(log, SEGMENTS, LATER_MS)
    assert len(log.segments) > 2
    manager.tick(LATER_MS)
    assert bases_on_disk(log) == [SEGMENTS]
    manager.tick(LATER_MS)
    assert not list(log.directory.glob("*.deleted"))
    manager.release()


def test_what_a_refused_slice_left_is_deleted_by_retention(
    manager: LogManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = filled(manager)
    refused = SEGMENTS_PER_SLICE + 3
    rename = log.files.rename

    def refusing(old: object, new: object) -> None:
        if f"{refused:020d}.log" in str(old):
            raise OSError(28, "No space left on device")
        rename(old, new)  # type: ignore[arg-type]

    monkeypatch.setattr(log.files, "rename", refusing)
    list(delete_records(manager, log))
    assert bases_on_disk(log)[0] == log.segments[0].base_offset == refused
    monkeypatch.undo()
    list(retain(manager, log))
    assert bases_on_disk(log) == [SEGMENTS]
