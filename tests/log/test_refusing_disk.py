"""What a log leaves on a disk that refuses one call or another, and how it goes on when the disk obliges again."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.errors import StorageError
from headrace.log import truncation, upkeep
from headrace.log.files import Bytes, DiskFile, LocalFiles, LogFile, PathText
from headrace.log.manager import LogManager
from headrace.log.partition_log import PartitionLog
from headrace.log.segment.txn_index import AbortedTransaction
from tests.log.support import NOW_MS, PARTITION, append, config, open_log, purge, read_all

EPOCHS = "leader-epoch-checkpoint"
SETTINGS = config(segment_bytes=300, file_delete_delay_ms=0)


class RefusingFiles(LocalFiles):
    """A disk that refuses what `refuses(call, name)` says; of a refused write it takes half."""

    def __init__(self) -> None:
        self.refuses: Callable[[str, str], bool] = lambda call, name: False

    def ask(self, call: str, path: PathText) -> None:
        if self.refuses(call, Path(path).name):
            raise OSError(errno.ENOSPC, f"no {call}", str(path))

    def open(self, path: PathText, *, create: bool = False) -> LogFile:
        self.ask("open", path)
        return RefusingFile(self, path, os.O_RDWR | os.O_CREAT if create else os.O_RDWR)

    def open_new(self, path: PathText) -> LogFile:
        self.ask("create", path)
        return RefusingFile(self, path, os.O_RDWR | os.O_CREAT | os.O_EXCL)

    def make_hole(self, path: PathText, size: int) -> None:
        self.ask("create", path)
        super().make_hole(path, size)

    def replace(self, path: PathText, data: Bytes, *, sync: bool = True) -> None:
        self.ask("replace", path)
        super().replace(path, data, sync=sync)

    def rename(self, old: PathText, new: PathText) -> None:
        self.ask("rename", old)
        super().rename(old, new)

    def read(self, path: PathText) -> bytes:
        self.ask("read", path)
        return super().read(path)

    def open_readonly(self, path: PathText) -> LogFile:
        self.ask("read", path)
        return super().open_readonly(path)

    def remove(self, path: PathText) -> None:
        self.ask("remove", path)
        super().remove(path)

    def sync_directory(self, path: PathText) -> None:
        self.ask("sync", path)
        super().sync_directory(path)


class RefusingFile(DiskFile):
    """A file of that disk."""

    def __init__(self, files: RefusingFiles, path: PathText, flags: int) -> None:
        super().__init__(path, flags)
        self.files, self.path = files, Path(path)

    def write(self, data: Bytes, position: int) -> None:
        if self.files.refuses("write", self.path.name):
            super().write(memoryview(data)[: len(data) // 2], position)
        self.files.ask("write", self.path)
        super().write(data, position)

    def truncate(self, size: int) -> None:
        self.files.ask("truncate", self.path)
        super().truncate(size)

    def sync(self) -> None:
        self.files.ask("sync", self.path)
        super().sync()


@pytest.fixture
def disk() -> RefusingFiles:
    return RefusingFiles()


def obliges(call: str, name: str) -> bool:
    return False


def values(log: PartitionLog) -> list[bytes]:
    return [record.value for record in read_all(log)]


def assert_reopens(directory: Path, log: PartitionLog, expected: list[bytes]) -> None:
    """The log has these values after a kill, and after a clean stop."""
    assert values(log) == expected
    assert values(open_log(directory, SETTINGS)) == expected
    log.close(NOW_MS)
    assert values(open_log(directory, SETTINGS, was_clean=True, recovery_point=log.flusher.recovery_point)) == expected


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("truncate", "1.log"),
        ("create", "1.index"),
        ("create", "1.timeindex"),
        ("remove", "1.txnindex"),
        ("create", "1.snapshot"),
        ("write", "1.snapshot"),
        ("write", "0.index"),
    ],
)
def test_a_segment_that_was_not_made_does_not_hide_what_goes_to_the_one_before(
    tmp_path: Path, disk: RefusingFiles, call: str, name: str
) -> None:
    log = open_log(tmp_path, config(segment_bytes=300, index_interval_bytes=0), disk)
    append(log, b"a" * 20)
    append(log, b"b" * 20)
    disk.refuses = lambda asked, path: asked == call and path.endswith(name.replace("1.", "2."))
    for _ in range(3):
        with pytest.raises(StorageError):
            append(log, b"c" * 150)
    assert append(log, b"d").base_offset == 2  # it fits the segment that is there
    assert open_log(tmp_path, SETTINGS).log_end_offset == 3
    disk.refuses = obliges
    assert append(log, b"e" * 150).base_offset == 3
    assert_reopens(tmp_path, log, [b"a" * 20, b"b" * 20, b"d", b"e" * 150])


def test_half_a_segment_that_cannot_be_removed_ends_the_appends(tmp_path: Path, disk: RefusingFiles) -> None:
    log = open_log(tmp_path, SETTINGS, disk)
    append(log, b"a" * 100)
    disk.refuses = lambda call, name: name.endswith("1.log") and call in ("truncate", "remove")
    with pytest.raises(StorageError):
        append(log, b"b" * 150)
    disk.refuses = obliges
    with pytest.raises(StorageError, match="cannot be removed"):
        append(log, b"c")
    assert values(open_log(tmp_path, SETTINGS)) == [b"a" * 100]


@pytest.mark.parametrize("stays", [False, True])
def test_what_a_failed_write_left_is_not_in_a_closed_segment(tmp_path: Path, disk: RefusingFiles, stays: bool) -> None:
    log = open_log(tmp_path, SETTINGS, disk)
    append(log, b"a" * 20)
    size = log.active.size
    disk.refuses = lambda call, name: name.endswith(".log") and (call == "write" or (stays and call == "truncate"))
    with pytest.raises(StorageError):
        append(log, b"b" * 100)
    assert (log.active.file.size() > size) is stays
    disk.refuses = obliges
    append(log, b"c" * 200)  # to a segment of its own
    assert (tmp_path / "00000000000000000000.log").stat().st_size == size
    assert_reopens(tmp_path, log, [b"a" * 20, b"c" * 200])


def test_an_epoch_that_was_not_written_down_is_written_with_the_next_batch(tmp_path: Path, disk: RefusingFiles) -> None:
    log = open_log(tmp_path, SETTINGS, disk)
    append(log, b"a", epoch=1)
    disk.refuses = lambda call, name: name == EPOCHS
    with pytest.raises(StorageError):
        append(log, b"b", epoch=5)
    assert log.leader_epochs.entries == [(1, 0)]
    disk.refuses = obliges
    append(log, b"b", epoch=5)
    log.close(NOW_MS)
    assert open_log(tmp_path, SETTINGS, was_clean=True).leader_epochs.entries == [(1, 0), (5, 1)]


def full_log(tmp_path: Path, disk: RefusingFiles) -> PartitionLog:
    """Four segments of one record each."""
    log = open_log(tmp_path, SETTINGS, disk)
    for number in range(4):
        append(log, b"%d" % number * 200, epoch=number)
    log.restore_high_watermark(4)
    assert len(log.segments) == 4
    return log


def names(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in directory.glob("*.log"))


def test_a_disk_too_full_for_the_leader_epochs_still_lets_segments_go(tmp_path: Path, disk: RefusingFiles) -> None:
    log = full_log(tmp_path, disk)
    disk.refuses = lambda call, name: call in ("replace", "write")
    assert upkeep.delete_records_before(log, 2, NOW_MS) == 2
    purge(log, NOW_MS)
    assert names(tmp_path) == [2, 3]
    assert not list(tmp_path.glob("*.deleted"))
    assert open_log(tmp_path, SETTINGS).leader_epochs.entries == [(2, 2), (3, 3)]


@pytest.mark.parametrize("suffix", [".log", ".index"])
def test_segments_go_oldest_first_whatever_is_refused(tmp_path: Path, disk: RefusingFiles, suffix: str) -> None:
    log = full_log(tmp_path, disk)
    disk.refuses = lambda call, name: call == "rename" and name.endswith(f"1{suffix}")
    with pytest.raises(StorageError):
        upkeep.delete_records_before(log, 3, NOW_MS)
    assert names(tmp_path) == ([1, 2, 3] if suffix == ".log" else [2, 3])
    assert [record.offset for record in read_all(open_log(tmp_path, SETTINGS))] == names(tmp_path)
    disk.refuses = obliges
    upkeep.delete_old_segments(log, NOW_MS)
    assert names(tmp_path) == [3]


def sent(log: PartitionLog, sequence: int) -> bool:
    """Append a batch of producer 7; whether it is a duplicate."""
    return append(log, b"%d" % sequence * 50, producer_id=7, sequence=sequence, epoch=sequence).is_duplicate


@pytest.mark.parametrize("offset", [4, 6, -1])
def test_a_truncation_that_is_refused_anywhere_leaves_no_log_with_other_producers(
    tmp_path: Path, disk: RefusingFiles, offset: int
) -> None:
    """The n-th call is refused, for each n. `offset` -1 begins the log anew at offset 20."""
    steps = 0
    for refused in range(1000):
        directory = tmp_path / f"{refused}"
        disk.refuses = obliges
        log = open_log(directory, SETTINGS, disk)
        for sequence in range(9):
            sent(log, sequence)
        log.restore_high_watermark(3)
        steps = 0

        def refuses(call: str, name: str, refused: int = refused) -> bool:
            nonlocal steps
            steps += call != "read"
            return call != "read" and steps == refused + 1

        disk.refuses = refuses
        try:
            if offset < 0:
                truncation.truncate_fully(log, 20, NOW_MS)
            else:
                truncation.truncate_to(log, offset, NOW_MS)
        except StorageError:
            pass
        else:
            if steps <= refused:
                break
        disk.refuses = obliges
        if log.failure is None and log.log_end_offset == 9:
            assert sent(log, 8), "nothing has changed"
        elif log.failure is None:
            assert sorted(log.producers.entries) == ([] if offset < 0 else [7])
            assert not sent(log, max(offset, 0)), "the batch that was cut off is no duplicate"
        again = open_log(directory, SETTINGS, disk)
        assert [record.offset for record in read_all(again)] == list(
            range(again.log_start_offset, again.log_end_offset)
        )
        kept = again.producers.entries.get(7)
        assert (kept.last_sequence + 1 if kept else 0) == (again.log_end_offset if again.log_end_offset < 20 else 0)
    assert refused == steps > 5


@pytest.mark.parametrize(("call", "suffix"), [("open", ".log"), ("create", ".index"), ("create", ".timeindex")])
def test_a_log_that_a_full_disk_does_not_let_begin_anew_stays_as_it_is_and_begins_anew_later(
    tmp_path: Path, disk: RefusingFiles, call: str, suffix: str
) -> None:
    log = full_log(tmp_path, disk)
    before = values(log)
    disk.refuses = lambda asked, name: asked == call and name == f"{20:020}{suffix}"
    for _ in range(2):
        with pytest.raises(StorageError, match="could not begin anew"):
            truncation.truncate_fully(log, 20, NOW_MS)
        assert (log.failure, values(log)) == (None, before)
        assert not list(tmp_path.glob(f"{20:020}.*"))
    disk.refuses = obliges
    truncation.truncate_fully(log, 20, NOW_MS)
    assert append(log, b"next").base_offset == 20
    assert_reopens(tmp_path, log, [b"next"])


@pytest.mark.parametrize("removals", range(2))
def test_a_recovery_that_is_interrupted_leaves_no_hole(tmp_path: Path, disk: RefusingFiles, removals: int) -> None:
    full_log(tmp_path, disk)
    damaged = tmp_path / "00000000000000000001.log"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    left = removals

    def refuses(call: str, name: str) -> bool:
        nonlocal left
        left -= call == "rename" and name.endswith(".log")
        return left < 0

    disk.refuses = refuses
    with pytest.raises(OSError, match="no rename"):
        open_log(tmp_path, SETTINGS, disk)
    assert [record.offset for record in read_all(open_log(tmp_path, SETTINGS))] == [0]


@pytest.mark.parametrize("refused", ["2.log", "2.index", "2.timeindex", "2.snapshot"])
def test_segments_that_retention_cannot_rename_are_deleted_by_the_next_one(
    tmp_path: Path, disk: RefusingFiles, refused: str
) -> None:
    log = open_log(tmp_path, SETTINGS, disk)
    for _ in range(6):
        append(log, b"a")
        log.roll(NOW_MS)
    append(log, b"a")
    log.restore_high_watermark(log.log_end_offset)
    disk.refuses = lambda call, name: call == "rename" and name.lstrip("0") == refused
    with pytest.raises(StorageError, match="no rename"):
        upkeep.delete_records_before(log, 6, NOW_MS)
    assert [segment.base_offset for segment in log.segments][-2:] == [5, 6]
    disk.refuses = lambda call, name: False
    upkeep.delete_old_segments(log, NOW_MS)
    purge(log, NOW_MS)
    assert [segment.base_offset for segment in log.segments] == [6]
    assert not [
        path.name for path in tmp_path.iterdir() if path.suffix in (".log", ".deleted") and "6" not in path.name
    ]
    assert log.log_start_offset == open_log(tmp_path, SETTINGS).log_start_offset == 6


def test_an_aborted_transaction_that_could_not_be_written_leaves_no_file(tmp_path: Path, disk: RefusingFiles) -> None:
    log = open_log(tmp_path, SETTINGS, disk)
    append(log, b"a")
    disk.refuses = lambda call, name: call == "write" and name.endswith(".txnindex")
    with pytest.raises(OSError, match="no write"):
        log.active.txn_index.append(disk, AbortedTransaction(1, 0, 0, 0))
    disk.refuses = lambda call, name: False
    append(log, b"a")
    log.roll(NOW_MS)
    append(log, b"a")
    log.restore_high_watermark(log.log_end_offset)
    upkeep.delete_records_before(log, 2, NOW_MS)
    purge(log, NOW_MS)
    assert not [path.name for path in tmp_path.iterdir() if "txnindex" in path.name]


def test_a_flush_that_cannot_open_a_segment_is_tried_again(tmp_path: Path, disk: RefusingFiles) -> None:
    log = open_log(tmp_path, SETTINGS, disk)
    for _ in range(3):
        append(log, b"a")
        log.roll(NOW_MS)
    append(log, b"a")
    log.flusher.truncated(0)  # as after a crash: nothing is known to be on the disk
    for segment in log.segments:
        segment.release()
    disk.refuses = lambda call, name: call == "open"
    log.flusher.flush_in_background(NOW_MS, log.active.base_offset)
    assert log.flusher.recovery_point == 0
    assert not log.flusher.is_under_way
    assert log.flusher.is_put_off
    disk.refuses = lambda call, name: False
    log.flusher.flush_in_background(NOW_MS)
    assert log.flusher.recovery_point == log.log_end_offset == 4


def test_a_failed_sync_is_not_tried_again_and_also_refuses_duplicates(tmp_path: Path, disk: RefusingFiles) -> None:
    log = open_log(tmp_path, config(flush_messages=1, flush_ms=1), disk)
    append(log, b"a", producer_id=7, sequence=0)
    disk.refuses = lambda call, name: call == "sync"
    assert log.flusher.flush_by_count(NOW_MS) == 1
    assert log.failure is not None

    def never(call: str, name: str) -> bool:
        raise AssertionError(f"{call} of {name}")

    disk.refuses = never
    assert not log.flusher.is_due(NOW_MS + 1000)
    log.flusher.flush_by_count(NOW_MS)
    with pytest.raises(StorageError):
        append(log, b"a", producer_id=7, sequence=0)


@pytest.mark.parametrize("call", ["rename", "sync"])
def test_a_partition_whose_deletion_is_refused_is_deleted_by_the_next_attempt(
    tmp_path: Path, disk: RefusingFiles, call: str
) -> None:
    manager = LogManager([tmp_path], broker_id=1, topic_config=lambda topic: SETTINGS, files=disk)
    manager.directories.claim("cluster")
    manager.load(NOW_MS)
    manager.create(PARTITION, b"a" * 16, NOW_MS)
    disk.refuses = lambda asked, name: asked == call
    with pytest.raises(StorageError, match=f"{PARTITION} could not be deleted"):
        manager.delete(PARTITION, NOW_MS)
    assert manager.get(PARTITION) is not None, "the controller must not take it for gone"
    disk.refuses = lambda asked, name: False
    manager.delete(PARTITION, NOW_MS)
    assert manager.get(PARTITION) is None
    assert manager.create(PARTITION, b"b" * 16, NOW_MS).topic_id == b"b" * 16
    manager.close(NOW_MS)
