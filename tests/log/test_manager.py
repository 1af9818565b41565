"""Every log of a broker: who may use a data directory, what a start finds, what happens with time."""

import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ErrorCode, KafkaError
from headrace.in_slices import finished
from headrace.log import truncation, upkeep
from headrace.log.directories.checkpoints import HIGH_WATERMARK, LOG_START_OFFSET, RECOVERY_POINT
from headrace.log.directories.data_directory import DataDirectoryRefused
from headrace.log.files import LocalFiles, PathText
from headrace.log.manager import DEFAULT_PERIODS, LogManager, Periods
from headrace.types import TopicPartition
from tests.log.support import NOW_MS, PARTITION, append, config, read_all

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"
TOPIC_ID = bytes(range(16))


def manager_of(*directories: Path, broker_id: int = 1, **settings: Any) -> LogManager:
    return LogManager(directories, broker_id=broker_id, topic_config=lambda _topic: config(**settings))


def started(*directories: Path, **settings: Any) -> LogManager:
    manager = manager_of(*directories, **settings)
    manager.directories.claim(CLUSTER)
    manager.load(NOW_MS)
    return manager


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[LogManager]:
    made = started(tmp_path / "data", file_delete_delay_ms=1000)
    yield made
    made.release()


# Refusals


def test_a_second_manager_is_refused_while_the_first_holds_the_directory(manager: LogManager, tmp_path: Path) -> None:
    with pytest.raises(DataDirectoryRefused, match="in use by another process"):
        manager_of(tmp_path / "data")
    manager.release()
    manager_of(tmp_path / "data").release()


def test_another_process_is_refused_until_it_dies(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from headrace.log.directories.data_directory import DataDirectory;"
        "from headrace.log.files import LocalFiles; d = DataDirectory(LocalFiles(), Path(sys.argv[1]));"
        "print('held', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(DataDirectoryRefused, match="in use by another process"):
            manager_of(tmp_path)
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        holder.stdout.close()
    manager_of(tmp_path).release()


def test_a_refused_directory_leaves_the_others_free(manager: LogManager, tmp_path: Path) -> None:
    with pytest.raises(DataDirectoryRefused):
        manager_of(tmp_path / "other", tmp_path / "data")
    manager_of(tmp_path / "other").release()


def test_a_directory_of_another_cluster_or_broker_is_refused(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    unclaimed = manager.directories.cluster_id
    manager.directories.claim(CLUSTER)
    assert (unclaimed, manager.directories.cluster_id) == (None, CLUSTER)
    with pytest.raises(DataDirectoryRefused, match=f"belongs to cluster {CLUSTER}, not to another"):
        manager.directories.claim("another")
    manager.release()
    with pytest.raises(DataDirectoryRefused, match="belongs to broker 1, not to 2"):
        manager_of(tmp_path, broker_id=2).directories.claim(CLUSTER)


def test_a_directory_whose_identity_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=0\n")
    manager = manager_of(tmp_path)
    with pytest.raises(DataDirectoryRefused, match=r"broker\.id is missing"):
        manager.directories.claim(CLUSTER)
    manager.release()


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataDirectoryRefused, match="file cannot be used: it is a file"):
        manager_of(tmp_path / "file")


# Starts


def test_a_restart_finds_every_partition_with_its_records_and_topic_id(tmp_path: Path) -> None:
    manager = started(tmp_path)
    for number in range(3):
        append(manager.create(TopicPartition("a-b", number), TOPIC_ID, NOW_MS), b"value %d" % number)
    manager.close(NOW_MS)
    manager = started(tmp_path)
    assert {str(partition) for partition in manager.logs} == {"a-b-0", "a-b-1", "a-b-2"}
    for partition, log in manager.logs.items():
        assert log.topic_id == TOPIC_ID
        assert [record.value for record in read_all(log)] == [b"value %d" % partition.partition]
    manager.release()


def test_a_clean_stop_leaves_a_mark_that_the_next_start_takes(tmp_path: Path) -> None:
    mark = tmp_path / ".kafka_cleanshutdown"
    manager = started(tmp_path)
    append(manager.create(PARTITION, TOPIC_ID, NOW_MS), b"v")
    manager.close(NOW_MS)
    assert mark.read_text() == '{"version":0,"brokerEpoch":-1}'
    manager = started(tmp_path)
    assert not mark.exists(), "a crash from now on is one"
    assert manager.logs[PARTITION].flusher.recovery_point == 1
    manager.release()


def test_a_killed_broker_s_logs_are_recovered_from_their_checkpoints(tmp_path: Path) -> None:
    manager = started(tmp_path)
    log = manager.create(PARTITION, TOPIC_ID, NOW_MS)
    for _ in range(5):
        append(log, b"v")
    log.flusher.flush(NOW_MS)
    log.restore_high_watermark(4)
    upkeep.delete_records_before(log, 2, NOW_MS)
    manager.tick(NOW_MS + DEFAULT_PERIODS.checkpoint_ms)
    append(log, b"w")
    manager.release()
    log = started(tmp_path).logs[PARTITION]
    assert (log.log_start_offset, log.high_watermark, log.flusher.recovery_point, log.log_end_offset) == (2, 4, 5, 6)


@pytest.mark.parametrize("content", ["", "0\n", "garbage", "0\n1\nflights 0 x\n"])
def test_damaged_checkpoints_mean_that_everything_is_checked(tmp_path: Path, content: str) -> None:
    manager = started(tmp_path)
    append(manager.create(PARTITION, TOPIC_ID, NOW_MS), b"v")
    manager.release()
    for name in ("recovery-point", "log-start", "replication"):
        (tmp_path / f"{name}-offset-checkpoint").write_text(content)
    (tmp_path / "log-start-offset-checkpoint").write_text(content)
    manager = started(tmp_path)
    assert len(read_all(manager.logs[PARTITION])) == 1
    manager.release()


def test_what_is_no_partition_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes-x").mkdir(parents=True)
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "file-0").touch()
    assert started(tmp_path).logs == {}
    assert (tmp_path / "lost+found").exists()


