"""Message sets as columns, by the compiled kernel and by its source, against the same sets as objects."""

from array import array
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.errors import CorruptMessage, InvalidTimestamp, UnsupportedCompressionType
from headrace.records.binary import column_of
from headrace.records.codecs.compression import Codec
from headrace.records.format2.batch import Record
from headrace.records.legacy import message_columns, message_kernel
from headrace.records.legacy.message import encode_message
from headrace.records.legacy.message_columns import build_message_set, scan_message_set
from headrace.records.legacy.message_set import decode_message_set, encode_message_set, wrap
from tests.examples import examples
from tests.records.message_samples import (
    CODECS,
    GOLDEN_SETS,
    as_stored,
    codecs,
    golden_rows,
    magics,
    rows,
    rows_of,
    uncompiled_message_kernel,
)

plain = uncompiled_message_kernel()
ROWS = [Record(i, 1000 + i, None if i % 3 == 0 else b"k%d" % i, None if i % 4 == 0 else b"value") for i in range(20)]


@pytest.fixture(params=[message_kernel, plain], ids=["imported", "plain"], autouse=True)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Every test here runs twice."""
    monkeypatch.setattr(message_columns, "message_kernel", request.param)
    yield request.param


def given_with_kernel(
    *strategies: st.SearchStrategy[Any], count: int = 60
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """`given`, for tests whose fixture does not change from one example to the next."""
    quiet = settings(max_examples=examples(count), suppress_health_check=[HealthCheck.function_scoped_fixture])
    return lambda test: quiet(given(*strategies)(test))


def built(records: list[Record], magic: int, codec: Codec = Codec.NONE, **options: object) -> bytearray:
    return build_message_set(
        column_of([row.key for row in records]), column_of([row.value for row in records]), 0, len(records),
        array("q", (row.timestamp_ms for row in records)), magic=magic, codec=codec, **options,  # type: ignore[arg-type]
    )  # fmt: skip


def test_the_kernel_is_compiled_and_its_reference_is_not() -> None:
    assert message_kernel.COMPILED, "the kernel would be compared with itself; `make setup` compiles it"
    assert not plain.COMPILED


@pytest.mark.parametrize("name", GOLDEN_SETS)
def test_reads_what_apache_kafka_wrote(name: str) -> None:
    columns = scan_message_set(GOLDEN_SETS[name])
    expected = golden_rows(name)
    assert rows_of(columns) == expected
    assert columns.bytes_consumed == len(GOLDEN_SETS[name])
    assert columns.next_offset == expected[-1].offset + 1
    assert set(columns.timestamp_types) == {1 if "append-time" in name else 0}


@given_with_kernel(rows, magics, codecs, st.none() | st.integers(0, 1 << 50), st.integers(0, 1 << 60))
def test_columns_become_the_same_bytes_as_objects(
    records: list[Record], magic: int, codec: Codec, stamp: int | None, base_offset: int
) -> None:
    ours = built(records, magic, codec, base_offset=base_offset, log_append_time_ms=stamp)
    assert ours == encode_message_set(
        records, magic=magic, codec=codec, base_offset=base_offset, log_append_time_ms=stamp
    )
    moved = [row._replace(offset=base_offset + row.offset) for row in records]
    assert rows_of(scan_message_set(ours)) == as_stored(moved, magic, stamp)


@given_with_kernel(rows, magics, codecs, st.integers(1, 9))
def test_columns_keep_offsets_when_asked_to(records: list[Record], magic: int, codec: Codec, step: int) -> None:
    kept = [row._replace(offset=7 + row.offset * step) for row in records]
    ours = built(kept, magic, codec, offsets=array("q", (row.offset for row in kept)))
    assert ours == encode_message_set(kept, magic=magic, codec=codec, base_offset=None)


sets = st.lists(st.tuples(magics, codecs, st.integers(1, 6), st.integers(0, 2)), min_size=1, max_size=6)


def log_of(parts: list[tuple[int, Codec, int, int]]) -> tuple[bytes, list[Record]]:
    """A log of several sets, with gaps between them, and its records."""
    data, records, offset = bytearray(), list[Record](), 0
    for magic, codec, count, gap in parts:
        chunk = [ROWS[i]._replace(offset=offset + gap + i) for i in range(count)]
        data += encode_message_set(chunk, magic=magic, codec=codec, base_offset=None)
        records += as_stored(chunk, magic)
        offset += gap + count
    return bytes(data), records


@given_with_kernel(sets, st.integers(0, 30), st.none() | st.integers(0, 30))
def test_a_range_of_offsets_is_what_lies_in_it(
    parts: list[tuple[int, Codec, int, int]], from_offset: int, to_offset: int | None
) -> None:
    data, records = log_of(parts)
    columns = scan_message_set(data, from_offset=from_offset, to_offset=to_offset)
    end = to_offset if to_offset is not None else 1 << 60
    assert rows_of(columns) == [row for row in records if from_offset <= row.offset < end]
    behind = records[-1].offset + 1
    assert columns.next_offset == max(from_offset, min(end, behind))


@given_with_kernel(sets, st.integers(1, 12), st.integers(1, 400))
def test_scans_that_go_on_where_the_last_one_stopped_miss_nothing(
    parts: list[tuple[int, Codec, int, int]], max_records: int, max_bytes: int
) -> None:
    data, records = log_of(parts)
    found: list[Record] = []
    pos = next_offset = 0
    while pos < len(data):
        columns = scan_message_set(data[pos:], from_offset=next_offset, max_records=max_records, max_bytes=max_bytes)
        assert columns.bytes_consumed > 0
        assert columns.count <= max(max_records, 6), "a wrapper of more than was asked for comes alone"
        found += rows_of(columns)
        pos += columns.bytes_consumed
        next_offset = columns.next_offset
    assert found == records


def test_columns_not_asked_for_are_not_made() -> None:
    columns = scan_message_set(encode_message_set(ROWS, magic=1), keys=False, values=False)
    assert (columns.count, columns.keys, columns.values, columns.headers) == (20, None, None, None)
    columns = scan_message_set(encode_message_set(ROWS, magic=1), values=False, headers=True)
    assert columns.keys is not None and columns.keys.null_count == 7
    assert columns.headers is not None and list(columns.headers.list_offsets) == [0] * 21


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_a_set_that_is_cut_off_anywhere_gives_what_is_whole(codec: Codec, magic: int) -> None:
    first = encode_message_set(ROWS[:5], magic=magic, codec=codec)
    second = encode_message_set(ROWS[5:8], magic=magic, codec=codec, base_offset=5)
    for cut in range(1, len(second) + 1):
        data = (first + second)[:-cut]
        columns = scan_message_set(data)
        assert rows_of(columns) == decode_message_set(data)
        assert columns.bytes_consumed <= len(data)


def test_damage_behind_good_messages_ends_the_scan_before_it() -> None:
    for codec in CODECS:
        good = encode_message_set(ROWS[:5], magic=1, codec=codec)
        bad = encode_message_set(ROWS[:5], magic=1, codec=codec, base_offset=5)
        bad[len(bad) - 1] ^= 1
        columns = scan_message_set(good + bad)
        assert columns.count >= 5
        assert columns.next_offset == columns.offsets[-1] + 1 <= 10
        assert scan_message_set(good + bad).bytes_consumed < len(good) + len(bad)
        if codec is not Codec.NONE:
            with pytest.raises(CorruptMessage, match="CRC"):
                scan_message_set(bad)


def test_crcs_are_not_looked_at_when_not_asked_for() -> None:
    message_set = encode_message_set([Record(0, 1, b"k", b"v")], magic=1)
    message_set[12] ^= 1
    assert scan_message_set(message_set, check_crcs=False).count == 1
    with pytest.raises(CorruptMessage, match="CRC"):
        scan_message_set(message_set)


@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrapper_in_a_wrapper_is_refused(magic: int) -> None:
    inner = encode_message_set(ROWS, magic=magic, codec=Codec.GZIP)
    with pytest.raises(CorruptMessage, match="wrapper inside a wrapper"):
        scan_message_set(wrap(inner, 19, magic, Codec.GZIP))


def test_a_wrapper_that_lies_is_refused() -> None:
    inner = encode_message_set(ROWS, magic=1)
    for held, magic, offset in (
        (inner[:-1], 1, 19),
        (b"", 1, 19),
        (inner, 0, 19),
        (encode_message_set(ROWS[::-1][:1], magic=1, base_offset=5), 1, 3),
        (encode_message_set(ROWS[:1], magic=1) * 2, 1, 9),
    ):
        with pytest.raises(CorruptMessage):
            scan_message_set(wrap(held, offset, magic, Codec.SNAPPY))
    empty = encode_message(1, None, None, codec=Codec.GZIP)
    with pytest.raises(CorruptMessage, match="no value"):
        scan_message_set(bytes(8) + len(empty).to_bytes(4, "big") + empty)


def test_offsets_rise_from_entry_to_entry() -> None:
    again = encode_message_set(ROWS[:3], magic=1)
    for codec in CODECS:
        data = encode_message_set(ROWS[:5], magic=1, codec=codec) + again
        assert scan_message_set(data).next_offset == 5


def test_a_bomb_is_refused_before_it_unpacks() -> None:
    inner = encode_message_set([Record(0, -1, None, bytes(8 << 20))], magic=1)
    for codec in CODECS[1:]:
        with pytest.raises(CorruptMessage):
            scan_message_set(wrap(inner, 0, 1, codec), max_batch_bytes=1 << 20)


def test_what_cannot_be_built_is_an_error() -> None:
    keys, times = column_of([b"a", b"b"]), array("q", [1, -5])
    with pytest.raises(InvalidTimestamp, match="timestamp -5 is invalid in format 1"):
        build_message_set(keys, None, 0, 2, times, magic=1)
    with pytest.raises(InvalidTimestamp, match="timestamp -9 is invalid in format 1"):
        build_message_set(keys, None, 0, 2, times, magic=1, log_append_time_ms=-9)
    assert len(build_message_set(keys, None, 0, 2, times, magic=0)) == 2 * 27
    with pytest.raises(ValueError, match="at least one message"):
        build_message_set(keys, None, 1, 1, times, magic=1)
    with pytest.raises(ValueError, match="columns"):
        build_message_set(keys, None, 0, 3, array("q", [1, 2, 3]), magic=1)
    with pytest.raises(ValueError, match="more messages"):
        build_message_set(keys, None, 0, 2, array("q", [1]), magic=1)
    with pytest.raises(ValueError, match="is not greater than"):
        build_message_set(keys, None, 0, 2, times, magic=0, offsets=array("q", [4, 4]))
    with pytest.raises(UnsupportedCompressionType):
        build_message_set(keys, None, 0, 2, times, magic=0, codec=Codec.ZSTD)
    with pytest.raises(ValueError, match="unknown message format 2"):
        build_message_set(keys, None, 0, 2, times, magic=2)
