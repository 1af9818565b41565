"""What a cleaning leaves of a log: the newest record of each key, and what readers, producers and transactions need."""

import os
from pathlib import Path

import pytest

from headrace.log.files import LocalFiles
from headrace.log.partition_log import PartitionLog
from headrace.offline.dump import dump
from headrace.records.codecs.compression import Codec
from headrace.records.format2.batch import Record, crc_is_valid, encode_batch
from headrace.records.format2.control import ABORT, COMMIT
from headrace.records.format2.header import DELETE_HORIZON_BIT
from headrace.records.legacy.message_set import encode_message_set
from tests.log.cleaning import (
    DAY_MS,
    Left,
    batches,
    clean,
    compacted,
    left,
    newest,
    open_compacted,
    put,
    put_each,
)
from tests.log.support import (
    NOW_MS,
    append_batch,
    append_marker,
    max_timestamp_offset,
    offset_for_time,
    open_log,
    read_all,
)

CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    return open_compacted(tmp_path / "flights-0", LocalFiles())


@pytest.mark.parametrize("codec", CODECS)
def test_the_newest_record_of_each_key_stays_at_its_offset(log: PartitionLog, codec: Codec) -> None:
    put(log, ("a", "1"), ("b", "1"), ("a", "2"), codec=codec)
    put(log, ("c", "1"), ("b", "2"), ("d", "x" * 100), codec=codec)
    clean(log)
    assert left(log) == [Left(2, "a", "2"), Left(3, "c", "1"), Left(4, "b", "2"), Left(5, "d", "x" * 100)]
    for header, batch in batches(log):
        assert crc_is_valid(batch, 0, header)
        assert header.codec is codec
    assert [(header.base_offset, header.last_offset) for header, _ in batches(log)] == [(0, 2), (3, 5)]


def test_a_batch_of_which_everything_stays_keeps_its_bytes(log: PartitionLog) -> None:
    put(log, ("a", "1"), ("b", "1"), codec=Codec.ZSTD)
    before = batches(log)
    clean(log)
    assert batches(log) == before


def test_what_lies_in_the_active_segment_is_not_cleaned_but_neither_hidden(log: PartitionLog) -> None:
    put_each(log, [("a", "1"), ("a", "2")])
    log.roll(NOW_MS)
    put_each(log, [("a", "3"), ("a", "4")])
    clean(log, roll=False)
    assert left(log) == [Left(1, "a", "2"), Left(2, "a", "3"), Left(3, "a", "4")]
    clean(log)
    assert left(log) == [Left(3, "a", "4")]


def test_a_cleaned_log_is_read_from_any_offset_and_by_time(log: PartitionLog) -> None:
    for number in range(200):
        put(log, (str(number % 7), f"{number} " * 10), now_ms=NOW_MS + number)
        if number % 40 == 39:
            log.roll(NOW_MS)
    clean(log)
    assert [record.offset for record in read_all(log)] == list(range(193, 200))
    assert log.log_start_offset == 0
    assert offset_for_time(log, NOW_MS, 200) == (193, NOW_MS + 193, 0)
    assert offset_for_time(log, NOW_MS + 196, 200) == (196, NOW_MS + 196, 0)


def test_appends_go_on_behind_a_cleaned_log_and_a_restart_finds_it(log: PartitionLog) -> None:
    put_each(log, [("a", "1"), ("a", "2"), ("b", "1")])
    clean(log)
    assert put(log, ("b", "2")).base_offset == 3
    log.close(NOW_MS)
    for was_clean in (True, False):
        again = open_log(log.directory, compacted(), was_clean=was_clean)
        assert left(again) == [Left(1, "a", "2"), Left(2, "b", "1"), Left(3, "b", "2")]
        assert again.log_end_offset == 4


def test_only_closed_segments_below_the_last_stable_offset_are_cleaned(log: PartitionLog) -> None:
    put_each(log, [("a", "1"), ("a", "2")])
    log.roll(NOW_MS)
    put(log, ("b", "1"), producer_id=7, sequence=0, is_transactional=True)
    put_each(log, [("b", "2"), ("b", "3")])
    clean(log)
    assert left(log) == [Left(1, "a", "2"), Left(2, "b", "1"), Left(3, "b", "2"), Left(4, "b", "3")]
    append_marker(log, COMMIT, 7)
    clean(log)
    assert [record for record in left(log) if record.key == "b"] == [Left(2, "b", "1"), Left(4, "b", "3")][1:]


