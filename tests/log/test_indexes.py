"""The two sparse indexes: their bytes, their look-ups, and what is no index."""

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.log.files import LocalFiles
from headrace.log.segment.index_file import CorruptIndex
from headrace.log.segment.offset_index import OffsetIndex
from headrace.log.segment.time_index import NO_TIMESTAMP, TimeIndex, TimestampOffset

FILES = LocalFiles()
INDEX_BYTES = 1 << 20


def offset_index(path: Path, *entries: tuple[int, int], base_offset: int = 0) -> OffsetIndex:
    made = OffsetIndex(path, base_offset, INDEX_BYTES)
    for offset, position in entries:
        made.append(FILES, offset, position)
    return made


def test_writes_an_offset_index_as_apache_kafka_does(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000001000.index"
    offset_index(path, (1005, 500), (1013, 1300), (1024, 2400), base_offset=1000).trim(FILES)
    assert path.read_bytes().hex(" ", 4) == "00000005 000001f4 0000000d 00000514 00000018 00000960"


def test_writes_a_time_index_as_apache_kafka_does(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000001000.timeindex"
    made = TimeIndex(path, 1000, INDEX_BYTES)
    made.append(FILES, 1_700_000_000_000, 1005)
    made.append(FILES, 1_700_000_000_001, 1013)
    made.trim(FILES)
    assert path.read_bytes().hex(" ", 4) == "0000018b cfe56800 00000005 0000018b cfe56801 0000000d"


@pytest.mark.parametrize(("offset", "position"), [(0, 0), (4, 0), (5, 500), (20, 1300), (24, 2400), (9**18, 2400)])
def test_a_look_up_gives_the_last_entry_at_or_below_the_offset(tmp_path: Path, offset: int, position: int) -> None:
    assert offset_index(tmp_path / "i", (5, 500), (13, 1300), (24, 2400)).lookup(offset) == position


def test_a_time_between_two_entries_is_looked_up_from_the_earlier(tmp_path: Path) -> None:
    made = TimeIndex(tmp_path / "t", 100, INDEX_BYTES)
    made.append(FILES, 10, 105)
    made.append(FILES, 20, 113)
    assert made.lookup(9) == (NO_TIMESTAMP, 100)
    assert made.lookup(10) == made.lookup(19) == TimestampOffset(10, 105)
    assert made.lookup(99) == made.last == (20, 113)


def test_a_time_index_takes_no_entry_that_is_not_later(tmp_path: Path) -> None:
    made = TimeIndex(tmp_path / "t", 0, INDEX_BYTES)
    for timestamp_ms, offset in [(10, 1), (10, 2), (9, 3), (11, 4)]:
        made.append(FILES, timestamp_ms, offset)
    assert list(made.keys) == [10, 11]


def test_the_unused_zeros_of_a_mapped_index_are_no_entries(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.index"
    path.write_bytes(struct.pack(">iiii", 7, 4096, 300, 8192) + bytes(10 << 20))
    assert list(OffsetIndex.load(FILES, path, 0, INDEX_BYTES).values) == [4096, 8192]


def test_an_index_is_full_at_its_configured_size_and_a_time_index_one_entry_before(tmp_path: Path) -> None:
    offsets, times = OffsetIndex(tmp_path / "i", 0, 17), TimeIndex(tmp_path / "t", 0, 24)
    offsets.append(FILES, 1, 100)
    was_full = offsets.is_full
    offsets.append(FILES, 2, 200)
    times.append(FILES, 1, 1)
    assert (was_full, offsets.is_full) == (False, True)
    assert times.is_full


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">iiii", 7, 4096, 7, 8192),
        struct.pack(">iiii", 7, 4096, 8, 4096),
        struct.pack(">ii", -7, 4096),
        struct.pack(">iiB", 7, 4096, 9),
    ],
    ids=["same offset twice", "same position twice", "negative", "half an entry"],
)
def test_refuses_what_is_no_offset_index(data: bytes) -> None:
    with pytest.raises(CorruptIndex):
        OffsetIndex.read_columns(data, "i")


@given(st.binary(max_size=200))
def test_any_bytes_are_an_ascending_index_or_corrupt(data: bytes) -> None:
    for reader in (OffsetIndex.read_columns, TimeIndex.read_columns):
        try:
            keys, values = reader(data, "any")
        except CorruptIndex:
            continue
        assert list(keys) == sorted(set(keys))
        assert list(values) == sorted(values)
        assert all(number >= 0 for number in [*keys, *values])


ENTRIES = st.lists(st.tuples(st.integers(0, 500), st.integers(1, 2**31 - 1)), max_size=60)


@given(ENTRIES, st.integers(-10, 600), st.integers(0, 600))
def test_an_index_behaves_like_a_list_of_pairs(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[int, int]], target: int, cut: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "model.index"
    path.unlink(missing_ok=True)
    offsets = sorted({offset for offset, _ in pairs})
    positions = sorted({position for _, position in pairs})[: len(offsets)]
    model = list(zip(offsets, positions, strict=False))
    made = offset_index(path, *model)
    assert made.lookup(target) == max((p for o, p in model if o <= target), default=0)
    made.trim(FILES)
    made.truncate_to(cut)
    made.trim(FILES)
    model = [(offset, position) for offset, position in model if offset < cut]
    again = OffsetIndex.load(FILES, path, 0, INDEX_BYTES)
    assert list(zip(again.keys, again.values, strict=True)) == model
    assert path.stat().st_size == 8 * len(model)
