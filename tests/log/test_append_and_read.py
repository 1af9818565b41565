"""Appending batches and reading them back as ranges of a file."""

import gc
import os
from pathlib import Path

import pytest

from headrace.errors import ErrorCode, KafkaError, OffsetOutOfRange
from headrace.log import appending, upkeep
from headrace.log.segment.time_lookup import segment_offsets
from headrace.records.codecs.compression import Codec
from headrace.records.format2.batch import iter_headers, read_header
from tests.log.support import (
    NOW_MS,
    append,
    append_batch,
    batch_of,
    config,
    fetch,
    max_timestamp_offset,
    offset_for_time,
    open_log,
    purge,
    read_all,
)

KILOBYTE = b"x" * 1024


def test_a_batch_gets_its_offsets_and_epoch_in_place_and_keeps_its_crc(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, b"a", b"b")
    batch = batch_of(b"c", b"d", b"e")
    crc = read_header(batch).crc
    result = append_batch(log, batch, epoch=7)
    assert (result.base_offset, result.last_offset, result.log_append_time_ms) == (2, 4, -1)
    assert (tmp_path / "00000000000000000000.log").read_bytes().endswith(batch)
    assert read_header(batch)[:5] == (2, len(batch) - 12, 7, 2, crc)


def test_log_append_time_stamps_the_batch(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(message_timestamp_type="LogAppendTime"))
    assert append(log, b"a", b"b", now_ms=NOW_MS + 5).log_append_time_ms == NOW_MS + 5
    assert [record.timestamp_ms for record in read_all(log)] == [NOW_MS + 5] * 2