# Tombstones


def test_a_tombstone_stays_for_delete_retention_after_its_first_cleaning(log: PartitionLog) -> None:
    put_each(log, [("a", "1"), ("b", "1"), ("a", None)])
    clean(log)
    assert left(log) == [Left(1, "b", "1"), Left(2, "a", None)]
    [header] = [header for header, _ in batches(log) if header.last_offset == 2]
    assert header.attributes & DELETE_HORIZON_BIT
    assert header.base_timestamp == NOW_MS + DAY_MS
    assert header.max_timestamp == NOW_MS
    assert [record.timestamp_ms for record in read_all(log)] == [NOW_MS, NOW_MS], "times are what they were"
    put(log, ("c", "1"))
    clean(log, NOW_MS + DAY_MS - 1)
    assert Left(2, "a", None) in left(log)
    [again] = [header for header, _ in batches(log) if header.last_offset == 2]
    assert again.base_timestamp == NOW_MS + DAY_MS, "the horizon does not move"
    put(log, ("c", "2"))
    clean(log, NOW_MS + DAY_MS)
    assert left(log) == [Left(1, "b", "1"), Left(4, "c", "2")]


@pytest.mark.parametrize("codec", CODECS)
def test_times_survive_the_delete_horizon(log: PartitionLog, codec: Codec) -> None:
    for times in ([0, 5, -7], [10**9, -(10**9), 3]):
        batch_times = [NOW_MS + each for each in times]
        rows = [Record(0, time, b"%d" % time, None if time % 2 else b"v") for time in batch_times]
        append_batch(log, encode_batch(rows, codec=codec))
    before = [(record.offset, record.timestamp_ms) for record in read_all(log)]
    clean(log)
    assert [(record.offset, record.timestamp_ms) for record in read_all(log)] == before
    assert all(header.attributes & DELETE_HORIZON_BIT for header, _ in batches(log))


def test_a_tombstone_of_an_impossible_time_stays_without_a_horizon(log: PartitionLog) -> None:
    put(log, ("a", None), now_ms=-(2**63))
    clean(log)
    [(header, _batch)] = batches(log)
    assert not header.attributes & DELETE_HORIZON_BIT
    assert left(log) == [Left(0, "a", None)]


def test_records_without_a_key_go(log: PartitionLog) -> None:
    put_each(log, [(None, "1"), ("a", "1"), (None, "2")])
    clean(log)
    assert left(log) == [Left(1, "a", "1")]


# Producers and transactions


def test_the_last_batch_of_a_producer_stays_though_empty_and_its_retry_is_known(log: PartitionLog) -> None:
    put(log, ("a", "1"), ("a", "2"), producer_id=7, sequence=0)
    put(log, ("a", "3"), ("a", "4"), producer_id=7, sequence=2)
    put(log, ("a", "5"))
    clean(log)
    assert left(log) == [Left(4, "a", "5")]
    [(header, batch), _] = batches(log)
    assert (header.base_offset, header.last_offset, header.record_count) == (2, 3, 0)
    assert (header.producer_id, header.base_sequence, header.last_sequence) == (7, 2, 3)
    assert crc_is_valid(batch, 0, header)
    for path in log.directory.glob("*.snapshot"):
        path.unlink()
    log = open_log(log.directory, compacted())
    assert put(log, ("a", "3"), ("a", "4"), producer_id=7, sequence=2).is_duplicate
    assert put(log, ("b", "1"), producer_id=7, sequence=4).base_offset == 5


def test_an_emptied_batch_has_no_time(log: PartitionLog) -> None:
    put(log, ("a", "1"), producer_id=7, sequence=0, now_ms=NOW_MS + 5000)
    put(log, ("a", "2"))
    clean(log)
    for again in (log, open_log(log.directory, compacted())):
        assert max_timestamp_offset(again) == (1, NOW_MS, 0)
        assert offset_for_time(again, NOW_MS + 1, 2) is None
        assert offset_for_time(again, NOW_MS, 2) == (1, NOW_MS, 0)
        log.close(NOW_MS)


