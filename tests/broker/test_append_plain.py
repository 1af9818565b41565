"""The shortest way of a produce leaves a log, its indexes and its producers as the general append does.

Two logs take the same random batches, one of them through `append_plain` where that takes them. Rolls, index entries,
idempotent producers with gaps and repetitions, wrapping sequences, truncations and failing disks come in between.
"""

import errno
import os
import random
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.config import TopicConfig
from headrace.errors import KafkaError
from headrace.log import appending, truncation
from headrace.log.append_state import NOT_APPENDED, LateWrites
from headrace.log.files import DiskFile, LocalFiles, PathText
from headrace.log.partition_log import PartitionLog
from headrace.log.watched_files import DirectoryWatch, WatchedFiles
from headrace.records.codecs.compression import Codec
from headrace.records.format2.batch import Record, encode_batch
from headrace.records.format2.header import iter_headers, read_header, set_base_offset
from headrace.records.format2.plain_batch import BATCH_FIELDS, is_plain
from headrace.records.format2.validation import check_produced
from headrace.types import TopicPartition
from tests.broker.refusing_disk import refusing

NOW_MS = 1_700_000_000_000
SEQUENCES = 1 << 31


def opened(directory: Path, config: TopicConfig) -> PartitionLog:
    files = WatchedFiles(LocalFiles(), DirectoryWatch(LocalFiles(), [directory]))
    log = PartitionLog.open(directory / "t-0", TopicPartition("t", 0), config, files=files, now_ms=NOW_MS)
    log.leader_epochs.assign(3, 0)
    return log


def appended_plainly(log: PartitionLog, batch: memoryview, now_ms: int) -> int:
    """What the shortest way does after the look-up of the partition."""
    found = memoryview(bytearray(8 * BATCH_FIELDS)).cast("q")
    if not is_plain(batch, 0, len(batch), log.batch_bytes_max, log.keys_required, True, found):
        return NOT_APPENDED
    count, max_timestamp, producer_id, epoch, sequence = found
    return log.append_plain(batch, 0, len(batch), 3, now_ms, count, max_timestamp, producer_id, epoch, sequence)


