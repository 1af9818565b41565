from array import array

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import CorruptMessage, KafkaError
from headrace.records.codecs.compression import Codec
from headrace.records.format2 import build as build_module
from headrace.records.format2 import columns as columns_module
from headrace.records.format2.batch import (
    BatchHeader,
    Record,
    decode_records,
    encode_batch,
    iter_headers,
    read_header,
    set_log_append_time,
)
from headrace.records.format2.columns import (
    BinaryColumn,
    HeadersColumn,
    RecordColumns,
    build_batch,
    column_of,
    fitting_rows,
    partitions_of,
    scan_batches,
)
from headrace.records.format2.control import COMMIT, Marker, encode_marker
from headrace.records.format2.header import pack_header
from headrace.records.format2.kernel import murmur2
from tests.examples import examples
from tests.records.samples import CODECS, golden_batch, golden_records, many_records, records, uncompiled_kernel


def rows_of(columns: RecordColumns) -> list[Record]:
    """The columns as records; what was not asked for is null."""
    return [
        Record(
            columns.offsets[i],
            columns.timestamps_ms[i],
            columns.keys.value(i) if columns.keys else None,
            columns.values.value(i) if columns.values else None,
            _headers(columns.headers, i) if columns.headers else (),
        )
        for i in range(columns.count)
    ]


def _headers(headers: HeadersColumn, row: int) -> tuple[tuple[str, bytes | None], ...]:
    start, stop = headers.list_offsets[row], headers.list_offsets[row + 1]
    return tuple(((headers.keys.value(i) or b"").decode(), headers.values.value(i)) for i in range(start, stop))


def batches(rows: list[Record], size: int, codec: Codec = Codec.NONE) -> bytes:
    """The rows in batches of `size` records, at the offsets that they have."""
    return b"".join(
        bytes(encode_batch(rows[at : at + size], base_offset=rows[at].offset, codec=codec))
        for at in range(0, len(rows), size)
    )


@pytest.mark.parametrize("codec", CODECS)
def test_reads_apache_kafkas_batches_into_columns(codec: Codec) -> None:
    columns = scan_batches(golden_batch(codec.name.lower()), headers=True)
    assert rows_of(columns) == golden_records()
    assert (columns.next_offset, bytes(columns.timestamp_types)) == (1300, bytes(300))


@pytest.mark.parametrize("codec", CODECS)
def test_reads_many_batches_in_one_scan(codec: Codec) -> None:
    rows = many_records(3000)
    columns = scan_batches(batches(rows, 700, codec), headers=True)
    assert rows_of(columns) == rows


@given(rows=records, size=st.integers(1, 20), data=st.data())
def test_takes_the_offsets_asked_for_and_no_others(rows: list[Record], size: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(rows)))
    stop = data.draw(st.integers(start, len(rows) + 1))
    columns = scan_batches(batches(rows, size), from_offset=start, to_offset=stop, headers=True)
    assert rows_of(columns) == rows[start:stop]
    assert start <= columns.next_offset <= max(stop, start)


def test_a_column_not_asked_for_is_not_there() -> None:
    columns = scan_batches(golden_batch("none"), keys=False, values=False)
    assert (columns.keys, columns.values, columns.headers) == (None, None, None)
    assert columns.count == len(columns.offsets) == 300


def test_a_torn_batch_at_the_end_waits_for_the_next_fetch() -> None:
    rows = many_records(30)
    whole = batches(rows, 10)
    ends = [pos + header.size_bytes for pos, header in iter_headers(whole)]
    for size in range(ends[0], len(whole), 7):
        columns = scan_batches(whole[:size])
        taken = sum(end <= size for end in ends)
        assert columns.count == columns.next_offset == 10 * taken
        assert columns.bytes_consumed == ends[taken - 1]


def test_nothing_whole_is_no_row_and_no_step() -> None:
    for buf in (b"", batches(many_records(5), 5)[:-1]):
        columns = scan_batches(buf, from_offset=7, headers=True)
        assert (columns.count, columns.next_offset, columns.bytes_consumed) == (0, 7, 0)
        assert columns.values is not None and list(columns.values.offsets) == [0]


def test_limits_stop_between_batches_and_never_before_the_first() -> None:
    rows = many_records(30)
    buf = batches(rows, 10)
    assert scan_batches(buf, max_records=5).count == 10
    assert scan_batches(buf, max_records=19).count == 10
    assert scan_batches(buf, max_records=20).count == 20
    assert scan_batches(buf, max_bytes=1).count == 10
    rest = scan_batches(buf, from_offset=scan_batches(buf, max_records=20).next_offset)
    assert rows_of(rest) == [row._replace(headers=()) for row in rows[20:]]


