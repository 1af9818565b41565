"""Logs in which every format stands beside the others."""

from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import CorruptMessage
from headrace.records.any_format import (
    ANY_HEADER_BYTES_MIN,
    any_crc_is_valid,
    any_header_bytes,
    iter_any_headers,
    read_any_header,
    scan_any,
)
from headrace.records.codecs.compression import Codec
from headrace.records.format2.batch import BatchHeader, Record, encode_batch, read_header
from headrace.records.format2.columns import scan_batches
from headrace.records.format2.control import COMMIT, Marker, encode_marker
from headrace.records.format2.header import set_log_append_time
from headrace.records.legacy.message_set import encode_message_set, iter_entries
from headrace.records.time_search import first_record_from
from tests.examples import examples
from tests.records.decoding import decode_any
from tests.records.message_samples import GOLDEN_SETS, as_stored, codecs, golden_rows, rows_of
from tests.records.samples import golden_batch

ROWS = [Record(i, 1000 + i, None if i % 3 == 0 else b"k%d" % i, None if i % 4 == 0 else b"value") for i in range(9)]
parts = st.lists(st.tuples(st.integers(0, 2), codecs, st.integers(1, 5)), min_size=1, max_size=8)


def log_of(kinds: list[tuple[int, Codec, int]]) -> tuple[bytes, list[Record]]:
    """Sets and batches of (magic, codec, records), one behind the other, and what they hold."""
    data, records = bytearray(), list[Record]()
    for magic, codec, count in kinds:
        at = len(records)
        chunk = [ROWS[i]._replace(offset=at + i) for i in range(count)]
        if magic == 2:
            data += encode_batch(chunk, base_offset=at, codec=codec)
        else:
            data += encode_message_set(chunk, magic=magic, codec=codec, base_offset=at)
        records += as_stored(chunk, magic)
    return bytes(data), records


def test_a_message_has_the_header_of_a_batch_of_one() -> None:
    data = encode_message_set(ROWS[:2], magic=1, base_offset=7)
    header = read_any_header(data)
    assert (header.base_offset, header.last_offset, header.next_offset) == (7, 7, 8)
    assert header.size_bytes == 12 + 22, "with neither key nor value"
    assert (header.magic, header.codec, header.record_count, header.leader_epoch) == (1, Codec.NONE, 1, -1)
    assert (header.base_timestamp, header.max_timestamp, header.is_log_append_time) == (1000, 1000, False)
    assert (header.producer_id, header.last_sequence) == (-1, -1)
    assert read_any_header(encode_message_set(ROWS[:1], magic=0)).max_timestamp == -1


def test_a_wrapper_is_at_the_offset_of_its_last_message_and_does_not_say_how_many() -> None:
    for magic in (0, 1):
        data = encode_message_set(ROWS, magic=magic, codec=Codec.LZ4, base_offset=20)
        header = read_any_header(data)
        assert (header.base_offset, header.last_offset, header.next_offset) == (28, 28, 29)
        assert (header.size_bytes, header.codec, header.record_count) == (len(data), Codec.LZ4, -1)


def test_bits_that_mean_something_in_format_2_only_are_not_seen_before() -> None:
    for magic in (0, 1):
        data = encode_message_set(ROWS[:1], magic=magic)
        data[17] = 0xF8
        header = read_any_header(data)
        assert not header.is_control and not header.is_transactional
        assert header.is_log_append_time == (magic == 1)


@given(parts)
def test_a_log_of_every_format_is_walked_by_its_headers(kinds: list[tuple[int, Codec, int]]) -> None:
    data, records = log_of(kinds)
    seen = list(iter_any_headers(data))
    assert sum(header.size_bytes for _, header in seen) == len(data)
    assert all(any_crc_is_valid(data, pos, header) for pos, header in seen)
    assert seen[-1][1].next_offset == len(records)
    for pos, header in seen:
        if header.magic == 2:
            assert header == read_header(data, pos)
        damaged = bytearray(data)
        damaged[pos + header.size_bytes - 1] ^= 1
        assert not any_crc_is_valid(damaged, pos, header)


