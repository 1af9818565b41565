"""Messages of formats 0 and 1 in a log: appended as sets, found by offset and by time, recovered, cut, dumped."""

import random
from pathlib import Path

import pytest

from headrace.log import appending, truncation, upkeep
from headrace.log.appending import AppendResult
from headrace.log.files import LocalFiles
from headrace.log.partition_log import PartitionLog
from headrace.offline.dump import dump
from headrace.offline.segment_reader import find_partitions, read_segment
from headrace.records.any_format import iter_any_headers
from headrace.records.codecs.compression import Codec
from headrace.records.format2.batch import Record, encode_batch
from headrace.records.legacy.message_set import encode_message_set
from headrace.records.legacy.produced_sets import check_produced_set, place_set
from tests.log.support import (
    NOW_MS,
    append,
    append_batch,
    config,
    fetch,
    max_timestamp_offset,
    offset_for_time,
    open_log,
)
from tests.records.decoding import decode_any

CODECS = [codec for codec in Codec if codec is not Codec.ZSTD]


def rows(count: int, start_ms: int = NOW_MS) -> list[Record]:
    return [Record(n, start_ms + n, b"k%d" % n, b"v%d" % n) for n in range(count)]


def append_set(log: PartitionLog, records: list[Record], magic: int, codec: Codec = Codec.NONE) -> AppendResult:
    """Append a set as a producer sends it."""
    data = memoryview(encode_message_set(records, magic=magic, codec=codec))
    checked = check_produced_set(data, max_message_bytes=1 << 20)
    placed = place_set(data, checked, base_offset=log.log_end_offset)
    return appending.append_set(log, placed, log_append_time_ms=-1, now_ms=NOW_MS)


def read_all(log: PartitionLog, max_bytes: int = 300) -> list[Record]:
    found: list[Record] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = fetch(log, offset, max_bytes)
        ends = [position + header.size_bytes for position, header in iter_any_headers(data)]
        found += [record for record in decode_any(data[: ends[-1]]) if record.offset >= offset]
        offset = found[-1].offset + 1
    return found


def mixed_log(directory: Path, seed: int, **settings: object) -> tuple[PartitionLog, list[Record]]:
    """A log of many appends in all formats, and what it holds."""
    chance = random.Random(seed)
    log = open_log(directory, config(segment_bytes=2500, **settings))
    held: list[Record] = []
    for number in range(40):
        records, magic = rows(chance.randrange(1, 30), NOW_MS + 1000 * number), chance.randrange(3)
        codec = chance.choice(CODECS)
        if magic == 2:
            append_batch(log, encode_batch(records, codec=codec), epoch=3)
        else:
            assert append_set(log, records, magic, codec).base_offset == len(held)
        held += [
            record._replace(offset=len(held) + n, timestamp_ms=record.timestamp_ms if magic else -1)
            for n, record in enumerate(records)
        ]
    assert log.log_end_offset == len(held)
    return log, held


@pytest.mark.parametrize("seed", range(4))
def test_what_is_appended_in_any_format_is_read_back(tmp_path: Path, seed: int) -> None:
    log, held = mixed_log(tmp_path, seed)
    assert read_all(log) == held
    log.close(NOW_MS)
    assert read_all(open_log(tmp_path, was_clean=True)) == held
    reopened = open_log(tmp_path)
    assert read_all(reopened) == held
    for offset in range(0, len(held), 7):
        first = next(record.offset for record in decode_any(fetch(reopened, offset, 300)) if record.offset >= offset)
        assert first == offset


@pytest.mark.parametrize("seed", range(4))
def test_plain_messages_are_read_from_the_very_one_that_is_asked_for(tmp_path: Path, seed: int) -> None:
    log = open_log(tmp_path)
    for size in random.Random(seed).sample(range(1, 60), 12):
        append_set(log, rows(size), seed % 2)
    for state in (log, open_log(tmp_path)):
        for offset in range(state.log_end_offset):
            assert decode_any(fetch(state, offset, 1))[0].offset == offset


@pytest.mark.parametrize("seed", range(4))
def test_a_time_is_looked_up_as_if_every_record_were_looked_at(tmp_path: Path, seed: int) -> None:
    log, held = mixed_log(tmp_path, seed)
    for reopened in (log, open_log(tmp_path)):
        for time_ms in range(NOW_MS - 5, NOW_MS + 41_000, 333):
            dumb = next((record for record in held if record.timestamp_ms >= time_ms), None)
            found = offset_for_time(reopened, time_ms, reopened.log_end_offset)
            assert (found and found[:2]) == (dumb and (dumb.offset, dumb.timestamp_ms))
        latest = max(held, key=lambda record: record.timestamp_ms)
        largest = max_timestamp_offset(reopened)
        assert largest is not None
        assert largest[:2] == (latest.offset, latest.timestamp_ms)


def test_rebuilt_indexes_are_those_that_were_made_while_appending(tmp_path: Path) -> None:
    log, _ = mixed_log(tmp_path, 9)
    log.close(NOW_MS)
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.index")}
    for path in tmp_path.glob("*index"):
        path.unlink()
    again = open_log(tmp_path)
    again.close(NOW_MS)
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.index")} == before
    assert sum(map(len, before.values())) > 200


