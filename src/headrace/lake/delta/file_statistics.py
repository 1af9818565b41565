"""Delta's statistics of a Parquet file, from its footer: minValues, maxValues and nullCount of columns to skip by.

Columns of numbers, times and short texts have them. Left out: nested columns, bytes, and texts above `TEXT_MAX`, whose
bounds cost more in the log than they skip.
"""

from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

import pyarrow.parquet as pq

TEXT_MAX: Final = 64
_Bound: TypeAlias = int | float | str


def column_statistics(footer: pq.FileMetaData) -> dict[str, dict[str, _Bound]]:
    """The statistics of the columns that have them in every row group."""
    lows: dict[str, _Bound] = {}
    highs: dict[str, _Bound] = {}
    nulls: dict[str, _Bound] = {}
    groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
    for position in range(footer.num_columns):
        chunks = [group.column(position) for group in groups]
        column = footer.schema.column(position)
        with_values = [chunk for chunk in chunks if not _is_all_null(chunk)]
        found = [chunk.statistics for chunk in with_values if chunk.is_stats_set and chunk.statistics.has_min_max]
        if "." in column.path or not found or len(found) < len(with_values):
            continue
        try:
            low, high = min(one.min for one in found), max(one.max for one in found)
            bounds = (_bound(low, up=False), _bound(high, up=True)) if _is_useful(low) and _is_useful(high) else None
        except (OverflowError, ValueError):  # a time of no calendar, which a producer may send
            bounds = None
        if bounds is not None:
            lows[column.path], highs[column.path] = bounds
            nulls[column.path] = sum(chunk.statistics.null_count or 0 for chunk in chunks)
    return {"minValues": lows, "maxValues": highs, "nullCount": nulls}


def _is_all_null(chunk: pq.ColumnChunkMetaData) -> bool:
    return bool(chunk.is_stats_set and chunk.statistics.has_null_count and chunk.statistics.num_values == 0)


def _is_useful(value: object) -> bool:
    match value:
        case bool():
            return False
        case str():
            return len(value.encode()) <= TEXT_MAX
        case float():
            return value == value and abs(value) != float("inf")  # JSON has neither
        case int() | datetime():
            return True
        case _:
            return False


def _bound(value: _Bound | datetime, *, up: bool) -> _Bound:
    """Round a time outwards, because Delta stores milliseconds and would skip rows at the bounds."""
    if not isinstance(value, datetime):
        return value
    moment = value if value.tzinfo else value.replace(tzinfo=UTC)
    if up and moment.microsecond % 1000:
        moment += timedelta(milliseconds=1)
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
