"""How logs are opened at a start: what is read, by whom, what is told of it, and how it is given up."""

import logging
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.log import truncation
from headrace.log.directories import checkpointing
from headrace.log.directories.checkpoints import RECOVERY_POINT, read_offsets
from headrace.log.directories.data_directory import CLEAN_SHUTDOWN, DataDirectoryFailed
from headrace.log.files import LocalFiles
from headrace.log.manager import DEFAULT_PERIODS, LogManager
from headrace.log.recovery import loading
from headrace.log.recovery.progress import LoadingStopped, RecoveryProgress
from headrace.types import TopicPartition
from tests.log.support import NOW_MS, append, config, read_all

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"
PARTITIONS = [TopicPartition("flights", number) for number in range(4)]


def manager_of(*directories: Path, threads: int = 2, segment_bytes: int = 2000) -> LogManager:
    manager = LogManager(
        directories,
        broker_id=1,
        topic_config=lambda _topic: config(segment_bytes=segment_bytes),
        recovery_threads=threads,
    )
    manager.directories.claim(CLUSTER)
    return manager


def killed(*directories: Path, close: bool = False) -> list[int]:
    """Directories as a kill -9 leaves them: logs of several segments; where each log ends."""
    manager = manager_of(*directories)
    manager.load(NOW_MS)
    ends = []
    for number, partition in enumerate(PARTITIONS):
        log = manager.create(partition, None, NOW_MS)
        for sequence in range(30 + 10 * number):
            append(log, b"value %d" % sequence, producer_id=7, sequence=sequence)
        assert len(log.segments) > 1
        ends.append(log.log_end_offset)
    if close:
        manager.close(NOW_MS)
    manager.release()
    return ends


@pytest.fixture(autouse=True)
def every_log_is_worth_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "PARALLEL_BYTES_MIN", 1)


@pytest.mark.parametrize("threads", [1, 3])
def test_logs_are_the_same_whoever_opens_them(tmp_path: Path, threads: int) -> None:
    ends = killed(tmp_path / "a", tmp_path / "b")
    manager = manager_of(tmp_path / "a", tmp_path / "b", threads=threads)
    manager.load(NOW_MS)
    for partition, end in zip(PARTITIONS, ends, strict=True):
        log = manager.logs[partition]
        assert log.log_end_offset == len(read_all(log)) == end
        assert log.producers.entries[7].last_sequence == end - 1
    manager.release()


def test_a_log_that_cannot_be_opened_takes_its_directory_alone(tmp_path: Path) -> None:
    killed(tmp_path / "a", tmp_path / "b")
    (tmp_path / "a" / "flights-0" / "partition.metadata").write_text("version: 7\n")
    manager = manager_of(tmp_path / "a", tmp_path / "b")
    manager.load(NOW_MS)
    assert list(manager.directories.offline) == [tmp_path / "a"]
    assert {log.directory.parent for log in manager.logs.values()} == {tmp_path / "b"}
    manager.release()

    (tmp_path / "b" / "flights-1" / "partition.metadata").write_text("version: 7\n")
    manager = manager_of(tmp_path / "a", tmp_path / "b")
    with pytest.raises(DataDirectoryFailed):
        manager.load(NOW_MS)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("recovery")]
    manager.release()


def fields(record: logging.LogRecord) -> dict[str, object]:
    return {key: value for key, value in vars(record).items() if key in ("logs", "of", "of_mib", "read_bytes")}


def test_what_is_read_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    killed(tmp_path)
    size = sum(path.stat().st_size for path in tmp_path.glob("*/*.log"))
    caplog.clear()
    manager = manager_of(tmp_path)
    manager.load(NOW_MS, RecoveryProgress(every_s=0))
    told = [
        (record.message, fields(record)) for record in caplog.records if record.name == "headrace.log.recovery.progress"
    ]
    assert told[0] == (
        "recovering logs, because the last stop was not clean",
        {"logs": 0, "of": 4, "of_mib": size >> 20},
    )
    assert told[1][0] == "recovering logs"
    assert len(told) > 4, "a line for each thing that happens, as none has to wait"
    assert told[-1] == ("recovered logs", {"logs": 4, "read_bytes": size})
    manager.close(NOW_MS)

    caplog.clear()
    manager = manager_of(tmp_path)
    manager.load(NOW_MS)
    assert not [record for record in caplog.records if record.name == "headrace.log.recovery.progress"], (
        "nothing was read"
    )
    manager.release()


def test_a_line_comes_when_it_is_due(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    times = iter([100.0, 101.0, 104.0, 104.0, 104.0])
    progress = RecoveryProgress(lambda: next(times), every_s=3)
    progress.expect(2, 40_000_000)
    progress.read(10_000_000)
    assert not caplog.records
    progress.read(10_000_000)
    (record,) = caplog.records
    assert vars(record).items() >= {"read_mib": 19, "of_mib": 38, "mb_per_second": 5, "seconds_left": 4}.items()


class StoppedAt(RecoveryProgress):
    """Stops itself after so many reports."""

    def __init__(self, reports: int) -> None:
        super().__init__()
        self.left = reports

    def _advance(self, logs: int, size_bytes: int) -> None:
        self.left -= 1
        if self.left < 0:
            self.stop()
        super()._advance(logs, size_bytes)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("reports", [0, 1, 5])
def test_a_start_that_is_given_up_can_be_made_again(tmp_path: Path, threads: int, reports: int) -> None:
    ends = killed(tmp_path)
    manager = manager_of(tmp_path, threads=threads)
    with pytest.raises(LoadingStopped):
        manager.load(NOW_MS, StoppedAt(reports))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("recovery")]
    assert not (tmp_path / CLEAN_SHUTDOWN).exists()
    manager.release()
    manager = manager_of(tmp_path)
    manager.load(NOW_MS)
    assert [manager.logs[partition].log_end_offset for partition in PARTITIONS] == ends
    manager.release()


