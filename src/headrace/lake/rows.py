"""The rows of one snapshot, read in batches by place and time, without an engine.

    files of the snapshot ─bounds in the log─▶ files ─statistics─▶ row groups ─▶ batches ─filter─▶ rows

A file is opened only if its bounds in the table's log allow rows that are wanted, and of a file only such row groups
are read. Memory is that of one batch, whatever the table. Files may lack columns that the table got later: their rows
have null there, also inside objects.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from math import ceil
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.lake.delta.delta_table import FileStatistics, LoadTable
from headrace.lake.delta.unsupported import UnsupportedTableError
from headrace.types import OffsetRange

BATCH_ROWS = 65_536
_BY = ("topic", "partition", "offset", "timestamp")


class WantedRows(NamedTuple):
    """Which rows: those of a topic, of a range of one partition, of a time. `until` is exclusive."""

    topic: str
    range: OffsetRange | None = None
    since: datetime | None = None
    until: datetime | None = None


def read_rows(
    table: LoadTable, wanted: WantedRows, schema: pa.Schema | None = None, batch_rows: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """The rows, with the columns of `schema` (None: those of the table). Raises UnsupportedTableError for a table whose
    files have rows that were deleted."""
    check_readable(table)
    columns = table.arrow_schema if schema is None else schema
    for one in sorted(wanted_files(table, wanted), key=lambda each: each.offsets[0] if each.offsets else 0):
        with table.location.open(one.path) as source:
            yield from _rows_of(pq.ParquetFile(source, coerce_int96_timestamp_unit="us"), wanted, columns, batch_rows)


def wanted_files(table: LoadTable, wanted: WantedRows) -> list[FileStatistics]:
    """The files that may have such rows, by their bounds in the table's log."""
    return [one for one in table.file_bounds if _may_have(one, wanted)]


def rows_about(files: Iterable[FileStatistics], wanted: WantedRows) -> int | None:
    """About how many rows of the wanted times the files have, if these are spread evenly; None if nobody knows."""
    total = 0.0
    for one in files:
        if one.rows is None or one.times is None:
            return None
        first, last = one.times
        span = last - first
        since = first if wanted.since is None else max(first, wanted.since)
        until = last if wanted.until is None else min(last, wanted.until)
        total += one.rows * ((until - since) / span if span else 1)
    return ceil(total)


def check_readable(table: LoadTable) -> None:
    """Raises UnsupportedTableError if not every row of the files counts."""
    if table.has_deletion_vectors:
        raise UnsupportedTableError(
            f"the table {table.location} may have deletion vectors, so not every row of its files counts: read it with "
            "a reader of Delta tables"
        )


def first_offset(table: LoadTable, wanted: WantedRows) -> int | None:
    """An offset before which no row is wanted, by the bounds of files; None if no file has one."""
    found = [one.offsets[0] if one.offsets else 0 for one in wanted_files(table, wanted)]
    return min(found, default=None)


def fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with the columns of `schema`: null where it has none."""
    names = batch.schema.names
    arrays = [
        _fitted(batch.column(field.name), field.type) if field.name in names else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _fitted(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    if pa.types.is_struct(kind):
        parts = dict(zip((field.name for field in array.type), array.flatten(), strict=True))
        inner = [
            _fitted(parts[field.name], field.type) if field.name in parts else pa.nulls(len(array), field.type)
            for field in kind
        ]
        return pa.StructArray.from_arrays(inner, fields=list(kind), mask=array.is_null())
    if pa.types.is_list(kind):
        values = _fitted(array.values, kind.value_type)
        return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], array.null_count, array.offset, [values])
    return array.cast(kind)


def _may_have(one: FileStatistics, wanted: WantedRows) -> bool:
    """Whether a file may have such rows. Bounds that it does not tell allow any."""
    return (
        _overlaps(one.topics, wanted.topic, wanted.topic)
        and (
            wanted.range is None
            or (
                _overlaps(one.partitions, wanted.range.partition, wanted.range.partition)
                and _overlaps(one.offsets, wanted.range.start, wanted.range.end - 1)
            )
        )
        and (wanted.since is None or one.times is None or one.times[1] >= wanted.since)
        and (wanted.until is None or one.times is None or one.times[0] < wanted.until)
    )


def _overlaps(bounds: tuple[Any, Any] | None, low: Any, high: Any) -> bool:
    return bounds is None or (bounds[0] <= high and low <= bounds[1])


def _rows_of(file: pq.ParquetFile, wanted: WantedRows, schema: pa.Schema, batch_rows: int) -> Iterator[pa.RecordBatch]:
    known = file.schema_arrow.names
    read = list(dict.fromkeys(name for name in (*schema.names, *_BY) if name in known))
    places = {file.schema.column(index).path: index for index in range(len(file.schema.names))}
    groups = [
        index
        for index in range(file.num_row_groups)
        if _may_have(_group_bounds(file.metadata.row_group(index), places), wanted)
    ]
    if not groups:
        return
    for batch in file.iter_batches(batch_size=batch_rows, row_groups=groups, columns=read):
        found = batch.filter(_mask(batch, wanted))
        if found.num_rows:
            yield fitted(found, schema)


def _group_bounds(group: pq.RowGroupMetaData, places: dict[str, int]) -> FileStatistics:
    bounds: list[tuple[Any, Any] | None] = []
    for name in _BY:
        statistics = group.column(places[name]).statistics if name in places else None
        try:
            has_bounds = statistics is not None and statistics.has_min_max
            bounds.append((statistics.min, statistics.max) if statistics is not None and has_bounds else None)
        except (OverflowError, ValueError):  # a time of no calendar
            bounds.append(None)
    topics, partitions, offsets, times = bounds
    return FileStatistics("", topics, partitions, offsets, times)


def _mask(batch: pa.RecordBatch, wanted: WantedRows) -> pa.Array:
    column = {name: batch.column(name) for name in _BY}
    conditions: Sequence[Any] = [pc.equal(column["topic"], wanted.topic)]
    if wanted.range is not None:
        conditions = [
            *conditions,
            pc.equal(column["partition"], wanted.range.partition),
            pc.greater_equal(column["offset"], wanted.range.start),
            pc.less(column["offset"], wanted.range.end),
        ]
    kind = column["timestamp"].type
    if wanted.since is not None:
        conditions = [*conditions, pc.greater_equal(column["timestamp"], _moment(wanted.since, kind))]
    if wanted.until is not None:
        conditions = [*conditions, pc.less(column["timestamp"], _moment(wanted.until, kind))]
    mask = conditions[0]
    for one in conditions[1:]:
        mask = pc.and_(mask, one)
    return mask


def _moment(time: datetime, kind: pa.DataType) -> pa.Scalar:
    return pa.scalar(time, pa.timestamp("us", "UTC")).cast(kind)