def test_markers_take_an_offset_and_no_row() -> None:
    marker = encode_marker(Marker(COMMIT, 1), producer_id=1, producer_epoch=0, timestamp_ms=0, base_offset=1)
    row = Record(0, 5, b"k", b"v")
    columns = scan_batches(encode_batch([row]) + marker + encode_batch([row], base_offset=2))
    assert list(columns.offsets) == [0, 2]
    assert columns.next_offset == 3
    assert scan_batches(marker).next_offset == 2


def test_the_caller_may_skip_batches() -> None:
    buf = batches(many_records(30), 10)
    seen: list[int] = []

    def skip(header: BatchHeader, batch: memoryview) -> bool:
        assert len(batch) == header.size_bytes
        seen.append(header.base_offset)
        return header.base_offset == 10

    columns = scan_batches(buf, skip=skip)
    assert seen == [0, 10, 20]
    assert list(columns.offsets) == [*range(10), *range(20, 30)]


def test_log_append_time_is_told_row_by_row() -> None:
    one, two = encode_batch([Record(0, 5, None, b"")] * 2), encode_batch([Record(2, 6, None, b"")], base_offset=2)
    set_log_append_time(one, read_header(one), 99)
    columns = scan_batches(one + two)
    assert list(columns.timestamps_ms) == [99, 99, 6]
    assert list(columns.timestamp_types) == [1, 1, 0]


def test_offsets_that_compaction_left_gaps_in_are_kept() -> None:
    rows = many_records(10)
    batch = encode_batch(rows)
    header = read_header(batch)
    sizes = [len(encode_batch(rows[: i + 1])) for i in range(10)]
    kept = batch[: sizes[1]] + batch[sizes[6] :]  # offsets 0, 1, 7, 8, 9
    pack_header(kept, 0, header._replace(batch_length=len(kept) - 12, record_count=5))
    assert list(scan_batches(kept).offsets) == [0, 1, 7, 8, 9]
    assert [record.offset for record in decode_records(kept)] == [0, 1, 7, 8, 9]


def test_a_damaged_batch_ends_the_scan_before_it_and_is_an_error_when_it_comes_first() -> None:
    good, bad = encode_batch([Record(0, 0, None, b"good")]), encode_batch([Record(1, 0, None, b"bad!")], base_offset=1)
    bad[-3] ^= 1
    columns = scan_batches(good + bad)
    assert (columns.count, columns.next_offset, columns.bytes_consumed) == (1, 1, len(good))
    with pytest.raises(CorruptMessage, match="CRC"):
        scan_batches(bad + good)
    assert scan_batches(bad, check_crcs=False).count == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"record_count": 2**31 - 1},
        {"record_count": -1},
        {"record_count": 2},
        {"last_offset_delta": -1},
        {"last_offset_delta": 1},
        {"base_offset": 2**63 - 1},
        {"base_offset": -5},
        {"base_timestamp": 2**63 - 1},
    ],
    ids=str,
)
def test_a_header_that_lies_is_an_error(changes: dict[str, int]) -> None:
    batch = encode_batch([Record(i, i, None, b"v") for i in range(3)])
    pack_header(batch, 0, read_header(batch)._replace(**changes))
    with pytest.raises(CorruptMessage):
        scan_batches(batch)
    with pytest.raises(CorruptMessage):
        decode_records(batch)


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_bomb_is_an_error(codec: Codec) -> None:
    bomb = encode_batch([Record(0, 0, None, bytes(1 << 20))], codec=codec)
    with pytest.raises(CorruptMessage):
        scan_batches(bomb, max_batch_bytes=1 << 20)


@settings(max_examples=examples(100))
@given(rows=records, codec=st.sampled_from(CODECS), data=st.data())
def test_damage_gives_an_error_or_rows(rows: list[Record], codec: Codec, data: st.DataObject) -> None:
    damaged = encode_batch(rows, codec=codec)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        columns = scan_batches(damaged, headers=True, check_crcs=False, max_batch_bytes=1 << 16)
    except KafkaError:
        return
    assert len(columns.offsets) == columns.count == len(columns.timestamp_types)
    for row in range(columns.count):
        assert columns.keys is not None and columns.values is not None
        columns.keys.value(row), columns.values.value(row)