def test_a_clean_directory_stays_clean_when_the_start_is_given_up(tmp_path: Path) -> None:
    killed(tmp_path, close=True)
    manager = manager_of(tmp_path)
    with pytest.raises(LoadingStopped):
        manager.load(NOW_MS, StoppedAt(2))
    manager.release()
    assert (tmp_path / CLEAN_SHUTDOWN).exists()


# What a start has to read


def bytes_to_read(*directories: Path) -> int:
    """How much a start after a kill would read."""
    manager = manager_of(*directories)
    progress = RecoveryProgress()
    manager.load(NOW_MS, progress)
    manager.release()
    return progress.bytes_done


def test_after_a_roll_a_start_reads_the_active_segment_alone(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    manager.load(NOW_MS)
    log = manager.create(PARTITIONS[0], None, NOW_MS)
    while len(log.segments) < 5:
        append(log, b"x" * 100)
    append(log, b"x" * 100)
    manager.tick(NOW_MS + 1000)
    assert read_offsets(LocalFiles(), tmp_path / RECOVERY_POINT) == {PARTITIONS[0]: log.active.base_offset}
    manager.release()
    assert bytes_to_read(tmp_path) == log.active.size


def test_what_rolled_just_before_a_kill_is_read_once_and_not_after_the_next_kill(tmp_path: Path) -> None:
    killed(tmp_path)
    size = sum(path.stat().st_size for path in tmp_path.glob("*/*.log"))
    assert bytes_to_read(tmp_path) == size
    manager = manager_of(tmp_path)
    manager.load(NOW_MS)
    for tick in (1, 2):
        manager.tick(NOW_MS + 1000 * tick)
    manager.release()
    assert bytes_to_read(tmp_path) == sum(log.active.size for log in manager.logs.values()) < size


def test_rolls_in_quick_succession_share_a_write_of_the_recovery_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpointing, "PAUSE_MS_PER_PARTITION", 1500)
    manager = manager_of(tmp_path)
    manager.load(NOW_MS)
    first, second = (manager.create(partition, None, NOW_MS) for partition in PARTITIONS[:2])
    written = []
    for seconds in range(1, 8):
        if seconds < 4:
            append(first, b"x")
            first.roll(NOW_MS)
        manager.tick(NOW_MS + 1000 * seconds)
        written.append(read_offsets(LocalFiles(), tmp_path / RECOVERY_POINT)[PARTITIONS[0]])
    assert written == [1, 1, 1, 3, 3, 3, 3], "1,500 ms for each of the two partitions"
    append(first, b"x")
    first.roll(NOW_MS)
    append(second, b"x")
    second.roll(NOW_MS)
    manager.tick(NOW_MS + 8000)
    append(first, b"x")
    first.roll(NOW_MS)
    truncation.truncate_to(second, 0, NOW_MS)
    manager.tick(NOW_MS + 9000)
    found = read_offsets(LocalFiles(), tmp_path / RECOVERY_POINT)
    assert found == {PARTITIONS[0]: 5, PARTITIONS[1]: 0}, "a truncation does not wait"
    manager.release()


def test_a_recovery_point_that_was_lowered_is_written_down(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    manager.load(NOW_MS)
    log = manager.create(PARTITIONS[0], None, NOW_MS)
    for _ in range(30):
        append(log, b"x" * 100)
    log.flusher.flush(NOW_MS)
    manager.checkpoint()
    truncation.truncate_to(log, 3, NOW_MS)
    manager.tick(NOW_MS + 1000)
    assert read_offsets(LocalFiles(), tmp_path / RECOVERY_POINT) == {PARTITIONS[0]: 3}
    manager.release()


def test_a_disk_that_does_not_take_the_recovery_point_is_asked_again_when_its_turn_comes(tmp_path: Path) -> None:
    asked: list[Callable[[], None]] = []
    manager = manager_of(tmp_path)
    manager.load(NOW_MS)
    log = manager.create(PARTITIONS[0], None, NOW_MS)
    while len(log.segments) < 2:
        append(log, b"x" * 100)
    straight = manager.checkpoints.background

    def refuse(work: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        asked.append(work)
        done(OSError("no"))

    manager.checkpoints.background = refuse
    manager.tick(NOW_MS + 1000)
    assert len(asked) == 1
    manager.tick(NOW_MS + 2000)
    assert len(asked) == 1, "not every second"
    assert log.flusher.checkpointed_to == 0
    manager.checkpoints.background = straight
    manager.tick(NOW_MS + DEFAULT_PERIODS.checkpoint_ms)
    assert log.flusher.checkpointed_to == log.active.base_offset
    manager.release()