def test_an_index_of_kafkas_points_to_the_first_message_of_an_append(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(index_interval_bytes=1 << 20))
    append_set(log, rows(5), 1)
    position = log.active.size
    append_set(log, rows(5), 1)
    log.close(NOW_MS)
    path = next(tmp_path.glob("*.index"))
    path.write_bytes((9).to_bytes(4, "big") + position.to_bytes(4, "big"))
    again = open_log(tmp_path, was_clean=True)
    assert [decode_any(fetch(again, n, 1))[0].offset for n in range(10)] == list(range(10))
    assert again.active.indexes.offset_index.keys[0] == 9, "it was not made again"


@pytest.mark.parametrize("cut", range(0, 200, 9))
def test_a_torn_tail_is_cut_off(tmp_path: Path, cut: int) -> None:
    log = open_log(tmp_path)
    for magic in (0, 1):
        append_set(log, rows(3), magic)
        append_set(log, rows(3), magic, Codec.GZIP)
    path = log.active.path(".log")
    path.write_bytes(path.read_bytes()[: path.stat().st_size - cut])
    again = open_log(tmp_path)
    found = read_all(again) if again.log_end_offset else []
    assert [record.offset for record in found] == list(range(again.log_end_offset))
    assert append(again, b"next").base_offset == again.log_end_offset - 1


def test_a_message_without_an_epoch_makes_the_log_forget_its_epochs(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, b"a", epoch=4)
    append_set(log, rows(2), 1)
    assert log.leader_epochs.entries == []
    append(log, b"b", epoch=5)
    assert log.leader_epochs.entries == [(5, 3)]
    log.close(NOW_MS)
    assert open_log(tmp_path, was_clean=True).leader_epochs.entries == [(5, 3)]


def test_a_log_is_truncated_between_messages_and_before_a_wrapper(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append_set(log, rows(10), 0)
    append_set(log, rows(10), 1, Codec.SNAPPY)
    truncation.truncate_to(log, 15, NOW_MS)
    assert [record.offset for record in decode_any(fetch(log, 0))] == list(range(10))
    truncation.truncate_to(log, 4, NOW_MS)
    assert [record.offset for record in read_all(log)] == [0, 1, 2, 3]
    assert append_set(log, rows(1), 0).base_offset == 4


def test_a_follower_appends_what_the_leader_has(tmp_path: Path) -> None:
    leader, held = mixed_log(tmp_path / "leader", 5)
    follower = open_log(tmp_path / "follower")
    while follower.log_end_offset < leader.log_end_offset:
        appending.append_replicated(
            follower, memoryview(bytearray(fetch(leader, follower.log_end_offset, 2000))), now_ms=NOW_MS
        )
    assert read_all(follower) == held


def test_segment_files_are_read_as_columns(tmp_path: Path) -> None:
    log, held = mixed_log(tmp_path / "flights-0", 6)
    log.close(NOW_MS)
    files = LocalFiles()
    (partition,) = find_partitions(files, tmp_path, newest=True)
    offsets: list[int] = []
    values: list[bytes] = []
    for path, start, end in partition.segments:
        for columns in read_segment(files, path, start, end, batch_rows=50):
            assert columns.values is not None
            ends = columns.values.offsets
            data = bytes(columns.values.data)
            offsets += columns.offsets
            values += [data[ends[n] : ends[n + 1]] for n in range(columns.count)]
    assert offsets == [record.offset for record in held]
    assert values == [record.value for record in held]


def test_messages_and_wrappers_are_dumped(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append_set(log, rows(2), 0)
    append_set(log, rows(3), 1, Codec.LZ4)
    append(log, b"batch")
    log.close(NOW_MS)
    found = list(dump(log.active.path(".log"), deep=True))
    assert [row["kind"] for row in found] == [
        "message", "record", "message", "record", "wrapper", "record", "record", "record", "batch", "record",
    ]  # fmt: skip
    plain, wrapper = found[0], found[4]
    assert (plain["magic"], plain["last_offset"], plain["timestamp_type"], plain["codec"]) == (0, 0, "none", "none")
    assert (wrapper["magic"], wrapper["last_offset"], wrapper["timestamp_ms"]) == (1, 4, NOW_MS + 2)
    assert all(row.get("is_valid", True) for row in found)
    assert [row["offset"] for row in found if row["kind"] == "record"] == list(range(6))
    assert all(row["is_valid"] for row in dump(log.active.path(".index"), deep=True))


def test_retention_by_time_of_messages_without_times_goes_by_when_they_were_found(tmp_path: Path) -> None:
    log = open_log(tmp_path, config(segment_bytes=200, retention_ms=1000))
    for _ in range(5):
        append_set(log, rows(3), 0)
    log.restore_high_watermark(log.log_end_offset)
    assert upkeep.delete_old_segments(log, NOW_MS + 500) == 0
    assert upkeep.delete_old_segments(log, NOW_MS + 5000) > 0
    assert offset_for_time(log, NOW_MS, log.log_end_offset) is None
