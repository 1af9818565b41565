"""Columns of bytes in Arrow's layout, without Arrow.

    BinaryColumn   offsets int32[n + 1] | data bytes | validity, one bit a row, least significant first (None: no nulls)
                   row i is data[offsets[i]:offsets[i + 1]]
    HeadersColumn  list_offsets int32[n + 1] over a column of names and one of values: Arrow's list<struct>

Every one of them can be wrapped by `pyarrow.py_buffer` without a copy, and Arrow's buffers can be built from. Source:
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
    """Rows of bytes, some of them null."""

    offsets: Buffer
    data: Buffer
    validity: Buffer | None
    null_count: int

    def value(self, row: int) -> bytes | None:
        """One row; for tests and for looking, not for loops."""
        if self.validity is not None and not as_bytes(self.validity)[row >> 3] >> (row & 7) & 1:
            return None
        offsets = as_int32s(self.offsets)
        return bytes(as_bytes(self.data)[offsets[row] : offsets[row + 1]])


class HeadersColumn(NamedTuple):
    """Each row's headers: entries `list_offsets[row]` to `list_offsets[row + 1]` of two columns."""

    list_offsets: Buffer
    keys: BinaryColumn
    values: BinaryColumn


def int64s(count: int) -> array[int]:
    """Zeros in an int64 buffer."""
    return _INT64_ZERO * count


def int32s(count: int) -> array[int]:
    """Zeros in an int32 buffer."""
    return _INT32_ZERO * count


def column_of(rows: Sequence[bytes | None]) -> BinaryColumn:
    """Some bytes as a column."""
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
    """A buffer's bytes."""
    return _cast(memoryview(buf), "B")


def as_int32s(buf: Buffer) -> memoryview:
    """A buffer's int32 numbers."""
    return _cast(memoryview(buf), "i")


def as_int64s(buf: Buffer) -> memoryview:
    """A buffer's int64 numbers."""
    return _cast(memoryview(buf), "q")


def _cast(view: memoryview, item: Literal["B", "i", "q"]) -> memoryview:
    """`view` as numbers of another type; Python cannot cast an empty one."""
    if view.format == item:
        return view
    return view.cast("B").cast(item) if view.nbytes else memoryview(array(item))
