"""Converts columns of keys and values given by callers into Arrow-layout buffers.

Used without a copy: `BinaryColumn`, and pyarrow binary or string arrays (int32 offsets) through their Arrow C data.
Other columns with the Arrow PyCapsule interface (polars, DuckDB, nanoarrow) become such arrays where pyarrow is there.
Joined once: any sequence of bytes or None. pyarrow is recognised by duck typing, and imported for these alone.

    rows      0        1      2 (null)   3
    offsets   0        5      7          7      9         int32[n + 1]
    data      h e l l o w o   r l                          bytes
    validity  1 1 0 1                                      LSB first; absent when no row is null
"""

from __future__ import annotations

import warnings
from array import array
from collections.abc import Iterable, Mapping, Sequence, Sized
from itertools import accumulate
from typing import Any, Protocol, TypeAlias, TypeGuard, runtime_checkable

from headrace.client.core.record_times import checked_ms, is_in_seconds
from headrace.client.core.timing import now_ms
from headrace.client.producer.delivery import ColumnSlice
from headrace.client.producer.mistakes import column_refusal, no_column
from headrace.errors import InvalidRecord
from headrace.limits import INT32_MAX
from headrace.records.format2.columns import BinaryColumn, HeadersColumn
from headrace.records.format2.columns import column_of as records_column_of

_FRAMES = ("pandas", "polars", "numpy")

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]


@runtime_checkable
class ArrowArray(Protocol):
    """The parts in use of pyarrow.BinaryArray, StringArray, or ChunkedArray of these."""

    @property
    def null_count(self) -> int: ...
    @property
    def type(self) -> object: ...
    def __len__(self) -> int: ...


class Listable(Protocol):
    """A column of pandas or numpy."""

    def __len__(self) -> int: ...
    def tolist(self) -> Any: ...


class ArrowExporter(Protocol):
    """A column with the Arrow PyCapsule interface."""

    def __arrow_c_array__(self, requested_schema: object = None) -> Any: ...


