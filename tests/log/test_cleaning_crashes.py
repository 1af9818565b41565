"""A crash at any moment of a cleaning: the log is then as before it, or as after it, never in between."""

import random
import shutil
from pathlib import Path

import pytest

from headrace.log.filenames import INDEX, LOG, TIME_INDEX
from headrace.log.files import LocalFiles, PathText
from headrace.log.partition_log import PartitionLog
from headrace.types import TopicPartition
from tests.log.cleaning import Left, clean, cleaner_of, compacted, left, newest, open_compacted, put, put_each
from tests.log.support import NOW_MS, SimulatedDisk, open_log

TEMPORARY = (".cleaned", ".swap", ".deleted")


def three_segments(directory: Path, files: LocalFiles | SimulatedDisk) -> PartitionLog:
    log = open_compacted(directory, files, segment_bytes=2000)
    for number in range(3):
        put_each(log, [(key, f"{number} " * 5) for key in "abcde"])
        log.roll(NOW_MS)
    put(log, ("e", "active"))
    log.flusher.flush(NOW_MS)
    return log


class Crash(BaseException):
    """The power is gone."""


class CrashingFiles(LocalFiles):
    """A disk whose power goes before the n-th change of a name."""

    def __init__(self) -> None:
        self.left: int | None = None

    def _count(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise Crash

    def rename(self, old: PathText, new: PathText) -> None:
        self._count()
        super().rename(old, new)

    def remove(self, path: PathText) -> None:
        if Path(path).exists():
            self._count()
        super().remove(path)


def changes_of_a_cleaning(tmp_path: Path) -> int:
    files = CrashingFiles()
    log = three_segments(tmp_path / "counting", files)
    files.left = 10**6
    clean(log, roll=False)
    return 10**6 - files.left


@pytest.mark.slow
def test_whatever_name_was_changed_last(tmp_path: Path) -> None:
    count = changes_of_a_cleaning(tmp_path)
    assert count > 12
    rows_before, seen = 0, set()
    for number in range(count):
        directory = tmp_path / str(number)
        files = CrashingFiles()
        log = three_segments(directory, files)
        before = left(log)
        rows_before = len(before)
        files.left = number
        with pytest.raises(Crash):
            clean(log, roll=False)
        crashed_again = tmp_path / f"{number}-again"
        shutil.copytree(directory, crashed_again)
        log = open_log(directory, compacted(), recovery_point=15)
        assert newest(left(log)) == newest(before)
        assert set(left(log)) <= set(before)
        assert log.log_end_offset == 16
        assert not [path.name for path in directory.iterdir() if path.name.endswith(TEMPORARY)]
        seen.add(len(left(log)))
        # and the power may go again while the first crash is cleared away
        for again in range(number % 4, 40, 4):
            twice = tmp_path / f"{number}-{again}"
            shutil.copytree(crashed_again, twice)
            files = CrashingFiles()
            files.left = again
            try:
                open_log(twice, compacted(), files, recovery_point=15)
            except Crash:
                assert newest(left(open_log(twice, compacted(), recovery_point=15))) == newest(before)
                shutil.rmtree(twice)
            else:
                shutil.rmtree(twice)
                break
    assert {rows_before, 6} <= seen, "crashes before and behind the point of no return"


@pytest.mark.parametrize("seed", range(40))
def test_whatever_the_disk_had_of_it(seed: int) -> None:
    """Names that were not synced may be lost, from the last on; unsynced bytes may be torn."""
    chance = random.Random(seed)
    disk = SimulatedDisk()
    directory = Path("/data/flights-0")
    log = three_segments(directory, disk)
    before = left(log)
    log.restore_high_watermark(log.log_end_offset)
    names_synced = disk.sync_directory
    disk.sync_directory = lambda path: None if chance.random() < 0.7 else names_synced(path)  # type: ignore[method-assign]
    cleaner_of(log).tick(NOW_MS)
    disk = disk.after_crash(chance)
    log = PartitionLog.open(
        directory, TopicPartition("flights", 0), compacted(), files=disk, now_ms=NOW_MS, recovery_point=15
    )
    assert newest(left(log)) == newest(before)
    assert set(left(log)) <= set(before)
    assert log.log_end_offset == 16


def test_a_swap_in_which_nothing_stayed_takes_its_old_files_along(tmp_path: Path) -> None:
    log = open_compacted(tmp_path, LocalFiles(), segment_bytes=100)
    put_each(log, [("a", "1"), ("a", "2"), ("a", "3")])
    log.close(NOW_MS)
    stale = tmp_path / f"{0:020d}.txnindex"
    stale.write_bytes(b"\0" * 34)
    for suffix in (LOG, INDEX, TIME_INDEX):
        (tmp_path / f"{0:020d}{suffix}.swap").write_bytes(b"")
    log = open_log(tmp_path, compacted(), cleaned_to=2)
    assert not stale.exists()
    assert left(log)[-1] == Left(2, "a", "3")


def test_a_cleaning_goes_on_after_the_disk_refused_a_name(tmp_path: Path) -> None:
    class Refusing(LocalFiles):
        refuses = False

        def rename(self, old: PathText, new: PathText) -> None:
            if self.refuses and Path(new).name.endswith(".timeindex.swap"):
                raise OSError("no luck")
            super().rename(old, new)

    files = Refusing()
    log = three_segments(tmp_path, files)
    before = left(log)
    files.refuses = True
    clean(log, roll=False)
    assert left(log) == before
    assert not [path.name for path in tmp_path.iterdir() if path.name.endswith(TEMPORARY)]
    files.refuses = False
    clean(log, roll=False)
    assert newest(left(log)) == newest(before)
    assert len(left(log)) == 6
