"""The header of a mirrored record, in columns."""

from array import array

from hypothesis import given
from hypothesis import strategies as st

from headrace.mirror.source_header import HEADER, marked, taken
from headrace.records.binary import HeadersColumn, column_of
from headrace.records.format2.columns import RecordColumns
from headrace.types import TopicPartition

PARTITION = TopicPartition("t", 3)
Row = list[tuple[bytes, bytes | None]]


def columns(rows: list[Row] | None, first: int = 7) -> RecordColumns:
    count = 3 if rows is None else len(rows)
    headers = None
    if rows is not None:
        flat = [entry for row in rows for entry in row]
        ends = array("i", [0])
        for row in rows:
            ends.append(ends[-1] + len(row))
        headers = HeadersColumn(ends, column_of([name for name, _ in flat]), column_of([value for _, value in flat]))
    offsets = array("q", range(first, first + count))
    return RecordColumns(count, offsets, array("q", [0]) * count, bytearray(count), None, None, headers, 0, 0)


def rows_of(headers: HeadersColumn) -> list[Row]:
    ends = headers.list_offsets
    assert isinstance(ends, array)
    return [
        [(headers.keys.value(each) or b"", headers.values.value(each)) for each in range(ends[row], ends[row + 1])]
        for row in range(len(ends) - 1)
    ]


def test_records_without_headers_get_one_each() -> None:
    no_headers: list[Row] = [[], [], []]
    for given_rows in (None, no_headers):
        found = marked(columns(given_rows), PARTITION, "east", "west")
        assert rows_of(found.headers) == [[(HEADER, b"east/t/3/%d" % offset)] for offset in (7, 8, 9)]
        assert found.kept is None


def test_what_came_from_the_target_is_not_sent_back() -> None:
    back: Row = [(b"a", b"1"), (HEADER, b"west/t/3/1"), (HEADER, b"middle/t/3/1")]
    on: Row = [(HEADER, b"western/t/3/1"), (HEADER, None), (b"b", b"west/")]
    found = marked(columns([back, on, []]), PARTITION, "east", "west")
    assert found.kept == [1, 2]
    assert rows_of(found.headers) == [[*on, (HEADER, b"east/t/3/8")], [(HEADER, b"east/t/3/9")]]


@given(st.lists(st.lists(st.tuples(st.binary(max_size=3), st.none() | st.binary(max_size=3)), max_size=3), min_size=1))
def test_headers_stay_as_they_are(rows: list[Row]) -> None:
    found = marked(columns(rows), PARTITION, "east", "west")
    assert found.kept is None
    assert rows_of(found.headers) == [
        [*row, (HEADER, b"east/t/3/%d" % (7 + number))] for number, row in enumerate(rows)
    ]


def test_some_rows_of_a_column() -> None:
    column = taken(column_of([b"a", None, b"ccc"]), [1, 2])
    assert column is not None
    assert [column.value(0), column.value(1)] == [None, b"ccc"]
    assert taken(None, [1]) is None