class ArrowStreamExporter(Protocol):
    """A column in chunks with the Arrow PyCapsule interface."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any: ...


ColumnLike: TypeAlias = (
    BinaryColumn | Sequence[bytes | None] | ArrowArray | Listable | ArrowExporter | ArrowStreamExporter
)


def column_of(given: ColumnLike | None, name: str = "values") -> BinaryColumn | None:
    """`given` as a column; None if it is None or has only nulls. Raises InvalidRecord, which has its name."""
    if given is None or isinstance(given, BinaryColumn):
        return given
    if _is_arrow(given):
        return _column_of_arrow(given)
    values: Any = _exported(given)
    if _is_arrow(values):
        return _column_of_arrow(values)
    if isinstance(values, str | bytes | bytearray | memoryview | Mapping) or not isinstance(values, Sized):
        raise no_column(name, values)
    if _library(values) in _FRAMES:
        values = _listed(values, name)
    try:
        return column_of_values(values)
    except (TypeError, AttributeError) as cause:
        raise column_refusal(name, values, cause) from cause


def _exported(given: Any) -> Any:
    """A column with the PyCapsule interface as one of pyarrow, if that is installed; others as they are."""
    is_stream = hasattr(given, "__arrow_c_stream__")
    if not (is_stream or hasattr(given, "__arrow_c_array__")) or hasattr(given, "columns"):
        return given
    try:
        import pyarrow
    except ModuleNotFoundError:
        return given
    return pyarrow.chunked_array(given) if is_stream else pyarrow.array(given)


def _listed(given: Any, name: str) -> list[bytes | None]:
    """A column of pandas, polars or numpy as a list: its text encoded, its missing values None."""
    if hasattr(given, "columns"):
        raise no_column(name, given)
    values = given.to_list() if hasattr(given, "to_list") else given.tolist()
    return [each.encode() if isinstance(each, str) else None if each != each else each for each in values]


def row_count(column: BinaryColumn) -> int:
    """The number of rows of the column."""
    return memoryview(column.offsets).nbytes // 4 - 1


def column_of_values(values: Sequence[bytes | None]) -> BinaryColumn | None:
    """Bytes joined into a column; None if every value is None. ValueError above 2 GiB, the limit of int32 offsets."""
    try:
        column = records_column_of(values)
    except OverflowError:
        raise ValueError(f"a column can have at most {INT32_MAX} bytes: send it in parts") from None
    return column if column.null_count < len(values) else None


def headers_column(rows: Sequence[Headers]) -> HeadersColumn:
    """Headers of each row as list offsets over a column of names and one of values."""
    flat = [header for headers in rows for header in headers]
    names = records_column_of([name.encode() for name, _ in flat])
    values = records_column_of([value for _, value in flat])
    return HeadersColumn(array("i", accumulate(map(len, rows), initial=0)), names, values)


def int64_column(values: Iterable[int] | ArrowArray | memoryview) -> array[int] | memoryview:
    """Milliseconds as an int64 buffer: an array, a memoryview, or a pyarrow int64 or timestamp[ms] array as it is."""
    if isinstance(values, memoryview):
        return values.cast("B").cast("q")
    if isinstance(values, array):
        return values if values.typecode == "q" else array("q", values)
    if _is_arrow(values):
        return _int64_of_arrow(values)
    assert not isinstance(values, ArrowArray)
    return array("q", values)


def _is_arrow(given: object) -> TypeGuard[ArrowArray]:
    return _library(given) == "pyarrow"


def _library(given: object) -> str:
    return type(given).__module__.partition(".")[0]


def _column_of_arrow(given: Any) -> BinaryColumn | None:
    import pyarrow

    whole = given.combine_chunks() if isinstance(given, pyarrow.ChunkedArray) else given
    if isinstance(whole, pyarrow.ChunkedArray):
        whole = pyarrow.concat_arrays(whole.chunks)
    if whole.null_count == len(whole):
        return None
    if not (pyarrow.types.is_binary(whole.type) or pyarrow.types.is_string(whole.type)):
        whole = whole.cast(pyarrow.binary())
    if whole.null_count and whole.offset % 8:
        whole = pyarrow.concat_arrays([whole, whole.slice(0, 0)])
    start, count = whole.offset, len(whole)
    validity, offsets, data = whole.buffers()
    bitmap = None
    if whole.null_count:
        bitmap = memoryview(validity)[start // 8 : (start + count + 7) // 8]
    slots = memoryview(offsets).cast("B")[4 * start : 4 * (start + count + 1)]
    return BinaryColumn(slots, memoryview(data) if data is not None else b"", bitmap, whole.null_count)


def _int64_of_arrow(given: Any) -> memoryview:
    import pyarrow

    whole = given.combine_chunks() if isinstance(given, pyarrow.ChunkedArray) else given
    if pyarrow.types.is_timestamp(whole.type):
        whole = whole.cast(pyarrow.timestamp("ms", whole.type.tz)).cast(pyarrow.int64())
    elif not pyarrow.types.is_int64(whole.type):
        whole = whole.cast(pyarrow.int64())
    if whole.null_count:
        raise ValueError("a record's timestamp cannot be null")
    return memoryview(whole.buffers()[1]).cast("B")[8 * whole.offset : 8 * (whole.offset + len(whole))].cast("q")


def slice_of(
    keys: ColumnLike | None,
    values: ColumnLike | None,
    timestamps_ms: int | Sequence[int] | memoryview | None,
    headers: Sequence[Headers] | HeadersColumn | None,
) -> ColumnSlice:
    """The arguments as columns of one length. Raises InvalidRecord if the lengths differ, or for a wrong value."""
    given = {"keys": keys, "values": values, "timestamps_ms": timestamps_ms, "headers": headers}
    lengths = {name: _length(column) for name, column in given.items() if _length(column) is not None}
    counts = set(lengths.values())
    if len(counts) != 1:
        described = ", ".join(f"{name}: {count}" for name, count in lengths.items())
        raise InvalidRecord(f"columns must have the same length, but they have {described or 'none'}")
    count = counts.pop()
    assert count is not None
    times: array[int] | memoryview
    if timestamps_ms is None or not isinstance(timestamps_ms, Sized):
        times = array("q", [now_ms() if timestamps_ms is None else checked_ms(timestamps_ms)]) * count
    else:
        times = _times_of(timestamps_ms)
    made = headers if headers is None or isinstance(headers, HeadersColumn) else headers_column(headers)
    return ColumnSlice(column_of(keys, "keys"), column_of(values), times, made, 0, count)


def _times_of(given: Any) -> array[int] | memoryview:
    """Times as an int64 buffer. The first one shows the unit. Seconds are a warning: a column may be a copy of data."""
    plain = given.tolist() if _library(given) in ("pandas", "numpy") else given
    try:
        times = int64_column(plain)
    except TypeError:
        for each in plain:
            checked_ms(each)
        raise
    if len(times) and is_in_seconds(times[0]):
        warnings.warn(
            f"timestamps_ms[0]={times[0]} is in seconds (as milliseconds it is early 1970): multiply by 1000",
            stacklevel=4,
        )
    return times


def _length(column: object) -> int | None:
    if isinstance(column, BinaryColumn):
        return row_count(column)
    if isinstance(column, HeadersColumn):
        return memoryview(column.list_offsets).nbytes // 4 - 1
    return len(column) if isinstance(column, Sized) else None
