"""A power failure that takes the end of a closed segment and leaves the segments behind it."""

import random
from pathlib import Path

import pytest

from headrace.log import appending
from headrace.log.filenames import LOG
from headrace.log.flusher import FlushWork
from headrace.log.partition_log import PartitionLog
from headrace.records.format2.batch import read_header
from tests.log.strict_disk import StrictDisk
from tests.log.support import Background, append, batch_of, config, open_log, read_all

DIRECTORY = Path("/data/flights-0")
SETTINGS = config(segment_bytes=400)


def unflushed_log(disk: StrictDisk, **more: object) -> PartitionLog:
    """A log of which nothing is flushed unless a test does it."""
    return open_log(DIRECTORY, SETTINGS, disk, scheduling=Background(waits=True).scheduling, **more)


def sync_names(disk: StrictDisk) -> None:
    for each in reversed(DIRECTORY.parents):
        disk.sync_directory(each)
    disk.sync_directory(DIRECTORY)


def values(log: PartitionLog) -> list[bytes]:
    return [record.value for record in read_all(log)]


def test_a_log_ends_where_a_closed_segment_lost_its_tail_at_a_batch_border() -> None:
    disk = StrictDisk()
    log = unflushed_log(disk)
    written = [b"value %d" % number for number in range(12)]
    for number, value in enumerate(written):
        append(log, value, epoch=number // 4, producer_id=7, sequence=number)
        if number == 2:
            log.segments[0].file.sync()
    first, second, *_ = log.segments
    assert first.base_offset == 0 and second.base_offset > 3, "the first segment goes on behind what was synced of it"
    for later in log.segments[1:]:
        later.file.sync()
    sync_names(disk)
    again = unflushed_log(disk.after_power_failure())
    assert values(again) == written[:3]
    assert again.log_end_offset == 3
    assert again.leader_epochs.latest == 0
    assert again.producers.entries[7].last_sequence == 2
    assert [segment.base_offset for segment in again.segments] == [0]
    append(again, b"next", epoch=3)
    assert values(again) == [*written[:3], b"next"]


def test_a_segment_that_lost_everything_ends_the_log_too() -> None:
    disk = StrictDisk()
    log = unflushed_log(disk)
    for number in range(12):
        append(log, b"value %d" % number)
    first, second, third, *_ = log.segments
    first.file.sync()
    third.file.sync()
    sync_names(disk)
    again = unflushed_log(disk.after_power_failure())
    assert again.log_end_offset == second.base_offset
    assert len(read_all(again)) == second.base_offset


@pytest.mark.parametrize("seed", range(40))
def test_whatever_the_disk_wrote_first_what_is_left_is_a_beginning_of_what_was_written(seed: int) -> None:
    chance = random.Random(seed)
    print(f"seed {seed}")
    disk = StrictDisk()
    log = unflushed_log(disk)
    pending: list[FlushWork] = []
    written, flushed = [], 0
    for number in range(60):
        written.append(b"value %d" % number)
        append(log, written[-1])
        if chance.random() < 0.4:
            chance.choice(log.segments).file.sync()
        if chance.random() < 0.1:
            sync_names(disk)
        if chance.random() < 0.1:
            pending.append(log.flusher.begin())
            if chance.random() < 0.5:
                work = pending.pop(0)
                log.flusher.finish(work, 0, work.try_run())
                flushed = log.flusher.recovery_point
    again = unflushed_log(disk.after_power_failure(), recovery_point=flushed)
    left = values(again)
    assert left == written[: len(left)]
    assert flushed <= len(left) == again.log_end_offset


def test_a_gap_below_the_recovery_point_is_compactions_and_stays() -> None:
    disk = StrictDisk()
    log = unflushed_log(disk)
    for number in range(12):
        append(log, b"value %d" % number)
    second = log.segments[1].base_offset
    log.flusher.flush(0)
    log.segments[0].truncate_to(1)  # as a cleaning leaves it, which syncs what it writes
    log.segments[0].close_for_appends()
    log.segments[0].file.sync()
    sync_names(disk)
    for more in ({"recovery_point": second}, {"cleaned_to": second}):
        again = unflushed_log(disk.after_power_failure(), **more)
        assert values(again) == [b"value 0", *[b"value %d" % number for number in range(second, 12)]]
    assert values(unflushed_log(disk.after_power_failure())) == [b"value 0"]


def replicate(log: PartitionLog, value: bytes, offset: int) -> None:
    """Append a batch that has its offset from the leader."""
    batch = batch_of(value)
    batch[:8] = offset.to_bytes(8, "big")
    assert read_header(batch).base_offset == offset
    appending.append_replicated(log, memoryview(batch), now_ms=0)


def test_a_follower_of_a_compacted_log_keeps_what_follows_a_gap_between_two_segments() -> None:
    disk = StrictDisk()
    log = unflushed_log(disk)
    offsets = [0, 1, 5, 9, 10, 40, 41, 70, 71]
    for offset in offsets:
        replicate(log, b"value", offset)
    assert [segment.base_offset for segment in log.segments] == [0, 11], "10 was the last offset, 40 the next one"
    for segment in log.segments:
        segment.file.sync()
    sync_names(disk)
    again = unflushed_log(disk.after_power_failure())
    assert [record.offset for record in read_all(again)] == offsets


def test_a_gap_that_does_not_fit_a_segment_is_no_lost_tail() -> None:
    disk = StrictDisk()
    log = unflushed_log(disk)
    far = (1 << 31) + 7
    for offset in (0, far, far + 1):
        replicate(log, b"value", offset)
    for segment in log.segments:
        segment.file.sync()
    sync_names(disk)
    again = unflushed_log(disk.after_power_failure())
    assert again.log_end_offset == far + 2
    assert disk.exists(DIRECTORY / f"{far:020d}{LOG}")
