"""Columns cut apart by the partition that each row's key chooses, rows of one partition in their order.

    row        0  1  2  3  4          partition 0: rows 0 3
    key        a  b  c  a  -    ─▶    partition 1: rows 1 4 (no key: the sticky one)
    partition  0  1  2  0  1          partition 2: row  2

Source: what Java's producer does record by record.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

from headrace.client.delivery import ColumnSlice
from headrace.records.columns import BinaryColumn, HeadersColumn, column_of, partitions_of


def scatter(rows: ColumnSlice, partition_count: int, keyless: int) -> Iterator[tuple[int, ColumnSlice]]:
    """Each partition with its rows as columns of their own; rows without a key go to `keyless`."""
    assert rows.keys is not None, "rows without keys need no scattering"
    chosen = partitions_of(rows.keys, rows.start, rows.stop, partition_count)
    members: list[list[int]] = [[] for _ in range(partition_count)]
    add = [member.append for member in members]
    keyless_add = add[keyless]
    for row, partition in enumerate(chosen, rows.start):
        (add[partition] if partition >= 0 else keyless_add)(row)
    for partition, member in enumerate(members):
        if len(member) == rows.stop - rows.start:
            yield partition, rows
        elif member:
            yield partition, take(rows, member)


def take(rows: ColumnSlice, indices: Sequence[int]) -> ColumnSlice:
    """The rows at `indices`, in that order."""
    times = rows.timestamps_ms
    return ColumnSlice(
        _take_binary(rows.keys, indices),
        _take_binary(rows.values, indices),
        array("q", [times[row] for row in indices]),
        _take_headers(rows.headers, indices),
        0,
        len(indices),
    )


def _take_binary(column: BinaryColumn | None, indices: Sequence[int]) -> BinaryColumn | None:
    if column is None:
        return None
    if column.validity is not None:
        return column_of([column.value(row) for row in indices])
    ends = memoryview(column.offsets).cast("B").cast("i")
    data = memoryview(column.data).cast("B")
    return column_of([data[ends[row] : ends[row + 1]] for row in indices])  # type: ignore[misc]  # joined, not kept


def _take_headers(headers: HeadersColumn | None, indices: Sequence[int]) -> HeadersColumn | None:
    if headers is None:
        return None
    lists = memoryview(headers.list_offsets).cast("B").cast("i")
    flat = [entry for row in indices for entry in range(lists[row], lists[row + 1])]
    offsets = array("i", [0])
    for row in indices:
        offsets.append(offsets[-1] + lists[row + 1] - lists[row])
    names, values = _take_binary(headers.keys, flat), _take_binary(headers.values, flat)
    assert names is not None and values is not None
    return HeadersColumn(offsets, names, values)