def test_what_reminds_of_a_producer_goes_with_it(log: PartitionLog) -> None:
    put(log, ("a", "1"), producer_id=7, sequence=0)
    put(log, ("a", "2"))
    clean(log)
    assert len(batches(log)) == 2
    log.producers.expire(NOW_MS + DAY_MS, DAY_MS)
    put(log, ("a", "3"))
    clean(log)
    assert left(log) == [Left(2, "a", "3")]
    assert len(batches(log)) == 1


def transaction(log: PartitionLog, kind: int, *pairs: tuple[str, str], producer_id: int = 7, sequence: int = 0) -> None:
    for number, pair in enumerate(pairs):
        put(log, pair, producer_id=producer_id, sequence=sequence + number, is_transactional=True)
    append_marker(log, kind, producer_id)
    log.restore_high_watermark(log.log_end_offset)


def markers(log: PartitionLog) -> list[int]:
    return [header.base_offset for header, _ in batches(log) if header.is_control]


def test_records_of_an_aborted_transaction_go_and_supersede_nothing(log: PartitionLog) -> None:
    put(log, ("a", "1"))
    transaction(log, ABORT, ("a", "lost"), ("b", "lost"))
    transaction(log, COMMIT, ("b", "2"), sequence=2)
    clean(log)
    assert left(log) == [Left(0, "a", "1"), Left(4, "b", "2")]


def test_the_marker_of_an_aborted_transaction_outlives_its_records(log: PartitionLog) -> None:
    transaction(log, ABORT, ("a", "lost"))
    put(log, ("b", "1"), producer_id=7, sequence=1)  # so that nothing of the transaction reminds of its producer
    clean(log)
    assert markers(log) == [1]
    assert [each.last_offset for each in log.aborted_transactions(0, 3)] == [1], "readers are told until it is gone"
    put(log, ("c", "1"))
    clean(log, NOW_MS + 1)
    assert markers(log) == [1], "the first cleaning that finds no record of it sets the horizon"
    assert log.aborted_transactions(0, 4) == []
    put(log, ("c", "2"))
    clean(log, NOW_MS + 1 + DAY_MS)
    assert markers(log) == []
    assert not list(log.directory.glob("*.txnindex"))


def test_the_marker_of_a_committed_transaction_stays_while_a_record_of_it_does(log: PartitionLog) -> None:
    transaction(log, COMMIT, ("a", "1"))
    for number in range(3):
        put(log, ("x", str(number)), producer_id=7, sequence=1 + number)
        clean(log, NOW_MS + number * 2 * DAY_MS)
    assert markers(log) == [1]
    put(log, ("a", "2"))
    for number in range(3):
        put(log, ("x", str(number)))
        clean(log, NOW_MS + (10 + 2 * number) * DAY_MS)
    assert markers(log) == []


def test_the_marker_that_tells_a_producers_epoch_is_emptied_and_kept(log: PartitionLog) -> None:
    transaction(log, COMMIT, ("a", "1"))
    append_marker(log, ABORT, 7, epoch=1)  # fenced by its coordinator: the epoch is known from this marker alone
    put(log, ("a", "2"))
    for number in range(3):
        put(log, ("x", str(number)))
        clean(log, NOW_MS + 2 * number * DAY_MS)
    [header] = [header for header, _ in batches(log) if header.is_control]
    assert (header.base_offset, header.record_count, header.producer_epoch) == (2, 0, 1)
    assert not [row for row in dump(log.directory, deep=True) if row["kind"] == "damage"]
    log.close(NOW_MS)
    assert left(open_log(log.directory, compacted())) == left(log)


def test_a_transaction_whose_marker_lies_segments_behind_is_known_to_be_aborted(log: PartitionLog) -> None:
    put(log, ("a", "lost"), producer_id=7, sequence=0, is_transactional=True)
    for number in range(3):
        log.roll(NOW_MS)
        put(log, ("b", str(number)))
    append_marker(log, ABORT, 7)
    clean(log)
    assert left(log) == [Left(3, "b", "2")]


