"""Columns of bytes in Arrow's layout, without Arrow.

    BinaryColumn   offsets int32[n + 1] | data bytes | validity, one bit a row, least significant first (None: no nulls)
                   row i is data[offsets[i]:offsets[i + 1]]
    HeadersColumn  list_offsets int32[n + 1] over a column of names and one of values: Arrow's list<struct>

`pyarrow.py_buffer` wraps each of these buffers without a copy, and Arrow's buffers can be used here. Source:
Arrow's columnar format, "Variable-size Binary Layout" and "Variable-size List Layout".
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Literal, NamedTuple, TypeAlias

Buffer: TypeAlias = "bytes | bytearray | memoryview | array[int]"

_INT64_ZERO = array("q", [0])
_INT32_ZERO = array("i", [0])


class BinaryColumn(NamedTuple):
    """Rows of bytes or nulls.

    `offsets` is int32[rows + 1]. `validity` has one bit a row, least significant first, or is None without nulls.
    """

    offsets: Buffer
    data: Buffer
    validity: Buffer | None
    null_count: int

    def value(self, row: int) -> bytes | None:
        """The bytes of one row, or None. Slow: for tests and inspection, not for loops."""
        if self.validity is not None and not as_bytes(self.validity)[row >> 3] >> (row & 7) & 1:
            return None
        offsets = as_int32s(self.offsets)
        return bytes(as_bytes(self.data)[offsets[row] : offsets[row + 1]])


class HeadersColumn(NamedTuple):
    """The headers of each row: the entries [list_offsets[row], list_offsets[row + 1]) of `keys` and `values`."""

    list_offsets: Buffer
    keys: BinaryColumn
    values: BinaryColumn


def int64s(count: int) -> array[int]:
    """A new int64 buffer with `count` zeros."""
    return _INT64_ZERO * count


def int32s(count: int) -> array[int]:
    """A new int32 buffer with `count` zeros."""
    return _INT32_ZERO * count


def column_of(rows: Sequence[bytes | None]) -> BinaryColumn:
    """A column with a copy of some rows. None is null."""
    null_count = rows.count(None)
    offsets = array("i", accumulate((0 if row is None else len(row) for row in rows), initial=0))
    if null_count == 0:
        return BinaryColumn(offsets, b"".join(rows), None, 0)  # type: ignore[arg-type]  # none is None
    validity = bytearray((len(rows) + 7) // 8)
    for index, row in enumerate(rows):
        if row is not None:
            validity[index >> 3] |= 1 << (index & 7)
    return BinaryColumn(offsets, b"".join(row for row in rows if row is not None), validity, null_count)


def as_bytes(buf: Buffer) -> memoryview:
    """A view of a buffer as bytes, without a copy."""
    return _cast(memoryview(buf), "B")


def as_int32s(buf: Buffer) -> memoryview:
    """A view of a buffer as int32 numbers, without a copy."""
    return _cast(memoryview(buf), "i")


def as_int64s(buf: Buffer) -> memoryview:
    """A view of a buffer as int64 numbers, without a copy."""
    return _cast(memoryview(buf), "q")


def _cast(view: memoryview, item: Literal["B", "i", "q"]) -> memoryview:
    """`view` as numbers of another type. Python cannot cast an empty view, so that becomes a new one."""
    if view.format == item:
        return view
    return view.cast("B").cast(item) if view.nbytes else memoryview(array(item))
