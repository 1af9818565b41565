"""Columns as callers have them: Arrow arrays, lists, ready columns; shared where they can be."""

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.producer.column_input import column_of, headers_column, int64_column, row_count

VALUES = st.lists(st.one_of(st.none(), st.binary(max_size=12)), min_size=1, max_size=60)


def rows_of(given_column: object) -> list[bytes | None]:
    column = column_of(given_column)  # type: ignore[arg-type]
    assert column is not None
    return [column.value(row) for row in range(row_count(column))]


@given(VALUES, st.integers(0, 20), st.integers(0, 60))
def test_a_slice_of_an_arrow_array_reads_as_its_rows(values: list[bytes | None], start: int, length: int) -> None:
    array = pyarrow.array(values, pyarrow.binary()).slice(start, length)
    expected = values[start : start + length]
    if all(value is None for value in expected):
        assert column_of(array) is None
    else:
        assert rows_of(array) == expected


@given(VALUES)
def test_a_list_reads_as_its_rows(values: list[bytes | None]) -> None:
    if any(value is not None for value in values):
        assert rows_of(values) == values
    else:
        assert column_of(values) is None


def test_chunks_large_binaries_and_strings_are_taken_too() -> None:
    chunked = pyarrow.chunked_array([[b"a"], [b"b", None]], pyarrow.binary())
    assert rows_of(chunked) == [b"a", b"b", None]
    assert rows_of(pyarrow.array([b"x"], pyarrow.large_binary())) == [b"x"]
    assert rows_of(pyarrow.array(["é"])) == ["é".encode()]


def test_arrow_data_is_shared_not_copied() -> None:
    array = pyarrow.array([b"abc"] * 100, pyarrow.binary())
    column = column_of(array)
    assert column is not None
    address = pyarrow.py_buffer(column.data).address
    assert address == array.buffers()[2].address


def test_times_come_from_arrow_timestamps_in_milliseconds() -> None:
    array = pyarrow.array([1_500_000, 2_500_000], pyarrow.timestamp("us", "UTC"))
    assert list(int64_column(array)) == [1500, 2500]
    assert list(int64_column(pyarrow.array([1, 2, 3], pyarrow.int64()).slice(1))) == [2, 3]
    assert list(int64_column([7, 8])) == [7, 8]


def test_a_null_time_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be null"):
        int64_column(pyarrow.array([1, None], pyarrow.int64()))


def test_headers_keep_their_rows() -> None:
    column = headers_column([[], [("a", b"1"), ("b", None)], [("c", b"")]])
    assert list(column.list_offsets) == [0, 0, 2, 3]
    assert [column.keys.value(row) for row in range(3)] == [b"a", b"b", b"c"]
    assert [column.values.value(row) for row in range(3)] == [b"1", None, b""]
