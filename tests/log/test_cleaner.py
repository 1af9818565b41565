"""When a log is cleaned and when not, what happens when it cannot be, and what is remembered of it."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import CorruptMessage
from headrace.log import truncation, upkeep
from headrace.log.cleaning.cleaner import DEATHS_MAX, Cleaner
from headrace.log.cleaning.cleaner_choice import cleanable
from headrace.log.cleaning.cleaner_process import ProcessDied, ProcessWorker, answer
from headrace.log.cleaning.cleaner_run import CleanerSettings
from headrace.log.cleaning.compaction import (
    CleanedGroup,
    CleaningJob,
    CleaningPlan,
    CleaningStopped,
    Compaction,
    Throttle,
)
from headrace.log.files import LocalFiles
from headrace.log.manager import LogManager
from headrace.log.partition_log import PartitionLog
from headrace.types import TopicPartition
from tests.eventually import WITHIN_SECONDS, eventually
from tests.log.cleaning import Left, clean, cleaner_of, compacted, left, open_compacted, put, put_each
from tests.log.support import NOW_MS, PARTITION, Background, config, delete, open_log, purge

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    return open_compacted(tmp_path / "flights-0", LocalFiles())


def fill(log: PartitionLog, count: int = 10) -> None:
    """One closed segment of records with one key."""
    put_each(log, [("a", str(number)) for number in range(count)])
    log.roll(NOW_MS)


# Choosing


def test_a_log_is_cleaned_when_enough_of_it_is_dirty(tmp_path: Path) -> None:
    log = open_compacted(tmp_path, LocalFiles(), min_cleanable_dirty_ratio=0.5)
    put_each(log, [(str(number), "v") for number in range(10)])
    clean(log)
    assert log.cleaned_to == 10
    put_each(log, [(str(number), "v") for number in range(8)])
    cleaner = clean(log)
    assert log.cleaned_to == 10, "8 of 18 batches are dirty"
    assert cleaner.numbers.max_dirty_percent == pytest.approx(100 * 8 / 18)
    put_each(log, [(str(number), "v") for number in range(4)])
    clean(log)
    assert log.cleaned_to == 22


def test_a_topic_that_is_not_compacted_is_left_alone(tmp_path: Path) -> None:
    log = open_log(tmp_path, config())
    fill(log)
    log.restore_high_watermark(10)
    cleaner_of(log).tick(NOW_MS)
    assert len(left(log)) == 10


def test_records_younger_than_the_least_lag_stay(tmp_path: Path) -> None:
    log = open_compacted(tmp_path, LocalFiles(), min_compaction_lag_ms=1000)
    for age_ms in (5000, 3000, 500, 200):
        put_each(log, [("a", "1"), ("a", "2")], now_ms=NOW_MS - age_ms)
        log.roll(NOW_MS)
    found = cleanable(log, NOW_MS, log.flusher.recovery_point)
    assert found is not None
    assert found.first_uncleanable == 4
    clean(log)
    assert [record.offset for record in left(log)] == [3, 4, 5, 6, 7]
    clean(log, NOW_MS + 900)
    assert [record.offset for record in left(log)] == [7]


def test_a_record_that_waited_for_the_longest_lag_is_cleaned_whatever_the_ratio(tmp_path: Path) -> None:
    log = open_compacted(tmp_path, LocalFiles(), min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=60_000)
    put_each(log, [("a", "1"), ("a", "2")])
    clean(log, NOW_MS + 60_000)
    assert log.cleaned_to == 0
    clean(log, NOW_MS + 60_001)
    assert left(log) == [Left(1, "a", "2")]


def test_the_longest_lag_rolls_the_active_segment(tmp_path: Path) -> None:
    log = open_compacted(tmp_path, LocalFiles(), max_compaction_lag_ms=60_000)
    put(log, ("a", "1"))
    put(log, ("a", "2"), now_ms=NOW_MS + 60_001)
    assert [segment.base_offset for segment in log.segments] == [0, 1]


def test_the_dirtiest_log_is_cleaned_first(tmp_path: Path) -> None:
    logs = []
    for number, keys in enumerate((9, 3, 6)):
        partition = TopicPartition("t", number)
        log = PartitionLog.open(tmp_path / str(partition), partition, compacted(), files=LocalFiles(), now_ms=NOW_MS)
        fill(log)
        clean(log)
        put_each(log, [("k", "v" * 10 * (10 - keys))])
        log.roll(NOW_MS)
        logs.append(log)
    order: list[str] = []

    class Watched(Compaction):
        def plan(self, job: CleaningJob) -> CleaningPlan:
            order.append(Path(job.directory).name)
            return super().plan(job)

    cleaner_of(*logs, worker=Watched(LocalFiles())).tick(NOW_MS)
    assert order == ["t-1", "t-2", "t-0"]


def test_what_is_not_flushed_yet_is_not_cleaned(tmp_path: Path) -> None:
    background = Background(waits=True)
    log = open_log(tmp_path / "flights-0", compacted(), scheduling=background.scheduling)
    fill(log)
    clean(log, roll=False)
    assert len(left(log)) == 10
    background.run_all()
    clean(log, roll=False)
    assert len(left(log)) == 1


def test_with_nothing_to_clean_the_next_look_is_after_the_backoff(log: PartitionLog) -> None:
    cleaner = cleaner_of(log, backoff_ms=1000)
    cleaner.tick(NOW_MS)
    fill(log)
    cleaner.tick(NOW_MS + 999)
    assert len(left(log)) == 10
    cleaner.tick(NOW_MS + 1000)
    assert len(left(log)) == 1


@pytest.mark.parametrize("settings", [{"is_enabled": False}, {"threads": 0}])
def test_a_cleaner_that_is_switched_off_cleans_nothing(log: PartitionLog, settings: dict[str, Any]) -> None:
    fill(log)
    cleaner_of(log, **settings).tick(NOW_MS)
    assert len(left(log)) == 10


def test_compact_and_delete_together(tmp_path: Path) -> None:
    log = open_compacted(tmp_path, LocalFiles(), cleanup_policy=("compact", "delete"), retention_ms=10_000)
    put_each(log, [("a", "1"), ("old", "1"), ("a", "2")], now_ms=NOW_MS - 20_000)
    clean(log)
    put_each(log, [("b", "1"), ("b", "2")])
    clean(log)
    assert [record.key for record in left(log)] == ["old", "a", "b"]
    put(log, ("c", "1"))
    assert upkeep.delete_old_segments(log, NOW_MS) in (0, 1)
    purge(log, NOW_MS)
    assert upkeep.delete_old_segments(log, NOW_MS + 10_001) >= 1
    assert "old" not in [record.key for record in left(log)]


# Changes under the cleaner


class Meddling(Compaction):
    """A worker during whose work something else happens to the log."""

    def __init__(self, at: str, meddle: Callable[[], object]) -> None:
        super().__init__(LocalFiles())
        self.at, self.meddle = at, meddle

    def plan(self, job: CleaningJob) -> CleaningPlan:
        plan = super().plan(job)
        if self.at == "plan":
            self.at = ""
            self.meddle()
        return plan

    def clean(self, group: list[int]) -> CleanedGroup:
        made = super().clean(group)
        if self.at == "clean":
            self.at = ""
            self.meddle()
        return made


@pytest.mark.parametrize("at", ["plan", "clean"])
def test_a_log_that_is_truncated_meanwhile_is_let_go(log: PartitionLog, at: str) -> None:
    fill(log)
    cleaner_of(log, worker=Meddling(at, lambda: truncation.truncate_to(log, 5, NOW_MS))).tick(NOW_MS)
    assert [record.offset for record in left(log)] == list(range(5))
    assert log.cleaned_to == 0
    assert not list(log.directory.glob("*.cleaned"))


@pytest.mark.parametrize("at", ["plan", "clean"])
def test_a_log_whose_segments_are_deleted_meanwhile_is_let_go(log: PartitionLog, at: str) -> None:
    fill(log)
    put(log, ("b", "1"))

    def delete() -> None:
        upkeep.delete_records_before(log, 10, NOW_MS)
        purge(log, NOW_MS)

    cleaner = cleaner_of(log, worker=Meddling(at, delete))
    cleaner.tick(NOW_MS)
    assert left(log) == [Left(10, "b", "1")]
    assert not list(log.directory.glob("*.cleaned"))
    assert not cleaner.uncleanable


@pytest.mark.parametrize("at", ["plan", "clean"])
def test_a_log_that_is_deleted_meanwhile_is_forgotten(log: PartitionLog, at: str) -> None:
    fill(log)
    cleaner = cleaner_of(log, worker=Meddling(at, lambda: delete(log)))
    cleaner.tick(NOW_MS)
    assert not cleaner.uncleanable


def test_appends_and_rolls_do_not_disturb_a_cleaning(log: PartitionLog) -> None:
    fill(log)

    def append() -> None:
        put(log, ("a", "later"))
        log.roll(NOW_MS)

    cleaner_of(log, worker=Meddling("clean", append), backoff_ms=10**9).tick(NOW_MS)
    assert left(log)[-1].value == "later"
    assert log.cleaned_to >= 10


def test_a_reader_finishes_in_segments_that_were_cleaned_away(log: PartitionLog) -> None:
    fill(log)
    held = log.read(0, 1 << 20, end_offset=10, at_least_one=True)
    before = log.read_bytes(held)
    clean(log)
    assert not list(log.directory.glob("*.deleted"))
    assert log.read_bytes(held) == before


def test_a_truncation_below_what_was_cleaned_makes_that_dirty_again(log: PartitionLog) -> None:
    fill(log)
    clean(log)
    assert log.cleaned_to == 10
    truncation.truncate_to(log, 5, NOW_MS)
    assert (log.cleaned_to, log.cleaned_to_was_lowered) == (5, True)


# Trouble


def damage(log: PartitionLog, place: int = -1) -> None:
    path = log.segments[0].path(".log")
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def test_a_damaged_log_is_left_uncleaned_and_the_log_line_says_what_to_do(
    log: PartitionLog, caplog: pytest.LogCaptureFixture
) -> None:
    fill(log)
    damage(log)
    size = log.size_bytes
    cleaner = cleaner_of(log)
    cleaner.tick(NOW_MS)
    assert "does not match its CRC" in cleaner.uncleanable[log.partition]
    assert cleaner.uncleanable_in([log.directory.parent]) == {log.directory.parent: (1, size)}
    assert size == log.size_bytes
    assert "headrace log verify" in caplog.text
    assert str(log.directory) in caplog.text
    caplog.clear()
    cleaner.tick(NOW_MS + 10**9)
    assert not caplog.text, "it is not tried again"


class Failing(Compaction):
    """A worker that fails so many times."""

    def __init__(self, errors: list[Exception]) -> None:
        super().__init__(LocalFiles())
        self.errors = errors

    def clean(self, group: list[int]) -> CleanedGroup:
        if self.errors:
            raise self.errors.pop(0)
        return super().clean(group)


def test_offsets_that_no_checksum_covers_are_not_believed_either(log: PartitionLog) -> None:
    fill(log)
    damage(log, log.segments[0].size // 10 * 5 + 6)
    cleaner = cleaner_of(log)
    cleaner.tick(NOW_MS)
    assert "has offsets 261 to 261, but offset 5 or a later one is expected" in cleaner.uncleanable[log.partition]


def test_a_full_disk_is_tried_again_after_the_backoff(log: PartitionLog) -> None:
    fill(log)
    cleaner = cleaner_of(log, worker=Failing([OSError("no space left")] * 2), backoff_ms=1000)
    cleaner.tick(NOW_MS)
    cleaner.tick(NOW_MS + 500)
    cleaner.tick(NOW_MS + 1000)
    assert not cleaner.uncleanable
    assert len(left(log)) == 10
    cleaner.tick(NOW_MS + 2000)
    assert len(left(log)) == 1


def test_a_log_over_which_the_process_dies_again_and_again_is_left_uncleaned(log: PartitionLog) -> None:
    fill(log)
    cleaner = cleaner_of(log, worker=Failing([ProcessDied("it died")] * DEATHS_MAX), backoff_ms=1)
    for number in range(DEATHS_MAX):
        assert not cleaner.uncleanable
        cleaner.tick(NOW_MS + number)
    assert "it died" in cleaner.uncleanable[log.partition]


def test_a_bug_makes_one_log_uncleanable_and_the_others_are_cleaned(tmp_path: Path) -> None:
    logs = []
    for number in range(2):
        partition = TopicPartition("t", number)
        log = PartitionLog.open(tmp_path / str(partition), partition, compacted(), files=LocalFiles(), now_ms=NOW_MS)
        fill(log)
        logs.append(log)
    cleaner = cleaner_of(*logs, worker=Failing([RuntimeError("a bug")]))
    cleaner.tick(NOW_MS)
    assert list(cleaner.uncleanable.values()) == ["a bug"]
    assert sorted(len(left(log)) for log in logs) == [1, 10]


# What is remembered


def managed(directory: Path, **more: object) -> LogManager:
    manager = LogManager(
        [directory],
        broker_id=1,
        topic_config=lambda _: compacted(),
        make_worker=lambda: Compaction(LocalFiles()),
        **more,  # type: ignore[arg-type]
    )
    manager.directories.claim(CLUSTER)
    manager.load(NOW_MS)
    return manager


def test_how_far_a_log_was_cleaned_is_written_as_kafka_writes_it(tmp_path: Path) -> None:
    manager = managed(tmp_path)
    log = manager.create(PARTITION, bytes(range(16)), NOW_MS)
    fill(log)
    manager.tick(NOW_MS)
    assert (tmp_path / "cleaner-offset-checkpoint").read_text() == "0\n1\nflights 0 10\n"
    manager.close(NOW_MS)
    manager = managed(tmp_path)
    log = manager.logs[PARTITION]
    assert log.cleaned_to == 10
    truncation.truncate_to(log, 0, NOW_MS)
    manager.tick(NOW_MS + 1)
    assert (tmp_path / "cleaner-offset-checkpoint").read_text() == "0\n0\n"
    manager.release()


def test_a_topic_made_anew_does_not_pass_for_clean(tmp_path: Path) -> None:
    manager = managed(tmp_path)
    log = manager.create(PARTITION, bytes(range(16)), NOW_MS)
    fill(log)
    manager.tick(NOW_MS)
    manager.delete(PARTITION, NOW_MS)
    assert (tmp_path / "cleaner-offset-checkpoint").read_text() == "0\n0\n"
    assert manager.create(PARTITION, bytes(range(1, 17)), NOW_MS).cleaned_to == 0
    manager.release()


def test_a_checkpoint_past_the_log_is_not_believed(log: PartitionLog) -> None:
    fill(log)
    log.cleaned_to = 99
    clean(log)
    assert left(log) == [Left(9, "a", "9")]


# Memory, disk, processes


def test_the_throttle_holds_to_its_rate_and_saves_nothing_up() -> None:
    now = [0.0]
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    throttle = Throttle(1000, lambda: now[0], sleep)
    for _ in range(10):
        throttle.spend(500)
    assert now[0] == pytest.approx(5.0)
    now[0] += 100
    throttle.spend(3000)
    assert slept[-1] == pytest.approx(3.0)


@pytest.fixture
def worker() -> Iterator[ProcessWorker]:
    made = ProcessWorker()
    yield made
    made.stop()


def job_of(log: PartitionLog) -> CleaningJob:
    found = cleanable(log, NOW_MS, log.flusher.recovery_point)
    assert found is not None
    return cleaner_of(log)._job_of(found)


def test_a_process_cleans_as_this_one_would(log: PartitionLog, worker: ProcessWorker) -> None:
    put(log, ("a", "1"), producer_id=7, sequence=0)
    fill(log)
    cleaner_of(log, worker=worker).tick(NOW_MS)
    assert left(log) == [Left(10, "a", "9")]
    assert len(log.producers.entries) == 1


def test_the_process_tells_damage_from_a_disk_that_refuses(log: PartitionLog, worker: ProcessWorker) -> None:
    fill(log)
    job = job_of(log)
    damage(log)
    with pytest.raises(CorruptMessage, match="does not match its CRC"):
        worker.plan(job)
    with pytest.raises(OSError, match="No such file"):
        worker.plan(job._replace(directory=str(log.directory) + "-gone"))
    said = answer(Compaction(LocalFiles()), json.dumps({"plan": {**job._asdict(), "sizes": {}}}).encode())
    assert said["failed"] == "bug" or "done" in said


def test_a_process_that_was_killed_is_started_anew(log: PartitionLog, worker: ProcessWorker) -> None:
    fill(log)
    job = job_of(log)
    worker.plan(job)
    assert worker._process is not None
    worker._process.send_signal(signal.SIGKILL)
    with pytest.raises(ProcessDied):
        worker.clean([0])
    assert worker.plan(job).keys == 1


def test_a_process_that_ended_for_want_of_work_is_started_anew(log: PartitionLog, worker: ProcessWorker) -> None:
    fill(log)
    job = job_of(log)
    worker.plan(job)
    first = worker._process
    assert first is not None
    first.terminate()
    first.wait(WITHIN_SECONDS)
    assert worker.plan(job).keys == 1
    assert worker._process is not first


def test_the_memory_for_keys_is_given_back_with_the_last_group(log: PartitionLog) -> None:
    fill(log)
    worker = Compaction(LocalFiles())
    plan = worker.plan(job_of(log))
    assert hasattr(worker, "_known")
    for group in plan.groups:
        worker.clean(group)
    assert not hasattr(worker, "_known")


def test_two_cleaners_work_on_two_logs_at_once(tmp_path: Path) -> None:
    logs = {}
    for number in range(3):
        partition = TopicPartition("t", number)
        logs[partition] = PartitionLog.open(
            tmp_path / str(partition), partition, compacted(), files=LocalFiles(), now_ms=NOW_MS
        )
        fill(logs[partition])
    waiting: list[tuple[Callable[[], None], Callable[[Exception | None], None]]] = []
    cleaner = Cleaner(
        LocalFiles(),
        logs,
        CleanerSettings(threads=2),
        background=lambda work, done: waiting.append((work, done)),
        write_checkpoint=lambda _: lambda: None,
        make_worker=lambda: Compaction(LocalFiles()),
    )
    cleaner.tick(NOW_MS)
    assert [cleaner.is_busy_with(log) for log in logs.values()].count(True) == 2
    cleaner.tick(NOW_MS + 1)
    assert len(waiting) == 2
    while waiting:
        work, done = waiting.pop(0)
        work()
        done(None)
    assert [len(left(log)) for log in logs.values()] == [1, 1, 1]


def test_a_stopped_worker_does_nothing_more(log: PartitionLog, worker: ProcessWorker) -> None:
    fill(log)
    worker.stop()
    with pytest.raises(CleaningStopped):
        worker.plan(job_of(log))


def test_the_process_ends_with_the_broker(log: PartitionLog, worker: ProcessWorker) -> None:
    fill(log)
    worker.plan(job_of(log))
    process = worker._process
    assert process is not None and process.stdin is not None
    assert os.getpriority(os.PRIO_PROCESS, process.pid) > os.getpriority(os.PRIO_PROCESS, 0)
    process.stdin.close()
    assert process.wait(WITHIN_SECONDS) == 0


def test_what_is_under_way_ends_when_the_broker_stops(tmp_path: Path) -> None:
    """A throttled cleaning would take days; a stop does not wait for it."""
    from concurrent.futures import ThreadPoolExecutor

    log = open_compacted(tmp_path, LocalFiles())
    put_each(log, [(str(number), "v" * 1000) for number in range(200)])
    log.roll(NOW_MS)
    log.restore_high_watermark(log.log_end_offset)
    pool = ThreadPoolExecutor(1)
    errors: list[Exception | None] = []

    def background(work: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        def run() -> None:
            work()
            done(None)
            errors.append(None)

        pool.submit(run)

    cleaner = Cleaner(
        LocalFiles(),
        {log.partition: log},
        CleanerSettings(io_bytes_per_second=1.0),
        background=background,
        write_checkpoint=lambda _: lambda: None,
    )
    cleaner.tick(NOW_MS)
    lanes = cleaner._lanes
    eventually(lambda: any(lane.worker._process for lane in lanes), "a worker")  # type: ignore[attr-defined]
    cleaner.stop()
    pool.shutdown()
    assert errors == [None]
    assert not cleaner.uncleanable
    assert len(left(log)) == 200
