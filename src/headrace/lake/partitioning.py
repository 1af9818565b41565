"""How a table is divided into partitions: by the record's time, by its key, or by a field of its value.

    month, day, hour    record_month 2026-11, record_day 2026-11-27, record_hour 2026-11-27T13    of the timestamp, UTC
    bucket:N            key_bucket    CRC-32 of the key, modulo N; null without a key
    field:NAME          the column NAME

The column is in the files too, so that a reader of Parquet alone finds it. Rows that have no value there, as of a time
of no calendar, are a partition of their own.
"""

import re
import zlib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.client.consumer.arrow import TIMESTAMP
from headrace.config.lake_definition import PARTITIONS
from headrace.lake.decoding import Decoder
from headrace.records.format2.columns import RecordColumns
from headrace.types import TopicPartition

BUCKET_COLUMN: Final = "key_bucket"
_FORMATS: Final = {"month": "%Y-%m", "day": "%Y-%m-%d", "hour": "%Y-%m-%dT%H"}
_FIRST = pa.scalar(datetime(1, 1, 2, tzinfo=UTC), TIMESTAMP)
_LAST = pa.scalar(datetime(9999, 12, 30, tzinfo=UTC), TIMESTAMP)
_SAFE: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclass(frozen=True, slots=True)
class Partitioning:
    """The partitions of a table. `text` is as in a definition."""

    text: str
    column: str

    @classmethod
    def of(cls, text: str) -> "Partitioning":
        """Raises ValueError."""
        if not PARTITIONS.fullmatch(text):
            raise ValueError(f"{text!r}: expected month, day, hour, bucket:N (1 to 1024), or field:NAME")
        kind, _, name = text.partition(":")
        return cls(text, {"bucket": BUCKET_COLUMN, "field": name}.get(kind, f"record_{kind}"))

    @property
    def kind(self) -> str:
        return self.text.partition(":")[0]

    @property
    def buckets(self) -> int:
        return int(self.text.partition(":")[2])

    @property
    def own_field(self) -> pa.Field | None:
        """The column that it adds to a table; None where it is one of the values' own."""
        if self.kind == "field":
            return None
        return pa.field(self.column, pa.int32() if self.kind == "bucket" else pa.string())

    def values(self, batch: pa.RecordBatch) -> pa.Array:
        """The column that it adds."""
        if self.kind == "bucket":
            keys = batch.column("key").to_pylist()
            buckets = self.buckets
            return pa.array([None if key is None else zlib.crc32(key) % buckets for key in keys], pa.int32())
        times = batch.column("timestamp")
        is_usable = pc.and_(pc.greater_equal(times, _FIRST), pc.less_equal(times, _LAST))
        shown = pc.strftime(pc.if_else(is_usable, times, _FIRST).cast(pa.timestamp("us")), _FORMATS[self.kind])
        return pc.if_else(is_usable, shown, pa.scalar(None, pa.string()))

    def check(self, schema: pa.Schema) -> None:
        """Raises ValueError for a table that cannot be so divided."""
        if self.kind != "field":
            return
        at = schema.get_field_index(self.column)
        if at < 0:
            raise ValueError(
                f"partitions by field:{self.column} need a schema file that has it: a new table has the columns of the "
                "schema"
            )
        kind = schema.field(at).type
        if not (
            pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_date(kind)
        ):
            raise ValueError(
                f"a table cannot be divided by {self.column}, which is {kind}: text, whole numbers, and dates"
            )


def folder_of(column: str, value: str | None) -> str:
    """The folder of a partition's files; the table itself where the name of one would have to be encoded."""
    return f"{column}={value}/" if value is not None and _SAFE.fullmatch(value) else ""


class PartitionedDecoder:
    """A `Decoder` whose rows have the column of the partitions, too."""

    def __init__(self, inner: Decoder, partitioning: Partitioning) -> None:
        self._inner = inner
        self._partitioning = partitioning

    @property
    def schema(self) -> pa.Schema:
        return _with(self._inner.schema, self._partitioning.own_field)

    @property
    def widens(self) -> bool:
        return self._inner.widens

    @widens.setter
    def widens(self, is_allowed: bool) -> None:
        self._inner.widens = is_allowed

    @property
    def rescued(self) -> int:
        return self._inner.rescued

    def decode(self, columns: RecordColumns, partition: TopicPartition) -> pa.RecordBatch:
        """One row for each record, in order."""
        batch = self._inner.decode(columns, partition)
        field = self._partitioning.own_field
        return batch if field is None else batch.append_column(field, self._partitioning.values(batch))


def partitioned(decoder: Decoder, partition_by: str | None) -> Decoder:
    """The decoder for a table with these partitions."""
    return decoder if partition_by is None else PartitionedDecoder(decoder, Partitioning.of(partition_by))


def _with(schema: pa.Schema, field: pa.Field | None) -> pa.Schema:
    return schema if field is None else schema.append(field)