# Segments, memory, older formats


def test_small_segments_become_one_that_is_not_larger_than_a_segment(tmp_path: Path) -> None:
    log = open_compacted(tmp_path, LocalFiles(), segment_bytes=1000)
    for number in range(60):
        put(log, (str(number), "v" * 30))
    put_each(log, [(str(number), "w") for number in range(50)])
    clean(log)
    count = len(log.segments)
    put_each(log, [("x", "w")])
    clean(log)  # the first one made them small
    assert len(log.segments) <= (count + 1) // 2
    assert all(segment.size <= 1000 for segment in log.segments)
    assert len({segment.base_offset for segment in log.segments}) == len(log.segments)
    assert len(newest(left(log))) == 61
    assert sorted(path.name for path in tmp_path.glob("*.log")) == [f"{s.base_offset:020d}.log" for s in log.segments]


def test_a_log_with_more_keys_than_the_memory_holds_is_cleaned_in_several_turns(tmp_path: Path) -> None:
    log = open_compacted(tmp_path, LocalFiles(), segment_bytes=700)
    for number in range(150):
        put(log, (str(number % 40), str(number)))
    expected = newest(left(log))
    cleaner = clean(log, map_bytes_max=24 * 15)
    assert cleaner.numbers.logs_cleaned > 3
    assert newest(left(log)) == expected
    assert len(left(log)) < 100
    assert log.cleaned_to == log.active.base_offset


def test_a_segment_in_which_nothing_stays_is_empty_and_the_log_goes_on(tmp_path: Path) -> None:
    log = open_compacted(tmp_path, LocalFiles(), segment_bytes=80)
    put_each(log, [("a", str(number)) for number in range(4)])
    clean(log)
    put_each(log, [("b", "1")])
    assert log.log_start_offset == 0
    assert left(log) == [Left(3, "a", "3"), Left(4, "b", "1")]
    assert [record.offset for record in read_all(log)] == [3, 4]
    log.close(NOW_MS)
    again = open_log(tmp_path, compacted(segment_bytes=80), was_clean=True)
    assert [record.offset for record in read_all(again)] == [3, 4]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_messages_of_older_formats_are_cleaned_too(tmp_path: Path, magic: int, codec: Codec) -> None:
    rows = [(0, b"a", b"1"), (1, b"b", b"1"), (2, b"a", b"2"), (3, b"c", None), (4, b"b", b"2")]
    times = -1 if magic == 0 else NOW_MS
    records = [Record(offset, times, key, value) for offset, key, value in rows]
    data = encode_message_set(records[:3], magic=magic, codec=codec, base_offset=None)
    data += encode_message_set(records[3:], magic=magic, codec=codec, base_offset=None)
    (tmp_path / f"{0:020d}.log").write_bytes(data)
    log = open_log(tmp_path, compacted())
    assert log.log_end_offset == 5
    clean(log)
    expected = [Left(2, "a", "2"), Left(3, "c", None), Left(4, "b", "2")]
    assert left(log) == expected
    log.close(NOW_MS)
    assert left(open_log(tmp_path, compacted())) == expected


def test_tombstones_of_older_formats_go_by_the_age_of_their_segment(tmp_path: Path) -> None:
    rows = [Record(offset, NOW_MS, b"%d" % offset, None) for offset in range(3)]
    (tmp_path / f"{0:020d}.log").write_bytes(encode_message_set(rows, magic=1, base_offset=None))
    log = open_log(tmp_path, compacted(segment_bytes=200))
    clean(log)
    assert len(left(log)) == 3, "nothing had been clean before"
    written_s = NOW_MS // 1000
    os.utime(log.segments[0].path(".log"), (written_s - 3 * 86_400,) * 2)
    put(log, ("x", "v" * 100))
    log.roll(NOW_MS)
    os.utime(log.segments[1].path(".log"), (written_s,) * 2)
    clean(log)
    assert len(left(log)) == 4, "they are as old as the newest that was clean"
    put(log, ("x", "w" * 100))
    clean(log)
    assert left(log) == [Left(4, "x", "w" * 100)]
