"""A flush that cannot open something has lost nothing: it is tried again, and until then nothing counts as flushed.

A sync that fails may have: see `test_refusing_disk` and `test_upkeep`."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.errors import StorageError
from headrace.log.files import PathText
from headrace.log.manager import LogManager
from headrace.log.shared_syncs import OpenRefused
from headrace.types import TopicPartition
from tests.log.strict_disk import StrictDisk
from tests.log.support import NOW_MS, Background, SimulatedFile, append, config, no_descriptors, open_log, read_all

DATA = Path("/srv/headrace/data")
PARTITION = TopicPartition("t", 0)
EVERY_RECORD = config(flush_acks=True, segment_bytes=600)


@pytest.mark.parametrize("epoch", [-1, 3], ids=["directory", "epochs"])
def test_a_flush_without_descriptors_is_put_off_and_fails_nothing(
    tmp_path: Path, epoch: int, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(tmp_path / "t-0")
    append(log, b"a", epoch=epoch)
    with no_descriptors():
        log.flusher.flush_in_background(NOW_MS)
        log.flusher.try_again(NOW_MS)
    assert (log.flusher.recovery_point, log.flusher.is_put_off, log.failure) == (0, True, None)
    refusals = [record for record in caplog.records if "a flush was refused" in record.getMessage()]
    assert len(refusals) == 1, "one line until it succeeds"
    log.flusher.try_again(NOW_MS)
    assert log.flusher.recovery_point == log.log_end_offset == 1
    append(log, b"c")
    log.close(NOW_MS)


class ScarceDisk(StrictDisk):
    """A strict disk that refuses one of the opens for a sync."""

    refused = -1

    def ask(self, path: PathText) -> None:
        self.refused -= 1
        if self.refused == -1:
            raise OpenRefused(errno.EMFILE, os.strerror(errno.EMFILE), str(path))

    def open_readonly(self, path: PathText) -> SimulatedFile:
        self.ask(path)
        return super().open_readonly(path)

    def sync_directory(self, path: PathText) -> None:
        self.ask(path)
        super().sync_directory(path)


def start(disk: StrictDisk) -> LogManager:
    manager = LogManager([DATA], broker_id=1, topic_config=lambda topic: EVERY_RECORD, files=disk)
    manager.directories.claim("cluster")
    manager.load(NOW_MS)
    return manager


@pytest.mark.parametrize("refused", range(12))
def test_what_is_flushed_after_a_refusal_survives_a_power_failure_with_all_that_it_needs(refused: int) -> None:
    disk = ScarceDisk()
    manager = start(disk)
    log = manager.create(PARTITION, b"i" * 16, NOW_MS)
    append(log, b"a", epoch=5)
    disk.refused = refused
    log.flusher.flush_by_count(NOW_MS)
    log.roll(NOW_MS)
    append(log, b"b", epoch=6)
    log.flusher.flush_by_count(NOW_MS)
    is_refused, disk.refused = disk.refused < 0, -1
    assert log.flusher.is_put_off == (log.flusher.recovery_point < 2)
    manager.tick(NOW_MS)
    assert log.flusher.recovery_point == 2
    assert not log.flusher.is_put_off
    kept = start(disk.after_power_failure()).get(PARTITION)
    assert kept is not None
    assert [record.value for record in read_all(kept)] == [b"a", b"b"]
    assert kept.leader_epochs.entries == [(5, 0), (6, 1)]
    assert disk.names_durable.keys() == disk.names_now.keys()
    for path in disk.names_now:
        if path.parent != DATA and "00000000000000000001" not in path.name:
            assert disk.names_durable[path].durable == bytes(disk.names_now[path].content), path
    assert is_refused or refused >= 4, "the later numbers are never reached"


def test_a_refused_flush_does_not_begin_again_before_the_tick() -> None:
    disk = ScarceDisk()
    manager = start(disk)
    log = manager.create(PARTITION, None, NOW_MS)
    disk.refused = 0
    append(log, b"a")
    assert log.flusher.flush_by_count(NOW_MS) == 1
    for _ in range(3):
        assert log.flusher.flush_by_count(NOW_MS) == 1, "the producer waits"
        assert log.flusher.recovery_point == 0
    manager.tick(NOW_MS)
    assert log.flusher.flush_by_count(NOW_MS) == 0
    assert log.flusher.recovery_point == 1


def test_a_log_without_flushes_by_count_is_tried_again_by_the_tick_too(tmp_path: Path) -> None:
    manager = LogManager([tmp_path], broker_id=1, topic_config=lambda topic: config())
    manager.directories.claim("cluster")
    manager.load(NOW_MS)
    log = manager.create(PARTITION, None, NOW_MS)
    append(log, b"a")
    with no_descriptors():
        log.flusher.flush_in_background(NOW_MS)
    assert (log.flusher.recovery_point, log.failure) == (0, None)
    manager.tick(NOW_MS)
    assert log.flusher.recovery_point == 1
    manager.close(NOW_MS)


def test_a_stop_whose_flush_is_refused_is_not_clean(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    append(log, b"a")
    work = log.begin_close()
    assert work is not None
    with no_descriptors():
        error = work.try_run()
    with pytest.raises(StorageError, match=r"flights-0 could not be flushed.*Too many open files"):
        log.finish_close(work, NOW_MS, error)
    assert log.flusher.recovery_point == 0


def test_what_a_flush_of_the_old_directory_could_not_open_is_not_looked_for_after_a_move(tmp_path: Path) -> None:
    background = Background(waits=True)
    log = open_log(tmp_path / "t-0", scheduling=background.scheduling)
    append(log, b"a", epoch=2)
    work = log.flusher.begin()
    log.renamed(tmp_path / "moved-0")
    log.flusher.relocated(0)
    log.flusher.finish(work, NOW_MS, OpenRefused(errno.EMFILE, "no", "x"))
    assert log.failure is None
    again = log.flusher.begin()
    assert not [path for path in (*again.paths, *again.directories) if str(tmp_path / "t-0") in path]


def test_a_flush_that_was_wanted_meanwhile_waits_for_the_one_that_is_put_off(tmp_path: Path) -> None:
    background = Background(waits=True)
    log = open_log(tmp_path / "t-0", scheduling=background.scheduling)
    append(log, b"a")
    log.flusher.flush_in_background(NOW_MS)
    append(log, b"b")
    log.flusher.flush_in_background(NOW_MS)
    _, done = background.works.pop()
    done(OpenRefused(errno.EMFILE, "no", "x"))
    assert not background.works
    assert (log.flusher.recovery_point, log.flusher.is_under_way, log.flusher.is_put_off) == (0, False, True)
    log.flusher.try_again(NOW_MS)
    background.run_all()
    assert (log.flusher.recovery_point, log.flusher.is_put_off) == (2, False)


def test_a_sync_that_fails_after_a_refused_flush_fails_the_log(tmp_path: Path) -> None:
    background = Background(waits=True)
    log = open_log(tmp_path / "t-0", scheduling=background.scheduling)
    append(log, b"a")
    failures: list[Callable[[], OSError]] = [
        lambda: OpenRefused(errno.EMFILE, "no", "x"),
        lambda: OSError(errno.EIO, "Input/output error"),
    ]
    for failure in failures:
        log.flusher.flush_in_background(NOW_MS)
        _, done = background.works.pop()
        done(failure())
    assert log.failure is not None and "Input/output error" in log.failure
    log.flusher.try_again(NOW_MS)
    assert not background.works
    assert log.flusher.recovery_point == 0
