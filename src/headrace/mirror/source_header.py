"""The header by which a mirrored record says where it came from, so that two mirrors do not send it round for ever.

    headrace.source    CLUSTER ID/TOPIC/PARTITION/OFFSET

A record that passes through several clusters has one header for each, in the order of its way.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from headrace.records.binary import BinaryColumn, HeadersColumn, as_bytes, as_int32s, column_of
from headrace.records.format2.columns import RecordColumns
from headrace.types import TopicPartition

HEADER = b"headrace.source"

Entry = tuple[bytes, bytes | None]


class MarkedRecords(NamedTuple):
    """The headers of some records, and which of them are to be sent."""

    headers: HeadersColumn
    kept: Sequence[int] | None
    """The rows that go on; None: all. `headers` has those alone."""


def marked(columns: RecordColumns, partition: TopicPartition, source: str, target: str) -> MarkedRecords:
    """The records' headers with that of this source. Records that came from `target` are not kept."""
    start = f"{source}/{partition.topic}/{partition.partition}/".encode()
    places = [start + b"%d" % offset for offset in columns.offsets]
    given = columns.headers
    if given is None or not len(as_bytes(given.keys.offsets)) // 4 - 1:
        return MarkedRecords(_one_each(places), None)
    rows = _rows(given)
    own = f"{target}/".encode()
    kept = [
        number
        for number, row in enumerate(rows)
        if not any(name == HEADER and value is not None and value.startswith(own) for name, value in row)
    ]
    found = [[*rows[number], (HEADER, places[number])] for number in kept]
    return MarkedRecords(_column(found), None if len(kept) == len(rows) else kept)


def _one_each(places: Sequence[bytes]) -> HeadersColumn:
    count, size = len(places), len(HEADER)
    names = BinaryColumn(array("i", range(0, (count + 1) * size, size)), HEADER * count, None, 0)
    return HeadersColumn(array("i", range(count + 1)), names, column_of(places))


def _rows(headers: HeadersColumn) -> list[list[Entry]]:
    ends = as_int32s(headers.list_offsets)
    entries = [
        (headers.keys.value(number) or b"", headers.values.value(number))
        for number in range(ends[0], ends[len(ends) - 1])
    ]
    first = ends[0]
    return [entries[ends[row] - first : ends[row + 1] - first] for row in range(len(ends) - 1)]


def _column(rows: Sequence[Sequence[Entry]]) -> HeadersColumn:
    flat = [entry for row in rows for entry in row]
    return HeadersColumn(
        array("i", accumulate(map(len, rows), initial=0)),
        column_of([name for name, _ in flat]),
        column_of([value for _, value in flat]),
    )


def taken(column: BinaryColumn | None, rows: Sequence[int]) -> BinaryColumn | None:
    """Some rows of a column."""
    return None if column is None else column_of([column.value(row) for row in rows])