@given(parts)
def test_records_of_every_format_are_decoded_in_order(kinds: list[tuple[int, Codec, int]]) -> None:
    data, records = log_of(kinds)
    assert decode_any(data) == records


@settings(max_examples=examples(200))
@given(parts, st.integers(0, 40), st.none() | st.integers(0, 40))
def test_a_scan_takes_every_format_as_it_comes(
    kinds: list[tuple[int, Codec, int]], from_offset: int, to_offset: int | None
) -> None:
    data, records = log_of(kinds)
    columns = scan_any(data, from_offset=from_offset, to_offset=to_offset, headers=True)
    end = to_offset if to_offset is not None else 1 << 60
    expected = [row for row in records if from_offset <= row.offset < end]
    assert rows_of(columns) == expected
    assert columns.next_offset == max(from_offset, min(end, len(records)))
    assert columns.headers is not None
    assert list(columns.headers.list_offsets) == [0] * (len(expected) + 1)
    assert columns.keys is not None and columns.keys.null_count == sum(row.key is None for row in expected)


@given(parts, st.integers(1, 9), st.integers(1, 300))
def test_scans_that_go_on_where_the_last_one_stopped_miss_nothing(
    kinds: list[tuple[int, Codec, int]], max_records: int, max_bytes: int
) -> None:
    data, records = log_of(kinds)
    found: list[Record] = []
    pos = 0
    while pos < len(data):
        columns = scan_any(data[pos:], from_offset=len(found), max_records=max_records, max_bytes=max_bytes)
        assert columns.bytes_consumed > 0
        assert columns.count <= max(max_records, 5)
        found += rows_of(columns)
        pos += columns.bytes_consumed
        assert columns.next_offset == len(found)
    assert found == records


def test_headers_of_format_2_are_kept_beside_messages_that_have_none() -> None:
    with_headers = [row._replace(headers=(("name", None), ("other", b"x"))) for row in ROWS[:2]]
    data = encode_message_set(ROWS[:2], magic=1) + encode_batch(with_headers, base_offset=2)
    columns = scan_any(data, headers=True)
    assert columns.headers is not None
    assert list(columns.headers.list_offsets) == [0, 0, 0, 2, 4]
    assert [columns.headers.keys.value(i) for i in range(4)] == [b"name", b"other"] * 2
    assert [columns.headers.values.value(i) for i in range(4)] == [None, b"x"] * 2
    assert columns.timestamp_types == bytes(4)


def test_one_format_alone_is_scanned_as_by_its_own_function() -> None:
    for codec in ("none", "lz4", "zstd"):
        assert rows_of(scan_any(golden_batch(codec))) == rows_of(scan_batches(golden_batch(codec)))
    for name, data in GOLDEN_SETS.items():
        assert rows_of(scan_any(data)) == golden_rows(name)


def test_control_batches_hold_no_records_and_batches_can_be_skipped() -> None:
    first = encode_message_set(ROWS[:2], magic=1)
    marker = encode_marker(Marker(COMMIT, 0), producer_id=7, producer_epoch=0, timestamp_ms=9, base_offset=2)
    last = encode_batch(ROWS[:3], base_offset=3)
    data = first + marker + last
    assert [row.offset for row in decode_any(data)] == [0, 1, 3, 4, 5]
    assert list(scan_any(data).offsets) == [0, 1, 3, 4, 5]
    asked: list[int] = []

    def skip(header: BatchHeader, _: object) -> bool:
        asked.append(header.base_offset)
        return header.base_offset == 3

    columns = scan_any(data, skip=skip)
    assert (list(columns.offsets), asked) == ([0, 1], [2, 3])


def test_damage_behind_good_data_ends_the_scan_and_damage_before_it_is_an_error() -> None:
    good, other = encode_message_set(ROWS[:2], magic=0), encode_batch(ROWS[:2], base_offset=2)
    bad = bytearray(other)
    bad[-1] ^= 1
    columns = scan_any(good + bad)
    assert (columns.count, columns.bytes_consumed, columns.next_offset) == (2, len(good), 2)
    worse = bytearray(good)
    worse[len(good) - 1] ^= 1
    for data in (bad + good, worse + other):
        with pytest.raises(CorruptMessage):
            decode_any(data)
    with pytest.raises(CorruptMessage, match="CRC"):
        scan_any(bad + good)
    assert scan_any(worse + other).count == 1, "the first of two messages is good"