def test_a_fetch_of_3500_bytes_gives_three_batches_and_a_torn_fourth_then_the_rest(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for _ in range(5):
        append(log, KILOBYTE)
    first = fetch(log, 0, 3500)
    assert len(first) == 3500
    assert [header.base_offset for _, header in iter_headers(first)] == [0, 1, 2]
    rest = fetch(log, 3, 3500)
    assert [header.base_offset for _, header in iter_headers(rest)] == [3, 4]
    assert len(rest) == log.size_bytes * 2 // 5


def test_a_fetch_of_10_bytes_gives_the_whole_batch_that_holds_the_offset(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, KILOBYTE, KILOBYTE * 2)
    assert len(fetch(log, 0, 10)) == log.size_bytes
    assert fetch(log, 1, 10) == fetch(log, 0, 10)


def test_without_at_least_one_a_batch_that_does_not_fit_does_not_come(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, KILOBYTE)
    assert fetch(log, 0, 10, at_least_one=False) == b""
    assert len(fetch(log, 0, log.size_bytes, at_least_one=False)) == log.size_bytes


def test_nothing_is_read_at_the_end_or_past_the_given_end(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, b"a", b"b")
    append(log, b"c")
    assert fetch(log, 3) == b""
    assert log.read(2, 1000, end_offset=2, at_least_one=True).size == 0
    only_first = log.read_bytes(log.read(0, 1000, end_offset=2, at_least_one=True))
    assert [header.last_offset for _, header in iter_headers(only_first)] == [1]


@pytest.mark.parametrize("offset", [-1, 4, 10**15])
def test_an_offset_outside_the_log_is_out_of_range(tmp_path: Path, offset: int) -> None:
    log = open_log(tmp_path)
    append(log, b"a", b"b", b"c")
    with pytest.raises(OffsetOutOfRange):
        fetch(log, offset)


def test_a_read_stays_in_one_segment_and_the_next_one_goes_on(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, b"a")
    log.roll(NOW_MS)
    append(log, b"b")
    assert [header.base_offset for _, header in iter_headers(fetch(log, 0))] == [0]
    assert [header.base_offset for _, header in iter_headers(fetch(log, 1))] == [1]


@pytest.mark.parametrize("rolls", [True, False], ids=["between segments", "in a segment"])
def test_reads_skip_a_gap_that_compaction_left(tmp_path: Path, rolls: bool) -> None:
    log = open_log(tmp_path)
    for base_offset in (0, 10, 20):
        batch = batch_of(b"kept")
        batch[:8] = base_offset.to_bytes(8, "big")
        assert appending.append_replicated(log, memoryview(batch), now_ms=NOW_MS) == base_offset + 1
        if rolls:
            log.roll(NOW_MS)
    for each in (log, open_log(tmp_path)):
        assert [record.offset for record in read_all(each)] == [0, 10, 20]
        assert [header.base_offset for _, header in iter_headers(fetch(each, 5, max_bytes=10))] == [10]


def test_a_follower_refuses_batches_that_go_back(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, b"a", b"b")
    with pytest.raises(OffsetOutOfRange):
        appending.append_replicated(log, memoryview(batch_of(b"x")), now_ms=NOW_MS)


def test_a_reader_finishes_in_a_segment_that_was_deleted_under_it(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(file_delete_delay_ms=0))
    append(log, b"old")
    log.roll(NOW_MS)
    append(log, b"new")
    reading = log.read(0, 1000, end_offset=2, at_least_one=True)
    log.restore_high_watermark(2)
    upkeep.delete_records_before(log, 1, NOW_MS)
    purge(log, NOW_MS)
    gc.collect()
    assert not (tmp_path / "00000000000000000000.log").exists()
    assert read_header(log.read_bytes(reading)).base_offset == 0


@pytest.mark.parametrize("is_warm", [True, False], ids=["just appended", "reopened"])
def test_every_offset_is_found_in_its_batch(tmp_path: Path, is_warm: bool) -> None:
    log = open_log(tmp_path, config(segment_bytes=5000))
    for number in range(200):
        append(log, *[b"v" * (number % 40)] * (1 + number % 3))
    if not is_warm:
        log = open_log(tmp_path, config(segment_bytes=5000))
    for offset in range(log.log_end_offset):
        header = read_header(fetch(log, offset, 61))
        assert header.base_offset <= offset <= header.last_offset


# Rolling


def test_rolls_before_the_batch_that_would_make_a_segment_too_large(tmp_path: Path) -> None:
    size = len(batch_of(KILOBYTE))
    log = open_log(tmp_path, config(segment_bytes=3 * size))
    for _ in range(7):
        append(log, KILOBYTE)
    assert [(segment.base_offset, segment.size // size) for segment in log.segments] == [(0, 3), (3, 3), (6, 1)]


def test_rolls_when_a_batch_is_later_than_the_first_by_more_than_the_segment_time(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(segment_ms=1000))
    for timestamp_ms in (5000, 6000, 6001, 6002):
        append(log, b"v", timestamps_ms=[timestamp_ms], now_ms=10**12)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_jitter_takes_from_the_segment_time_the_same_amount_at_each_start(tmp_path: Path) -> None:
    settings = config(segment_ms=10_000, segment_jitter_ms=9_000)
    first = open_log(tmp_path, settings).active.roll_after_ms
    assert 1_000 < first <= 10_000
    assert open_log(tmp_path, settings).active.roll_after_ms == first


def test_rolls_when_an_index_is_full(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(segment_index_bytes=36))
    for number in range(20):
        append(log, KILOBYTE, timestamps_ms=[NOW_MS + number])
    assert len(log.segments) > 3
    assert all(
        len(segment.indexes.offset_index) <= 4 and len(segment.indexes.time_index) <= 3 for segment in log.segments
    )


def test_rolls_when_an_offset_is_too_far_from_the_base(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for base_offset in (0, 2**31 - 1, 2**31):
        batch = batch_of(b"v")
        batch[:8] = base_offset.to_bytes(8, "big")
        appending.append_replicated(log, memoryview(batch), now_ms=NOW_MS)
    assert [segment.base_offset for segment in log.segments] == [0, 2**31]


def test_a_batch_larger_than_a_segment_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(segment_bytes=1000))
    with pytest.raises(KafkaError) as refused:
        append(log, KILOBYTE)
    assert refused.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert append(log, b"small").base_offset == 0


def test_a_roll_closes_the_indexes_and_leaves_a_snapshot(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, b"a", producer_id=1, sequence=0)
    log.roll(NOW_MS)
    assert log.flusher.recovery_point == 1
    assert sorted(path.name for path in tmp_path.glob("0*")) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000001.index",
        "00000000000000000001.log",
        "00000000000000000001.snapshot",
        "00000000000000000001.timeindex",
    ]
    assert (tmp_path / "00000000000000000000.timeindex").stat().st_size == 12


# Times


def test_finds_the_first_record_at_or_after_a_time_inside_compressed_batches(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(segment_bytes=600))
    for number in range(30):
        times = [1000 + 10 * number + at for at in (0, 3, 6)]
        append(log, b"a", b"b", b"c", timestamps_ms=times, codec=Codec(number % 5), epoch=number // 10)
    end = log.log_end_offset
    assert offset_for_time(log, 0, end) == (0, 1000, 0)
    assert offset_for_time(log, 1104, end) == (32, 1106, 1)
    assert offset_for_time(log, 1296, end) == (89, 1296, 2)
    assert offset_for_time(log, 1297, end) is None
    assert offset_for_time(log, 1104, 32) is None, "the record is past the end that was given"


def test_the_largest_timestamp_is_that_of_a_record_not_of_the_end(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(segment_bytes=300))
    assert max_timestamp_offset(log) is None
    for times in ([5, 9, 7], [3, 4, 9], [8, 8, 8]):
        append(log, b"a", b"b", b"c", timestamps_ms=times)
    assert max_timestamp_offset(log) == (1, 9, 0)
    assert max_timestamp_offset(open_log(tmp_path)) == (1, 9, 0)


def test_before_records_had_times_segments_were_found_by_when_they_were_written(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(segment_bytes=1500))
    for _ in range(3):
        append(log, KILOBYTE)
    for segment, written_s in zip(log.segments, (100, 200, 300), strict=True):
        os.utime(segment.path(".log"), (written_s, written_s))

    def offsets(until_ms: int, now_ms: int = 400_000, log_start_offset: int = 0) -> list[int]:
        return segment_offsets(
            log.segments, until_ms, log_start_offset=log_start_offset, log_end_offset=3, now_ms=now_ms
        )

    assert offsets(99_999) == []
    assert offsets(200_000) == offsets(299_999) == [1, 0]
    assert offsets(399_999) == [2, 1, 0]
    assert offsets(400_000) == [3, 2, 1, 0]
    assert offsets(300_000, log_start_offset=1) == [2, 1, 1]