# Partitions come and go


def test_partitions_are_spread_over_the_directories(tmp_path: Path) -> None:
    manager = started(tmp_path / "a", tmp_path / "b")
    for number in range(4):
        manager.create(TopicPartition("t", number), TOPIC_ID, NOW_MS)
    assert len([*(tmp_path / "a").glob("t-*")]) == len([*(tmp_path / "b").glob("t-*")]) == 2
    assert manager.create(PARTITION, TOPIC_ID, NOW_MS) is manager.create(PARTITION, TOPIC_ID, NOW_MS)
    manager.close(NOW_MS)
    manager = started(tmp_path / "a", tmp_path / "b")
    assert len(manager.logs) == 5
    manager.release()


def test_a_deleted_partition_is_renamed_at_once_and_removed_later(manager: LogManager, tmp_path: Path) -> None:
    append(manager.create(PARTITION, TOPIC_ID, NOW_MS), b"v")
    manager.delete(PARTITION, NOW_MS)
    assert manager.get(PARTITION) is None
    [doomed] = [path for path in (tmp_path / "data").iterdir() if path.is_dir()]
    assert doomed.name.startswith("flights-0.")
    assert doomed.name.endswith("-delete")
    assert manager.create(PARTITION, TOPIC_ID, NOW_MS).log_end_offset == 0, "the name is free"
    manager.tick(NOW_MS + 999)
    assert doomed.exists()
    manager.tick(NOW_MS + 1000)
    assert not doomed.exists()


