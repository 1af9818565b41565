"""What goes from a log, when, and who notices: the segment list, the files on their way out, the cleaner's work."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.limits import INT32_MAX
from headrace.log import truncation, upkeep
from headrace.log.cleaning.cleaner import Cleaner
from headrace.log.cleaning.cleaner_run import CleanerSettings
from headrace.log.cleaning.compaction import CleanedGroup, CleaningJob, CleaningPlan, Compaction, Throttle
from headrace.log.files import LocalFiles
from headrace.log.flusher import inline
from headrace.log.partition_log import PartitionLog
from headrace.records.format2.control import ABORT
from tests.log.cleaning import Left, clean, compacted, left, put, put_each
from tests.log.support import NOW_MS, append, append_marker, config, open_log, purge


def segment_files(directory: Path, base_offset: int) -> set[str]:
    return {path.name.partition(".")[2] for path in directory.glob(f"{base_offset:020}.*")}


def test_a_reader_s_list_of_segments_stays_as_it_is_when_segments_come_and_go(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(file_delete_delay_ms=0))
    for number in range(4):
        append(log, b"value %d" % number)
        log.roll(NOW_MS)
    log.restore_high_watermark(4)
    held, before = log.segments, tuple(log.segments)
    upkeep.delete_records_before(log, 2, NOW_MS)
    purge(log, NOW_MS)
    append(log, b"more")
    log.roll(NOW_MS)
    truncation.truncate_to(log, 3, NOW_MS)
    assert tuple(held) == before
    assert log.segments is not held


def test_a_segment_s_files_are_renamed_at_once_and_removed_after_the_delay(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(file_delete_delay_ms=1000))
    append(log, b"tx", producer_id=5, sequence=0, is_transactional=True)
    append_marker(log, ABORT, 5)
    log.roll(NOW_MS)
    append(log, b"kept")
    log.roll(NOW_MS)
    log.restore_high_watermark(3)
    assert segment_files(tmp_path, 0) == {"log", "index", "timeindex", "txnindex"}
    upkeep.delete_records_before(log, 2, NOW_MS)
    assert segment_files(tmp_path, 0) == {f"{kind}.deleted" for kind in ("log", "index", "timeindex", "txnindex")}
    upkeep.delete_records_before(log, 3, NOW_MS + 500)
    assert "snapshot.deleted" in segment_files(tmp_path, 2), "the producers where it began go with a segment"
    purge(log, NOW_MS + 999)
    assert len(segment_files(tmp_path, 0)) == 4
    purge(log, NOW_MS + 1000)
    assert segment_files(tmp_path, 0) == set()
    assert segment_files(tmp_path, 2) != set(), "it went later"
    purge(log, NOW_MS + 1500)
    assert segment_files(tmp_path, 2) == set()


def test_an_old_segment_of_a_log_that_is_compacted_and_deleted_goes_and_the_rest_is_cleaned_on(tmp_path: Path) -> None:
    log = open_log(tmp_path, compacted(cleanup_policy=("compact", "delete"), retention_ms=10_000, segment_bytes=250))
    put_each(log, [("a", "1"), ("old", "1"), ("a", "2")], now_ms=NOW_MS - 20_000)
    log.roll(NOW_MS)
    put_each(log, [("b", "1"), ("b", "2"), ("c", "1")])
    clean(log)
    assert [record.key for record in left(log)] == ["old", "a", "b", "c"]
    cleaned_to = log.cleaned_to
    assert upkeep.delete_old_segments(log, NOW_MS) >= 1
    assert [record.key for record in left(log)] == ["b", "c"]
    assert log.cleaned_to == cleaned_to
    put(log, ("b", "3"))
    clean(log)
    assert [(record.key, record.value) for record in left(log)] == [("c", "1"), ("b", "3")]


def test_a_compacted_log_gives_up_deleted_records_and_is_cleaned_from_its_new_start(tmp_path: Path) -> None:
    log = open_log(tmp_path, compacted(segment_bytes=250))
    put_each(log, [(key, "1") for key in "abcdef"])
    log.roll(NOW_MS)
    upkeep.delete_records_before(log, 3, NOW_MS)
    put(log, ("e", "2"))
    clean(log)
    assert [record.key for record in left(log) if record.offset >= 3] == ["d", "f", "e"]
    again = open_log(tmp_path, compacted(segment_bytes=250), log_start_offset=3)
    assert again.log_start_offset == 3


def test_producers_of_a_wrapped_sequence_are_known_after_a_roll_and_a_restart(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    values = [b"v"] * 4
    append(log, *values, producer_id=5, sequence=INT32_MAX - 1)  # ends with 1
    log.roll(NOW_MS)
    assert segment_files(tmp_path, 4) >= {"snapshot"}
    for was_clean in (False, True):
        log = open_log(tmp_path, was_clean=was_clean)
        assert append(log, *values, producer_id=5, sequence=INT32_MAX - 1).is_duplicate
    assert append(log, b"next", producer_id=5, sequence=2).base_offset == 4


def test_of_five_batches_that_a_snapshot_does_not_hold_the_log_s_tail_brings_them_back(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for sequence in range(8):
        append(log, b"v", producer_id=5, sequence=sequence)
    again = open_log(tmp_path)
    for sequence in range(3, 8):
        assert append(again, b"v", producer_id=5, sequence=sequence).base_offset == sequence
    assert again.log_end_offset == 8


# The cleaner's work


class Noted(Compaction):
    """Notes which thread it worked on."""

    def __init__(self) -> None:
        super().__init__(LocalFiles())
        self.threads: set[int] = set()

    def plan(self, job: CleaningJob) -> CleaningPlan:
        self.threads.add(threading.get_ident())
        return super().plan(job)

    def clean(self, group: list[int]) -> CleanedGroup:
        self.threads.add(threading.get_ident())
        return super().clean(group)


def superseded(directory: Path) -> PartitionLog:
    log = open_log(directory, compacted())
    put_each(log, [("a", str(number)) for number in range(10)])
    log.roll(NOW_MS)
    log.restore_high_watermark(10)
    return log


def test_nothing_of_a_cleaning_but_the_swap_is_done_by_the_log_s_owner(tmp_path: Path) -> None:
    log, worker = superseded(tmp_path), Noted()
    waiting: list[tuple[Callable[[], None], Callable[[Exception | None], None]]] = []
    checkpoints: list[int] = []
    cleaner = Cleaner(
        log.files,
        {log.partition: log},
        CleanerSettings(),
        background=lambda work, done: waiting.append((work, done)),
        write_checkpoint=lambda _: lambda: checkpoints.append(threading.get_ident()),
        make_worker=lambda: worker,
    )
    cleaner.tick(NOW_MS)
    steps = 0
    while waiting:
        steps += 1
        work, done = waiting.pop()
        elsewhere = threading.Thread(target=work)
        elsewhere.start()
        elsewhere.join()
        done(None)
    assert steps >= 4, "plan, one group, sync, checkpoint"
    assert threading.get_ident() not in worker.threads | set(checkpoints)
    assert left(log) == [Left(9, "a", "9")]


def test_what_is_read_and_written_counts_against_the_limit(tmp_path: Path) -> None:
    log = open_log(tmp_path, compacted())
    put_each(log, [(f"key {number % 50}", "v" * 100) for number in range(100)])
    log.roll(NOW_MS)
    log.restore_high_watermark(100)
    rates: list[float] = []
    spent: list[int] = []

    class Counting(Throttle):
        def spend(self, size: int) -> None:
            spent.append(size)

    def throttle(rate: float) -> Throttle:
        rates.append(rate)
        return Counting(rate)

    cleaner = Cleaner(
        log.files,
        {log.partition: log},
        CleanerSettings(io_bytes_per_second=3000.0, threads=3),
        background=inline,
        write_checkpoint=lambda _: lambda: None,
        make_worker=lambda: Compaction(LocalFiles(), throttle),
    )
    before = log.segments[0].size
    cleaner.tick(NOW_MS)
    assert rates == [1000.0], "each of three threads has a third"
    assert sum(spent) == 2 * before + log.segments[0].size, "read for the keys, read to be cleaned, written"


def test_a_batch_larger_than_the_read_buffer_is_cleaned_and_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(tmp_path, compacted(max_message_bytes=1000))
    put_each(log, [("a", "v"), ("a", "w" * 300_000), ("b", "v")])
    with caplog.at_level("INFO"):
        clean(log, read_bytes=100_000)
    assert [record.offset for record in left(log)] == [1, 2]
    told = [record.getMessage() for record in caplog.records if "read buffer grew" in record.getMessage()]
    assert len(told) == 1 and "max.message.bytes is 1000" in told[0]
