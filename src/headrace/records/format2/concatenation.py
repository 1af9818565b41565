"""Concatenates the columns of several scans, as a scan over several formats needs. Source: Arrow's columnar layout."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate

from headrace.records.binary import BinaryColumn, HeadersColumn, as_bytes, as_int32s
from headrace.records.format2.columns import RecordColumns


def concat_columns(parts: Sequence[RecordColumns], next_offset: int, bytes_consumed: int) -> RecordColumns:
    """Concatenate the rows of at least one scan of a partition, in order. All scans have the same columns.

    `next_offset` and `bytes_consumed` are those of the result.
    """
    offsets, timestamps, types = array("q"), array("q"), bytearray()
    for part in parts:
        offsets += part.offsets
        timestamps += part.timestamps_ms
        types += part.timestamp_types
    counts = [part.count for part in parts]
    keys = [part.keys for part in parts if part.keys is not None]
    values = [part.values for part in parts if part.values is not None]
    headers = [part.headers for part in parts if part.headers is not None]
    return RecordColumns(
        len(offsets),
        offsets,
        timestamps,
        types,
        _concat_binary(keys, counts) if keys else None,
        _concat_binary(values, counts) if values else None,
        _concat_headers(headers, counts) if headers else None,
        next_offset,
        bytes_consumed,
    )


def _concat_binary(columns: list[BinaryColumn], counts: list[int]) -> BinaryColumn:
    """Concatenate columns. `counts` has the number of rows of each column."""
    null_count = sum(column.null_count for column in columns)
    data = b"".join(
        as_bytes(column.data)[: as_int32s(column.offsets)[rows]] for column, rows in zip(columns, counts, strict=True)
    )
    offsets = _concat_offsets([as_int32s(column.offsets) for column in columns], counts)
    if not null_count:
        return BinaryColumn(offsets, data, None, 0)
    bits = at = 0
    for column, rows in zip(columns, counts, strict=True):
        mask = (1 << rows) - 1
        if column.null_count and column.validity is not None:
            mask &= int.from_bytes(as_bytes(column.validity), "little")
        bits |= mask << at
        at += rows
    return BinaryColumn(offsets, data, bits.to_bytes((at + 7) // 8, "little"), null_count)


def _concat_offsets(columns: list[memoryview], counts: list[int]) -> array[int]:
    """Concatenate offset columns. Each is shifted by the end of the one before."""
    ends = accumulate((column[rows] for column, rows in zip(columns, counts, strict=True)), initial=0)
    out = array("i", [0])
    for column, rows, shift in zip(columns, counts, ends, strict=False):
        moved = column[1 : rows + 1]
        out.extend(moved if shift == 0 else (offset + shift for offset in moved))
    return out


def _concat_headers(columns: list[HeadersColumn], counts: list[int]) -> HeadersColumn:
    list_offsets = [as_int32s(column.list_offsets) for column in columns]
    entries = [lists[rows] for lists, rows in zip(list_offsets, counts, strict=True)]
    return HeadersColumn(
        _concat_offsets(list_offsets, counts),
        _concat_binary([column.keys for column in columns], entries),
        _concat_binary([column.values for column in columns], entries),
    )