class FilesByThread(LocalFiles):
    """Notes which thread renames, removes and syncs."""

    def __init__(self) -> None:
        self.threads: set[str] = set()

    def _note(self) -> None:
        self.threads.add(threading.current_thread().name)

    def rename(self, old: PathText, new: PathText) -> None:
        self._note()
        super().rename(old, new)

    def remove(self, path: PathText) -> None:
        self._note()
        super().remove(path)

    def remove_tree(self, path: PathText) -> None:
        self._note()
        super().remove_tree(path)

    def sync_directory(self, path: PathText) -> None:
        self._note()
        super().sync_directory(path)


def test_partitions_that_go_together_are_renamed_and_removed_on_threads(tmp_path: Path) -> None:
    disk = FilesByThread()
    with ThreadPoolExecutor(1, "background") as pool:

        def background(work: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
            pool.submit(work).result()
            done(None)

        manager = LogManager(
            [tmp_path],
            broker_id=1,
            topic_config=lambda _topic: config(file_delete_delay_ms=10),
            files=disk,
            background=background,
        )
        manager.directories.claim(CLUSTER)
        manager.load(NOW_MS)
        partitions = [TopicPartition("flights", number) for number in range(50)]
        for partition in partitions:
            append(manager.create(partition, TOPIC_ID, NOW_MS), b"v")
        disk.threads.clear()
        deletion = manager.begin_deletion(partitions)
        assert all(log.failure for log in manager.logs.values()), "nothing is appended any more"
        assert not disk.threads
        pool.submit(deletion.run).result()
        assert finished(manager.finish_deletion(deletion, NOW_MS)) == {}
        assert manager.logs == {}
        assert len([*tmp_path.glob("*-delete")]) == 50
        manager.tick(NOW_MS + 10)
        assert not [*tmp_path.glob("*-delete")]
        assert all(name.startswith("background") for name in disk.threads)
        manager.release()


Works = list[tuple[Callable[[], None], Callable[[Exception | None], None]]]
"""Background work that waits for a test to do it."""


def do_all(works: Works) -> None:
    while works:
        work, done = works.pop(0)
        work()
        done(None)


def waiting_manager(directory: Path, works: Works) -> LogManager:
    """A manager whose background work waits, with a log of three segments: flushed, its first records deleted."""
    manager = LogManager(
        [directory],
        broker_id=1,
        topic_config=lambda _topic: config(segment_bytes=400),
        background=lambda work, done: works.append((work, done)),
    )
    manager.directories.claim(CLUSTER)
    manager.load(NOW_MS)
    log = manager.create(PARTITION, TOPIC_ID, NOW_MS)
    for _ in range(12):
        append(log, b"v" * 50)
    log.flusher.flush(NOW_MS)
    log.restore_high_watermark(12)
    upkeep.delete_records_before(log, log.segments[0].base_offset + 1, NOW_MS)
    return manager


CHECKPOINTS = (HIGH_WATERMARK, LOG_START_OFFSET, RECOVERY_POINT)


def crashed_and_started(manager: LogManager, directory: Path) -> LogManager:
    manager.release()
    again = manager_of(directory, segment_bytes=400)
    again.directories.claim(CLUSTER)
    again.load(NOW_MS)
    return again


def has_nothing_of_another(manager: LogManager) -> bool:
    """Whether the log of one record begins at its start, with nothing committed and nothing flushed."""
    log = manager.logs[PARTITION]
    return (log.log_start_offset, log.high_watermark, len(read_all(log))) == (0, 0, 1)


def test_a_partition_made_anew_takes_no_offset_of_the_deleted_one_after_a_crash(tmp_path: Path) -> None:
    """Otherwise records that were acknowledged would be before its log start offset."""
    works: Works = []
    manager = waiting_manager(tmp_path, works)
    for name in CHECKPOINTS:
        list(manager.checkpoints.begin(name))
    do_all(works)
    assert all("flights 0 " in (tmp_path / name).read_text() for name in CHECKPOINTS)
    manager.delete(PARTITION, NOW_MS)
    answers: list[str] = []
    manager.when_written(lambda: answers.append("deleted"))
    assert not answers, "the response waits for the disk"
    do_all(works)
    assert answers == ["deleted"]
    append(manager.create(PARTITION, bytes(16), NOW_MS), b"v")
    assert all((tmp_path / name).read_text() == "0\n0\n" for name in CHECKPOINTS)
    manager = crashed_and_started(manager, tmp_path)
    assert has_nothing_of_another(manager)
    manager.release()


def test_offsets_collected_before_a_deletion_are_not_taken_for_the_new_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.log.directories.checkpointing.ELEMENTS_PER_SLICE", 1)
    works: Works = []
    manager = waiting_manager(tmp_path, works)
    slow = [manager.checkpoints.begin(name) for name in CHECKPOINTS]
    for each in slow:
        next(each)
    manager.delete(PARTITION, NOW_MS)
    do_all(works)
    append(manager.create(PARTITION, bytes(16), NOW_MS), b"v")
    for each in slow:
        list(each)
    do_all(works)
    manager = crashed_and_started(manager, tmp_path)
    assert has_nothing_of_another(manager)
    manager.release()


def test_a_start_after_a_crash_within_a_deletion_forgets_the_offsets_of_what_is_gone(tmp_path: Path) -> None:
    works: Works = []
    manager = waiting_manager(tmp_path, works)
    for name in CHECKPOINTS:
        list(manager.checkpoints.begin(name))
    do_all(works)
    manager.begin_deletion([PARTITION]).run()
    manager = crashed_and_started(manager, tmp_path)
    assert PARTITION not in manager.logs
    manager.tick(NOW_MS)
    append(manager.create(PARTITION, bytes(16), NOW_MS), b"v")
    manager = crashed_and_started(manager, tmp_path)
    assert has_nothing_of_another(manager)
    manager.release()


def test_the_deletion_of_an_empty_partition_writes_no_checkpoint(tmp_path: Path) -> None:
    manager = started(tmp_path)
    manager.create(PARTITION, TOPIC_ID, NOW_MS)
    manager.delete(PARTITION, NOW_MS)
    assert not [name for name in CHECKPOINTS if (tmp_path / name).exists()]
    manager.release()


def test_a_start_removes_what_was_being_deleted(tmp_path: Path) -> None:
    manager = started(tmp_path)
    append(manager.create(PARTITION, TOPIC_ID, NOW_MS), b"v")
    manager.delete(PARTITION, NOW_MS)
    manager.close(NOW_MS)
    assert [*tmp_path.glob("*-delete")]
    manager = started(tmp_path)
    assert not [*tmp_path.glob("*-delete")]
    assert manager.logs == {}
    manager.release()


# Time


def test_a_tick_flushes_checks_retention_and_writes_checkpoints(tmp_path: Path) -> None:
    manager = started(tmp_path, flush_ms=500, retention_ms=1000, file_delete_delay_ms=0)
    log = manager.create(PARTITION, TOPIC_ID, NOW_MS)
    append(log, b"v", timestamps_ms=[NOW_MS])
    log.restore_high_watermark(1)
    manager.tick(NOW_MS + 500)
    assert log.flusher.recovery_point == 1
    manager.tick(NOW_MS + DEFAULT_PERIODS.high_watermark_checkpoint_ms)
    assert (tmp_path / "replication-offset-checkpoint").read_text() == "0\n1\nflights 0 1\n"
    manager.tick(NOW_MS + DEFAULT_PERIODS.checkpoint_ms)
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\nflights 0 1\n"
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n0\n"
    manager.tick(NOW_MS + DEFAULT_PERIODS.retention_check_ms)
    assert log.log_start_offset == 1
    manager.release()


def test_logs_are_looked_at_for_a_flush_once_in_a_period_and_checkpoints_have_their_own(tmp_path: Path) -> None:
    periods = Periods(flush_check_ms=5000, checkpoint_ms=100, log_start_checkpoint_ms=300)
    manager = LogManager([tmp_path], broker_id=1, topic_config=lambda _topic: config(flush_ms=1), periods=periods)
    manager.directories.claim(CLUSTER)
    manager.load(NOW_MS)
    log = manager.create(PARTITION, TOPIC_ID, NOW_MS)
    for value in (b"a", b"b"):
        append(log, value)
    log.restore_high_watermark(2)
    upkeep.delete_records_before(log, 1, NOW_MS)
    manager.tick(NOW_MS + 100)
    assert log.flusher.recovery_point == 2, "the first tick looks"
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\nflights 0 2\n"
    assert not (tmp_path / "log-start-offset-checkpoint").exists()
    append(log, b"c")
    manager.tick(NOW_MS + 4000)
    assert log.flusher.recovery_point == 2
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n1\nflights 0 1\n"
    manager.tick(NOW_MS + 5100)
    assert log.flusher.recovery_point == 3
    manager.release()


def test_checkpoints_are_written_by_the_background_and_the_newest_stays(tmp_path: Path) -> None:
    works: list[tuple[Callable[[], object], Callable[[Exception | None], object]]] = []
    manager = LogManager(
        [tmp_path],
        broker_id=1,
        topic_config=lambda _topic: config(),
        background=lambda work, done: works.append((work, done)),
    )
    manager.directories.claim(CLUSTER)
    manager.load(NOW_MS)
    log = manager.create(PARTITION, TOPIC_ID, NOW_MS)
    append(log, b"v")
    checkpoint = tmp_path / "replication-offset-checkpoint"
    manager.tick(NOW_MS + DEFAULT_PERIODS.high_watermark_checkpoint_ms)
    assert not checkpoint.exists(), "the owner's thread writes and syncs no checkpoint"
    log.restore_high_watermark(1)
    manager.tick(NOW_MS + 2 * DEFAULT_PERIODS.high_watermark_checkpoint_ms)
    for work, done in reversed(works):
        work()
        done(None)
    assert checkpoint.read_text() == "0\n1\nflights 0 1\n"
    manager.release()


def test_a_checkpoint_that_began_before_a_truncation_does_not_hide_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The offsets are read in slices. What is begun later has read them later, whichever is written last."""
    monkeypatch.setattr("headrace.log.directories.checkpointing.ELEMENTS_PER_SLICE", 1)
    manager = started(tmp_path)
    for number in range(3):
        append(manager.create(TopicPartition("flights", number), None, NOW_MS), b"v")
    for log in manager.logs.values():
        log.flusher.flush(NOW_MS)
    checkpoint = tmp_path / RECOVERY_POINT
    slow = manager.checkpoints.begin(RECOVERY_POINT)
    next(slow)
    truncation.truncate_to(manager.logs[TopicPartition("flights", 0)], 0, NOW_MS)
    for _ in manager.checkpoints.begin(RECOVERY_POINT):
        pass
    assert checkpoint.read_text() == "0\n3\nflights 0 0\nflights 1 1\nflights 2 1\n"
    for _ in slow:
        pass
    assert checkpoint.read_text() == "0\n3\nflights 0 0\nflights 1 1\nflights 2 1\n"
    manager.close(NOW_MS)


def test_checkpoints_and_deletions_of_many_logs_give_way_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.log.directories.checkpointing.ELEMENTS_PER_SLICE", 2)
    monkeypatch.setattr("headrace.log.manager.DELETIONS_PER_SLICE", 2)
    manager = started(tmp_path)
    partitions = [TopicPartition("flights", number) for number in range(6)]
    for each in partitions:
        manager.create(each, None, NOW_MS)
    assert len(list(manager.checkpoints.begin(HIGH_WATERMARK))) == 3
    deletion = manager.begin_deletion(partitions)
    deletion.run()
    finishing = manager.finish_deletion(deletion, NOW_MS)
    next(finishing)
    assert sorted(manager.logs) == partitions[2:]
    assert sorted(manager.partitions_of("flights")) == [2, 3, 4, 5]
    assert finished(finishing) == {}
    assert not manager.logs and not manager.partitions_of("flights")
    manager.close(NOW_MS)


def test_upkeep_pauses_between_slices_of_logs_and_leaves_those_alone_that_have_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.log.manager.ELEMENTS_PER_SLICE", 2)
    manager = started(tmp_path, flush_ms=1)
    logs = [manager.create(PARTITION._replace(partition=number), TOPIC_ID, NOW_MS) for number in range(5)]
    for log in logs:
        append(log, b"v")
    work = manager.work(NOW_MS + 1)
    next(work)
    assert [log.flusher.recovery_point for log in logs] == [1, 1, 0, 0, 0]
    manager.delete(logs[2].partition, NOW_MS + 1)
    list(work)
    assert [log.flusher.recovery_point for log in logs] == [1, 1, 0, 1, 1]
    manager.release()


def test_a_directory_that_cannot_be_removed_does_not_end_the_upkeep(tmp_path: Path) -> None:
    manager = started(tmp_path, file_delete_delay_ms=0)
    for number in range(2):
        partition = PARTITION._replace(partition=number)
        manager.create(partition, TOPIC_ID, NOW_MS)
        manager.delete(partition, NOW_MS)
    gone, _ = sorted(tmp_path.glob("*-delete"))
    shutil.rmtree(gone)
    manager.tick(NOW_MS + 1)
    assert not [*tmp_path.glob("*-delete")]
    manager.release()


def test_new_settings_reach_open_logs(manager: LogManager) -> None:
    log = manager.create(PARTITION, TOPIC_ID, NOW_MS)
    manager.topic_config = lambda _topic: config(segment_bytes=100)
    manager.configure("flights")
    append(log, b"v")
    append(log, b"v")
    assert len(log.segments) == 2


def test_a_partition_of_another_topic_of_that_name_is_refused(manager: LogManager) -> None:
    manager.create(PARTITION, TOPIC_ID, NOW_MS)
    with pytest.raises(KafkaError) as refused:
        manager.create(PARTITION, bytes(16), NOW_MS)
    assert refused.value.code is ErrorCode.INCONSISTENT_TOPIC_ID


def test_a_topic_id_that_a_crash_lost_is_written_again(tmp_path: Path) -> None:
    manager = started(tmp_path)
    manager.create(PARTITION, TOPIC_ID, NOW_MS)
    manager.release()
    path = tmp_path / "flights-0" / "partition.metadata"
    path.write_bytes(b"")
    manager = started(tmp_path)
    assert manager.logs[PARTITION].topic_id is None
    assert manager.create(PARTITION, TOPIC_ID, NOW_MS).topic_id == TOPIC_ID
    assert path.stat().st_size > 0
    manager.release()


def test_a_partition_that_cannot_be_opened_refuses_the_start_with_its_path(tmp_path: Path) -> None:
    manager = started(tmp_path)
    manager.create(PARTITION, TOPIC_ID, NOW_MS)
    manager.release()
    (tmp_path / "flights-0" / "partition.metadata").write_text("version: 9\ntopic_id: x\n")
    manager = manager_of(tmp_path)
    with pytest.raises(DataDirectoryRefused, match=r"flights-0 cannot be opened: .*version"):
        manager.load(NOW_MS)
    manager.release()


def test_a_stop_without_changes_writes_nothing_into_partitions(tmp_path: Path) -> None:
    manager = started(tmp_path)
    append(manager.create(PARTITION, TOPIC_ID, NOW_MS), b"v")
    manager.close(NOW_MS)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "flights-0").iterdir()}
    started(tmp_path).close(NOW_MS)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "flights-0").iterdir()} == before
    assert (tmp_path / ".kafka_cleanshutdown").exists()