def appended_generally(log: PartitionLog, batch: memoryview, now_ms: int) -> tuple[object, ...]:
    """By what there is for batches that `append_plain` does not take."""
    header = check_produced(batch, max_message_bytes=log.config.max_message_bytes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(appending, "_has_nothing_special", lambda _: False)
        try:
            return appending.append(log, batch, header, leader_epoch=3, now_ms=now_ms)
        except KafkaError as error:
            return (error.code,)


def state_of(log: PartitionLog) -> dict[str, Any]:
    return {
        "end": (log.log_end_offset, log.producers.end_offset, log.active.size, log.active.base_offset),
        "first": log.active.first_timestamp_ms,
        "largest": log.active.largest,
        "unindexed": (log.active.indexes.unindexed_bytes, log.active.indexes.is_full),
        "offset index": (log.active.indexes.offset_index.keys, log.active.indexes.offset_index.values),
        "time index": (log.active.indexes.time_index.keys, log.active.indexes.time_index.values),
        "recent": (log.segments.recent.offsets, log.segments.recent.positions),
        "producers": {
            each.producer_id: (each.epoch, each.seen_ms, each.open_since, each.batches)
            for each in log.producers.entries.values()
        },
        "files": {
            path.name: path.read_bytes()
            for path in sorted(log.directory.iterdir())
            if path.suffix in (".log", ".snapshot")
        },
    }


@pytest.mark.parametrize("seed", range(6))
def test_both_appends_leave_the_same_log(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    config = TopicConfig(segment_bytes=20_000, index_interval_bytes=1_000, segment_ms=500_000)
    one, other = opened(tmp_path / "one", config), opened(tmp_path / "other", config)
    next_sequence = {7: 0, 8: SEQUENCES - 5, -1: -1}
    taken, now_ms = 0, NOW_MS
    for _ in range(250):
        now_ms += chance.randrange(2_000)
        producer = chance.choice((-1, 7, 8))
        count = chance.choice((1, 1, 2, 9))
        sequence = next_sequence[producer]
        if producer >= 0 and chance.random() < 0.2:
            sequence = (sequence - chance.randrange(6)) % SEQUENCES
        records = [
            Record(i, now_ms - chance.randrange(5_000), None, bytes(chance.randrange(300)), ()) for i in range(count)
        ]
        batch = encode_batch(
            records, producer_id=producer, producer_epoch=0 if producer >= 0 else -1, base_sequence=sequence
        )
        before = state_of(one) if chance.random() < 0.1 else None
        base_offset = appended_plainly(one, memoryview(bytearray(batch)), now_ms)
        if base_offset == NOT_APPENDED:
            assert before is None or state_of(one) == before
            mine = appended_generally(one, memoryview(bytearray(batch)), now_ms)
        else:
            taken += 1
            mine = (base_offset, base_offset + count - 1, -1, one.log_start_offset, False)
        assert mine == appended_generally(other, memoryview(bytearray(batch)), now_ms)
        if len(mine) > 1 and not mine[-1] and producer >= 0:
            next_sequence[producer] = (sequence + count) % SEQUENCES
        if chance.random() < 0.02:
            for log in (one, other):
                truncation.truncate_to(log, log.log_end_offset - 1, now_ms)
            next_sequence = {7: 0, 8: 0, -1: -1} | {
                each.producer_id: (each.last_sequence + 1) % SEQUENCES for each in one.producers.entries.values()
            }
        assert state_of(one) == state_of(other)
    assert taken > 100, "append_plain took next to nothing"


def in_runs(log: PartitionLog, piece: memoryview, limit: int) -> Iterator[int]:
    """Appends as a follower does; yields the number of batches of each run, 0 for a batch that none began with."""
    at = 0
    while at < len(piece):
        end = log.append_run(piece, at, len(piece), limit, NOW_MS)
        sizes = [header.size_bytes for _, header in iter_headers(bytes(piece[at:end]))]
        assert sum(sizes) == end - at, "a batch was cut"
        assert not sizes or sum(sizes[:-1]) < limit
        if not sizes:
            end = at + read_header(piece, at).size_bytes
            appending.append_replicated(log, piece[at:end], now_ms=NOW_MS)
        yield len(sizes)
        at = end


@pytest.mark.parametrize("seed", range(6))
def test_a_follower_has_the_leaders_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Batches of all kinds, taken over in pieces: by one follower batch by batch in the short way, by another without
    it, by a third in runs."""
    chance = random.Random(seed)
    index_bytes = chance.choice((96, 10 << 20))
    config = TopicConfig(segment_bytes=20_000, index_interval_bytes=1_000, segment_index_bytes=index_bytes)
    leader, one, other, third = (opened(tmp_path / name, config) for name in ("leader", "one", "other", "third"))
    sequences = {7: 0, 8: 0}
    for step in range(120):
        producer, count = chance.choice((-1, 7, 8)), chance.choice((1, 3))
        records = [Record(i, NOW_MS + step, b"k", bytes(chance.randrange(200)), ()) for i in range(count)]
        sequence = sequences.get(producer, -1)
        codec = chance.choice((Codec.NONE, Codec.NONE, Codec.GZIP))
        batch = encode_batch(
            records,
            codec=codec,
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=sequence,
        )
        appended_generally(leader, memoryview(batch), NOW_MS)
        if producer >= 0:
            sequences[producer] += count
    content = b"".join(segment.file.read(segment.size, 0) for segment in leader.segments)
    bounds = [position for position, _ in iter_headers(content) if chance.random() < 0.2]
    pieces = [bytearray(content[a:b]) for a, b in zip([0, *bounds], [*bounds, len(content)], strict=True)]
    for piece in pieces:
        assert appending.append_replicated(one, memoryview(piece), now_ms=NOW_MS) == one.log_end_offset
    longest = 0
    for piece in pieces:
        limit = chance.choice((1, 1_000, 1 << 20))
        for run in in_runs(third, memoryview(bytes(piece)), limit):
            longest = max(longest, run)
    assert longest > 3, "no run was taken"
    monkeypatch.setattr(appending, "_has_nothing_special", lambda _: False)
    for piece in pieces:
        appending.append_replicated(other, memoryview(bytes(piece)), now_ms=NOW_MS)
    assert state_of(one) == state_of(other) == state_of(third)
    assert one.log_end_offset == leader.log_end_offset
    assert b"".join(segment.file.read(segment.size, 0) for segment in one.segments) == content


def test_a_failed_write_changes_nothing_and_is_reported_by_the_general_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(tmp_path, TopicConfig())
    batch = encode_batch([Record(0, NOW_MS, None, b"x", ())])
    appended_generally(log, memoryview(bytearray(batch)), NOW_MS)
    log.active.records.plain_fd = log.active.file.fd
    assert appended_plainly(log, memoryview(bytearray(batch)), NOW_MS) == 1
    read_only = DiskFile(tmp_path / "read-only", os.O_CREAT | os.O_RDONLY)
    log.active.records.plain_fd = read_only.fd
    before = state_of(log)
    assert appended_plainly(log, memoryview(bytearray(batch)), NOW_MS) == NOT_APPENDED
    assert state_of(log) == before

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(log.active.file, "_file", SimpleNamespace(write=full, truncate=lambda _: None))
    assert len(appended_generally(log, memoryview(bytearray(batch)), NOW_MS)) == 1
    assert state_of(log) == before


def test_a_file_that_is_not_the_real_disks_is_written_by_its_own_method(tmp_path: Path) -> None:
    class SlowFile(DiskFile):
        """A file with a way of its own to write."""

    class SlowFiles(LocalFiles):
        def open(self, path: PathText, *, create: bool = False) -> DiskFile:
            return SlowFile(path, os.O_RDWR | os.O_CREAT if create else os.O_RDWR)

    log = PartitionLog.open(tmp_path / "t-0", TopicPartition("t", 0), TopicConfig(), files=SlowFiles(), now_ms=NOW_MS)
    log.leader_epochs.assign(3, 0)
    batch = encode_batch([Record(0, NOW_MS, None, b"x", ())])
    appended_generally(log, memoryview(bytearray(batch)), NOW_MS)
    assert appended_plainly(log, memoryview(bytearray(batch)), NOW_MS) == NOT_APPENDED


@pytest.mark.parametrize("attribute", ["failure", "is_truncating"])
def test_a_log_that_refuses_appends_is_left_alone(tmp_path: Path, attribute: str) -> None:
    log = opened(tmp_path, TopicConfig())
    batch = encode_batch([Record(0, NOW_MS, None, b"x", ())])
    appended_generally(log, memoryview(bytearray(batch)), NOW_MS)
    setattr(log, attribute, "broken" if attribute == "failure" else True)
    assert appended_plainly(log, memoryview(bytearray(batch)), NOW_MS) == NOT_APPENDED
    assert read_header(log.active.file.read(log.active.size, 0)).size_bytes == log.active.size


def run_of(log: PartitionLog, count: int) -> bytearray:
    """Batches that follow a log's end, with its epoch."""
    run = bytearray()
    for number in range(count):
        batch = memoryview(encode_batch([Record(0, NOW_MS, None, bytes(100), ())]))
        set_base_offset(batch, log.log_end_offset + number, 3)
        run += batch
    return run


def test_a_run_ends_before_a_batch_that_is_damaged_cut_off_out_of_order_or_of_another_epoch(tmp_path: Path) -> None:
    log = opened(tmp_path, TopicConfig())
    appended_generally(log, memoryview(encode_batch([Record(0, NOW_MS, None, b"", ())])), NOW_MS)
    size = len(run_of(log, 1))

    def damaged(run: bytearray, at: int) -> bytearray:
        run[size + at] ^= 1
        return run

    for at in (3, 7, 11, 15, 16, 20, 22, 26, 38, 60, size - 1):  # a bit of each field, and of the record
        before = state_of(log)
        end = log.append_run(memoryview(damaged(run_of(log, 3), at)), 0, 3 * size, 1 << 20, NOW_MS)
        assert end == size, at
        truncation.truncate_to(log, before["end"][0], NOW_MS)
    for cut in (1, size - 1, size - 60):
        assert log.active.largest.offset < log.log_end_offset  # found again after a truncation
        assert log.append_run(memoryview(run_of(log, 2)[:-cut]), 0, 2 * size - cut, 1 << 20, NOW_MS) == size
    assert log.append_run(memoryview(run_of(log, 2)), 0, 0, 1 << 20, NOW_MS) == 0


def test_a_run_that_cannot_be_written_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = opened(tmp_path, TopicConfig())
    appended_generally(log, memoryview(encode_batch([Record(0, NOW_MS, None, b"", ())])), NOW_MS)
    before, run = state_of(log), run_of(log, 3)
    fd, log.active.records.plain_fd = log.active.records.plain_fd, os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        assert log.append_run(memoryview(run), 0, len(run), 1 << 20, NOW_MS) == 0
    finally:
        os.close(log.active.records.plain_fd)
        log.active.records.plain_fd = fd
    assert state_of(log) == before
    log.fail("it is broken")
    assert log.append_run(memoryview(run), 0, len(run), 1 << 20, NOW_MS) == 0


def drawn_batch(chance: random.Random, next_sequence: dict[int, int]) -> memoryview:
    """A batch that follows what its producer has sent."""
    producer, count = chance.choice(list(next_sequence)), chance.choice((1, 1, 3))
    records = [Record(i, NOW_MS + chance.randrange(99), None, bytes(chance.randrange(300)), ()) for i in range(count)]
    sequence = next_sequence[producer]
    if producer >= 0:
        next_sequence[producer] = (sequence + count) % SEQUENCES
    epoch = 0 if producer >= 0 else -1
    return memoryview(
        bytearray(encode_batch(records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence))
    )


def appended_late(log: PartitionLog, late: LateWrites, batch: memoryview) -> int:
    found = memoryview(bytearray(8 * BATCH_FIELDS)).cast("q")
    assert is_plain(batch, 0, len(batch), log.batch_bytes_max, log.keys_required, True, found)
    count, max_timestamp, producer_id, epoch, sequence = found
    return log.append_plain(batch, 0, len(batch), 3, NOW_MS, count, max_timestamp, producer_id, epoch, sequence, late)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_written_late_leaves_the_same_logs(tmp_path: Path, seed: int) -> None:
    chance, late = random.Random(seed), LateWrites()
    config = TopicConfig(segment_bytes=30_000, index_interval_bytes=1_000)
    at_once = [opened(tmp_path / f"once-{n}", config) for n in range(3)]
    put_off = [opened(tmp_path / f"late-{n}", config) for n in range(3)]
    sequences = [{7: 0, 8: SEQUENCES - 5, -1: -1} for _ in at_once]
    most = 0
    for _ in range(400):
        number = chance.randrange(3)
        batch = drawn_batch(chance, sequences[number])
        assert late.has_room(len(batch), 1)
        base_offset = appended_late(put_off[number], late, memoryview(bytearray(batch)))
        if base_offset == NOT_APPENDED or chance.random() < 0.1:
            assert late.write() == 0
        if base_offset == NOT_APPENDED:
            appended_generally(put_off[number], memoryview(bytearray(batch)), NOW_MS)
        else:
            most = max(most, late.last_slot)
        appended_generally(at_once[number], batch, NOW_MS)
    assert late.write() == 0
    assert most == 2
    for one, other in zip(at_once, put_off, strict=True):
        assert state_of(one) == state_of(other)


@pytest.mark.parametrize("seed", range(3))
def test_what_the_disk_refuses_late_was_never_appended(tmp_path: Path, seed: int) -> None:
    chance, late = random.Random(seed), LateWrites()
    config = TopicConfig(index_interval_bytes=500)
    logs = [opened(tmp_path / f"late-{n}", config) for n in range(3)]
    twin = opened(tmp_path / "twin", config)
    sequences: list[dict[int, int]] = [{7: 0, -1: -1} for _ in logs]
    for log, known in zip(logs, sequences, strict=True):
        for _ in range(9):
            batch = drawn_batch(chance, known)
            if log is logs[1]:
                appended_generally(twin, memoryview(bytearray(batch)), NOW_MS)
            appended_generally(log, batch, NOW_MS)
    before, known_before = deepcopy(state_of(logs[1])), dict(sequences[1])
    ends, size, records = [log.log_end_offset for log in logs], 0, 0
    for number in (0, 1, 2, 1, 1, 0, 1, 1, 1, 1, 1):
        batch = drawn_batch(chance, sequences[number])
        if number == 1:
            size, records = size + len(batch), records + read_header(batch).record_count
        assert appended_late(logs[number], late, batch) >= ends[number]
    with refusing(logs[1]) as refuses:
        assert late.write() == 1 << 1, "only the second one has the disk that is full"
    assert refuses.writes == 1
    (refused,) = late.refused.values()
    assert (refused.batches, refused.records, refused.size) == (8, records, size)
    assert refused.end_offset == ends[1]
    assert "No space" in str(refused.error)
    assert refused.error.__traceback__ is None, "it keeps the log"
    after = state_of(logs[1])
    assert after.pop("recent") != before.pop("recent"), "the index is asked instead"
    assert after == before
    assert [log.log_end_offset > end for log, end in zip(logs, ends, strict=True)] == [True, False, True]
    assert [log.writes_at_once for log in logs] == [False, True, False]
    for number in range(9):  # it goes on
        batch = drawn_batch(chance, known_before)
        if number == 4:
            assert appended_plainly(logs[1], memoryview(bytearray(batch)), NOW_MS) > 0
            assert not logs[1].writes_at_once, "the disk has taken one"
        elif number > 4:
            assert appended_late(logs[1], late, memoryview(bytearray(batch))) > 0
            assert late.write() == 0
            assert not late.refused
        else:
            appended_generally(logs[1], memoryview(bytearray(batch)), NOW_MS)
            assert logs[1].writes_at_once
        appended_generally(twin, memoryview(bytearray(batch)), NOW_MS)
    one, other = state_of(logs[1]), state_of(twin)
    del one["recent"], other["recent"]
    assert one == other


def test_what_a_disk_has_taken_of_a_refused_late_write_is_not_found_after_a_crash(tmp_path: Path) -> None:
    late, config = LateWrites(), TopicConfig()
    log = opened(tmp_path, config)
    batches = [memoryview(bytearray(encode_batch([Record(0, NOW_MS, None, b"x", ())]))) for _ in range(4)]
    appended_generally(log, batches[0], NOW_MS)
    end, size = log.log_end_offset, log.active.records.size
    for batch in batches[1:]:
        assert appended_late(log, late, batch) >= end
    taken = b"".join(batches[1:])[:-10]  # two batches, and most of a third one
    os.pwrite(log.active.records.plain_fd, taken, size)
    with refusing(log):
        assert late.write() == 1
    assert log.active.records.file.size() == size
    assert opened(tmp_path, config).log_end_offset == end


def test_a_late_write_that_fails_once_is_made_again(tmp_path: Path) -> None:
    late, log = LateWrites(), opened(tmp_path, TopicConfig())
    batches = [memoryview(bytearray(encode_batch([Record(0, NOW_MS, None, b"x", ())]))) for _ in range(4)]
    appended_generally(log, batches[0], NOW_MS)
    for batch in batches[1:]:
        assert appended_late(log, late, batch) > 0
    full, plain_fd = os.open("/dev/full", os.O_WRONLY), log.active.records.plain_fd
    log.active.records.plain_fd = full
    assert late.write() == 0
    log.active.records.plain_fd = plain_fd
    os.close(full)
    assert not log.writes_at_once
    assert log.active.records.file.size() == log.active.size
    assert [header.base_offset for _, header in log.active.headers()] == [0, 1, 2, 3]


def test_a_late_write_that_fails_with_the_disk_is_reported_as_any_other(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").touch()
    watch = DirectoryWatch(LocalFiles(), [tmp_path])
    files = WatchedFiles(LocalFiles(), watch)
    late, batch = LateWrites(), encode_batch([Record(0, NOW_MS, None, b"x", ())])
    log = PartitionLog.open(tmp_path / "t-0", TopicPartition("t", 0), TopicConfig(), files=files, now_ms=NOW_MS)
    log.leader_epochs.assign(3, 0)
    appended_generally(log, memoryview(bytearray(batch)), NOW_MS)
    for code, failed in ((errno.ENOSPC, []), (errno.EIO, [tmp_path])):
        assert appended_late(log, late, memoryview(bytearray(batch))) == 1
        with refusing(log, code):
            assert late.write() == 1
        assert list(watch.failed) == failed, watch.failed


def test_what_cannot_be_taken_back_ends_its_log_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    late, logs = LateWrites(), [opened(tmp_path / f"late-{n}", TopicConfig()) for n in range(2)]
    batch = encode_batch([Record(0, NOW_MS, None, b"x", ())])
    for log in logs:
        appended_generally(log, memoryview(bytearray(batch)), NOW_MS)
        assert appended_late(log, late, memoryview(bytearray(batch))) == 1

    def fail(_: PartitionLog) -> None:
        raise MemoryError

    monkeypatch.setattr(PartitionLog, "forget_positions", fail)
    with refusing(logs[0]), refusing(logs[1]):
        assert late.write() == 0b11
    monkeypatch.undo()
    for log in logs:
        assert "MemoryError" in (log.failure or "")
        assert appended_late(log, late, memoryview(bytearray(batch))) == NOT_APPENDED
    other = opened(tmp_path / "other", TopicConfig())
    appended_generally(other, memoryview(bytearray(batch)), NOW_MS)
    assert appended_late(other, late, memoryview(bytearray(batch))) == 1
    assert (late.write(), other.failure, late.refused) == (0, None, {})
    assert other.active.records.file.size() == 2 * len(batch)


@pytest.mark.parametrize("number", [31, 35])
def test_a_late_write_that_fails_is_taken_back_from_its_own_log_out_of_many(tmp_path: Path, number: int) -> None:
    late, config = LateWrites(), TopicConfig()
    logs = [opened(tmp_path / f"late-{n}", config) for n in range(40)]
    batch = encode_batch([Record(0, NOW_MS, None, b"x", ())])
    for log in logs:
        appended_generally(log, memoryview(bytearray(batch)), NOW_MS)
        assert appended_late(log, late, memoryview(bytearray(batch))) == 1
    with refusing(logs[number]):
        assert late.write() == 1 << number
    assert [n for n, log in enumerate(logs) if log.log_end_offset != 2] == [number]