def test_nothing_at_all_is_no_records() -> None:
    columns = scan_any(b"")
    assert (columns.count, columns.offsets, columns.next_offset) == (0, array("q"), 0)
    assert decode_any(b"") == []


@pytest.mark.parametrize("magic", [0, 1])
def test_headers_that_are_cut_off_or_of_no_format_are_corrupt(magic: int) -> None:
    data = encode_message_set([Record(0, 5 if magic else -1, None, None)], magic=magic)
    assert any_header_bytes(data) == len(data) == (26, 34)[magic]
    assert ANY_HEADER_BYTES_MIN == 26
    for size in range(len(data)):
        with pytest.raises(CorruptMessage):
            read_any_header(data[:size])
        assert list(iter_any_headers(data[:size])) == []
    for size in (0, 13, -1, 21 if magic else 5):
        lying = bytearray(data)
        lying[8:12] = size.to_bytes(4, "big", signed=True)
        with pytest.raises(CorruptMessage, match="size"):
            read_any_header(lying)
    for other in (3, 7, 255):
        lying = bytearray(data)
        lying[16] = other
        with pytest.raises(CorruptMessage, match=f"magic {other}"):
            read_any_header(lying + bytes(60))


def test_a_wrappers_entry_is_what_iter_entries_finds() -> None:
    data, _ = log_of([(0, Codec.GZIP, 3), (1, Codec.NONE, 2), (1, Codec.SNAPPY, 4)])
    assert [(pos + 12, header.base_offset) for pos, header in iter_any_headers(data)] == [
        (entry.start, entry.offset) for entry in iter_entries(data)
    ]


@pytest.mark.parametrize("magic", [0, 1, 2])
@given(
    codecs,
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 3)), min_size=1, max_size=9),
    st.integers(0, 20),
    st.integers(0, 6),
    st.booleans(),
)
@settings(max_examples=examples(60))
def test_the_first_record_from_a_time_on_is_the_one_that_decoding_finds(
    magic: int, codec: Codec, steps: list[tuple[int, int]], from_offset: int, from_ms: int, is_stamped: bool
) -> None:
    rows, offset = [], 0
    for timestamp_ms, gap in steps:
        rows.append(Record(offset, timestamp_ms, None, b"v"))
        offset += gap if magic else 1
    codec = Codec.NONE if magic < 2 and codec is Codec.ZSTD else codec
    if magic == 2:
        stamp = 4 if is_stamped else None
        data = encode_batch(rows, base_offset=0, codec=codec)
        if stamp is not None:
            set_log_append_time(memoryview(data), read_header(data), stamp)
    else:
        data = encode_message_set(
            rows, magic=magic, codec=codec, base_offset=None, log_append_time_ms=4 if is_stamped and magic else None
        )
    decoded = decode_any(data, check_crcs=False)
    expected = next((r for r in decoded if r.offset >= from_offset and r.timestamp_ms >= from_ms), None)
    found = None
    for position, header in iter_any_headers(data):
        batch = data[position : position + header.size_bytes]
        found = found or first_record_from(batch, header, from_offset=from_offset, from_timestamp_ms=from_ms)
    assert found == (None if expected is None else (expected.offset, expected.timestamp_ms))


def test_a_search_of_a_batch_that_holds_too_much_says_so() -> None:
    rows = [Record(at, at, None, bytes(1000)) for at in range(100)]
    for data in (encode_batch(rows, codec=Codec.LZ4), encode_message_set(rows, magic=1, codec=Codec.GZIP)):
        header = read_any_header(data)
        with pytest.raises(CorruptMessage):
            first_record_from(data, header, from_offset=0, from_timestamp_ms=50, max_bytes=50_000)
        assert first_record_from(data, header, from_offset=60, from_timestamp_ms=50) == (60, 60)
