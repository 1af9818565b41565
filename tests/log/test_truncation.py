"""A log that is cut: what it is at once, and what it takes once the disk has it."""

from pathlib import Path

import pytest

from headrace.errors import NotLeaderOrFollower, StorageError
from headrace.log import truncation, upkeep
from headrace.log.partition_log import PartitionLog
from tests.log.strict_disk import StrictDisk
from tests.log.support import NOW_MS, Background, Work, append, config, open_log, read_all

DIRECTORY = Path("/data/flights-0")
SETTINGS = config(segment_bytes=400)


@pytest.fixture
def disk() -> StrictDisk:
    return StrictDisk()


@pytest.fixture
def background() -> Background:
    return Background()


@pytest.fixture
def log(disk: StrictDisk, background: Background) -> PartitionLog:
    made = open_log(DIRECTORY, SETTINGS, disk, scheduling=background.scheduling)
    for number in range(12):
        append(made, b"value %d" % number, producer_id=7, sequence=number)
    return made


@pytest.fixture
def deferred(log: PartitionLog, background: Background) -> list[Work]:
    """What the log does in the background, not done yet."""
    background.waits = True
    return background.works


@pytest.mark.parametrize("offset", [1, 5, 7])
def test_the_disk_is_waited_for_in_the_background(
    disk: StrictDisk, log: PartitionLog, deferred: list[Work], offset: int
) -> None:
    truncation.truncate_to(log, offset, NOW_MS)
    assert (log.log_end_offset, log.is_truncating) == (offset, True)
    assert [record.value for record in read_all(log)] == [b"value %d" % number for number in range(offset)]
    with pytest.raises(NotLeaderOrFollower, match="is being truncated"):
        append(log, b"early", producer_id=7, sequence=offset)
    with pytest.raises(StorageError, match="is being truncated; try again"):
        truncation.truncate_to(log, 0, NOW_MS)
    [(work, done)] = deferred
    work()
    done(None)
    assert not log.is_truncating
    append(log, b"next", producer_id=7, sequence=offset)
    assert read_all(log)[-1].value == b"next"


def test_a_cut_is_on_the_disk_before_anything_is_written_behind_it(
    disk: StrictDisk, log: PartitionLog, deferred: list[Work]
) -> None:
    log.flusher.flush(NOW_MS)
    for each in reversed(DIRECTORY.parents):
        disk.sync_directory(each)
    truncation.truncate_to(log, 3, NOW_MS)
    [(work, done)] = deferred
    work()
    done(None)
    again = open_log(DIRECTORY, SETTINGS, disk.after_power_failure(), recovery_point=3)
    assert again.log_end_offset == 3
    assert again.producers.entries[7].last_sequence == 2


def test_a_cut_that_the_disk_refuses_ends_the_log(log: PartitionLog, deferred: list[Work]) -> None:
    truncation.truncate_to(log, 5, NOW_MS)
    [(_, done)] = deferred
    done(OSError(5, "no luck"))
    with pytest.raises(StorageError, match="could not be truncated"):
        append(log, b"next")


def test_retention_leaves_what_a_truncation_reads(log: PartitionLog, deferred: list[Work]) -> None:
    log.restore_high_watermark(12)
    truncation.truncate_to(log, 9, NOW_MS)
    assert upkeep.delete_records_before(log, 9, NOW_MS) == 9
    work, done = deferred[0]
    work()
    done(None)
    assert log.producers.entries[7].last_sequence == 8
    append(log, b"next", producer_id=7, sequence=9)
    assert upkeep.delete_below_start(log, NOW_MS, len(log.segments)) > 0
    assert [record.value for record in read_all(log)] == [b"next"]


def test_a_log_begun_anew_knows_no_producer_after_a_crash_either(log: PartitionLog, disk: StrictDisk) -> None:
    assert any(name.endswith(".snapshot") for name in disk.names(DIRECTORY))
    truncation.truncate_fully(log, 100, NOW_MS)
    assert open_log(DIRECTORY, SETTINGS, disk, log_start_offset=100).producers.entries == {}


def test_a_log_begun_anew_knows_no_producer(log: PartitionLog, deferred: list[Work]) -> None:
    truncation.truncate_fully(log, 100, NOW_MS)
    [(work, done)] = deferred
    work()
    done(None)
    assert (log.log_start_offset, log.log_end_offset, log.producers.entries) == (100, 100, {})
    assert append(log, b"next").base_offset == 100


def test_a_stop_while_a_truncation_waits_for_the_disk_is_not_clean(log: PartitionLog, deferred: list[Work]) -> None:
    truncation.truncate_to(log, 5, NOW_MS)
    with pytest.raises(StorageError, match="is being truncated; try again"):
        log.close(NOW_MS)