def test_the_uncompiled_kernel_reads_and_writes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = many_records(300)
    compiled = batches(rows, 70)
    plain = uncompiled_kernel()
    monkeypatch.setattr(columns_module, "kernel", plain)
    monkeypatch.setattr(build_module, "kernel", plain)
    assert batches(rows, 70) == compiled
    assert rows_of(scan_batches(compiled, headers=True)) == rows


def test_arrow_takes_the_columns_as_they_are() -> None:
    columns = scan_batches(golden_batch("zstd"))
    keys = columns.keys
    assert keys is not None and keys.validity is not None
    buffers = [pa.py_buffer(keys.validity), pa.py_buffer(keys.offsets), pa.py_buffer(keys.data)]
    arrow = pa.Array.from_buffers(pa.binary(), columns.count, buffers, keys.null_count)
    arrow.validate(full=True)
    assert arrow.to_pylist() == [record.key for record in golden_records()]
    offsets = pa.Array.from_buffers(pa.int64(), columns.count, [None, pa.py_buffer(columns.offsets)])
    assert offsets.to_pylist() == list(range(1000, 1300))


def test_builds_from_arrows_buffers_and_from_the_middle_of_a_column() -> None:
    arrow = pa.array([b"zero", None, b"two", b"", b"four"], pa.binary())
    validity, offsets, data = arrow.buffers()
    column = BinaryColumn(memoryview(offsets), memoryview(data), memoryview(validity), arrow.null_count)
    times = memoryview(pa.array(range(100, 105), pa.int64()).buffers()[1])
    batch = build_batch(column, column, 1, 4, times)
    assert [(r.timestamp_ms, r.key, r.value) for r in decode_records(batch)] == [
        (101, None, None),
        (102, b"two", b"two"),
        (103, b"", b""),
    ]


def test_a_column_that_is_none_is_null_in_every_row() -> None:
    batch = build_batch(None, None, 0, 2, array("q", [7, 8]))
    assert decode_records(batch) == [Record(0, 7, None, None), Record(1, 8, None, None)]


@pytest.mark.parametrize(
    "column",
    [
        BinaryColumn(array("i", [0, 5]), b"abc", None, 0),
        BinaryColumn(array("i", [2, 1]), b"abc", None, 0),
        BinaryColumn(array("i", [-1, 1]), b"abc", None, 0),
        BinaryColumn(array("i", [0]), b"abc", None, 0),
        BinaryColumn(array("i", [0, 1]), b"abc", b"", 1),
    ],
    ids=["past the end", "falling", "negative", "too short", "too few bits"],
)
def test_columns_that_lie_are_refused(column: BinaryColumn) -> None:
    times = array("q", [0])
    if column.validity == b"":
        assert decode_records(build_batch(column, None, 0, 1, times))[0].key == b"a"
        return
    with pytest.raises(ValueError, match="does not lie"):
        build_batch(column, None, 0, 1, times)
    with pytest.raises(ValueError, match="does not lie"):
        build_batch(None, column, 0, 1, times)
    with pytest.raises(ValueError, match="does not lie"):
        build_batch(None, None, 0, 1, times, HeadersColumn(array("i", [0, 1]), column, column_of([b"x"])))
    with pytest.raises(ValueError, match="does not lie"):
        partitions_of(column, 0, 1, 3)


def test_too_few_timestamps_or_too_far_apart_are_refused() -> None:
    values = column_of([b"a", b"b"])
    with pytest.raises(ValueError, match="does not lie"):
        build_batch(None, values, 0, 2, array("q", [0]))
    with pytest.raises(ValueError, match="row 1"):
        build_batch(None, values, 0, 2, array("q", [-2, 2**63 - 1]))


@given(rows=records, limit=st.integers(61, 2000))
def test_the_rows_that_fit_are_as_many_as_their_batch_has_room_for(rows: list[Record], limit: int) -> None:
    keys, values = column_of([row.key for row in rows]), column_of([row.value for row in rows])
    times = array("q", [row.timestamp_ms for row in rows])
    stop, size = fitting_rows(keys, values, 0, len(rows), times, max_batch_bytes=limit)
    assert size == len(build_batch(keys, values, 0, stop, times))
    assert stop == 1 or size <= limit
    if stop < len(rows):
        assert len(build_batch(keys, values, 0, stop + 1, times)) > limit


def test_keys_go_where_java_sends_them() -> None:
    keys = column_of([b"carrier-%d" % i if i % 5 else None for i in range(50)])
    found = partitions_of(keys, 3, 50, 7)
    assert list(found) == [-1 if i % 5 == 0 else (murmur2(b"carrier-%d" % i) & 0x7FFFFFFF) % 7 for i in range(3, 50)]
