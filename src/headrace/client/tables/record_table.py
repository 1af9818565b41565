"""A table of records, in Arrow, which other libraries take without a copy.

Whatever knows the Arrow PyCapsule interface takes the table itself: `polars.DataFrame(table)`,
`duckdb.sql("SELECT ... FROM table")` by way of `to_arrow`, `pyarrow.table(table)`, a DataFusion or Delta Lake writer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import pyarrow
import pyarrow.compute

from headrace.client.consumer.arrow import to_record_batch
from headrace.client.serializers.errors import missing_library
from headrace.columns.arrow_types import Array, ChunkedArray, Schema, Table
from headrace.columns.decoded import RESCUED, Decoded
from headrace.columns.json_columns import JsonDecoder
from headrace.columns.json_schema import infer_json_schema
from headrace.errors import InvalidConfig
from headrace.records.format2.columns import RecordColumns
from headrace.types import TopicPartition

PLACE = ("partition", "offset", "timestamp")
_RESERVED = frozenset((*PLACE, "topic", "key", "headers", "timestampType"))


class ColumnDecoder(Protocol):
    """What makes columns of values, such as JsonDecoder and AvroDecoder."""

    def decode(self, values: Array | ChunkedArray) -> Decoded:
        """One row for each value."""


Values: TypeAlias = "str | Schema | ColumnDecoder"
"""bytes, string, json (the schema is inferred), the schema of JSON values, or a decoder."""


class RecordTable:
    """Records in columns: partition, offset, timestamp, key, and the value or its fields.

    `rescued_count` is the number of values that are not whole in their columns; they are in the column
    `rescued_value`, and null elsewhere.
    """

    def __init__(self, table: Table, rescued_count: int = 0) -> None:
        self._table = table
        self.rescued_count: int = rescued_count

    @classmethod
    def of(
        cls,
        polled: Sequence[tuple[TopicPartition, RecordColumns]],
        value: Values = "bytes",
        key: str = "bytes",
        names: Sequence[str] = PLACE,
    ) -> RecordTable:
        """What `poll_columns` returned. `names` are columns beside key and value: also topic, timestampType, headers.

        `key` is bytes or string; text that is no UTF-8 has replacement characters. Raises InvalidConfig for an
        unknown `key` or `value`.
        """
        wanted = (*names, "key", "value")
        batches = [to_record_batch(columns, *partition, wanted) for partition, columns in polled]
        if not batches:
            from headrace.client.consumer.arrow import arrow_schema

            return cls.shaped(arrow_schema(wanted).empty_table(), value, key)
        return cls.shaped(pyarrow.Table.from_batches(batches), value, key)

    @classmethod
    def shaped(cls, table: Table, value: Values, key: str) -> RecordTable:
        """A table of records with binary `key` and `value`, with these decoded."""
        if key not in ("bytes", "string"):
            raise InvalidConfig(f"key={key!r}: expected bytes or string")
        if key == "string":
            table = table.set_column(table.schema.get_field_index("key"), "key", _text(table["key"]))
        values, place = table["value"], table.schema.get_field_index("value")
        if value == "bytes":
            return cls(table)
        if value == "string":
            return cls(table.set_column(place, "value", _text(values)))
        table = table.remove_column(place)
        if isinstance(value, str):
            if value != "json":
                raise InvalidConfig(f"value={value!r}: expected bytes, string, json, a schema, or a decoder")
            schema = infer_json_schema(values)
            if not len(schema):
                kept = values.cast(pyarrow.binary())
                return cls(table.append_column(RESCUED, kept), len(kept) - kept.null_count)
            value = JsonDecoder(schema)
        decoder = JsonDecoder(value) if isinstance(value, pyarrow.Schema) else value
        decoded = decoder.decode(values)
        for name, column in zip(decoded.columns.schema.names, decoded.columns.columns, strict=True):
            table = table.append_column(f"value_{name}" if name in {*_RESERVED, RESCUED} else name, column)
        return cls(table.append_column(RESCUED, decoded.rescued), decoded.rescued_count)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __repr__(self) -> str:
        names = ", ".join(f"{field.name}: {field.type}" for field in self._table.schema)
        return f"RecordTable({len(self)} rows, {self.rescued_count} rescued; {names})"

    @property
    def schema(self) -> Schema:
        """The columns and their types."""
        return self._table.schema

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The Arrow PyCapsule interface."""
        return self._table.__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> Table:
        """As a table of pyarrow, which shares the memory."""
        return self._table

    def to_polars(self) -> Any:
        """As a `polars.DataFrame`. InvalidConfig if it is not installed."""
        try:
            import polars
        except ModuleNotFoundError:
            raise missing_library("polars", "arrow and polars", "to_polars") from None
        return polars.DataFrame(self._table)

    def to_pandas(self, **options: Any) -> Any:
        """As a data frame of pandas; `options` are those of `pyarrow.Table.to_pandas`."""
        return self._table.to_pandas(**options)

    def to_duckdb(self, connection: Any = None) -> Any:
        """As a `duckdb.DuckDBPyRelation`, of the given or the default connection.

        InvalidConfig if DuckDB is not installed.
        """
        try:
            import duckdb
        except ModuleNotFoundError:
            raise missing_library("duckdb", "arrow and duckdb", "to_duckdb") from None
        return duckdb.from_arrow(self._table, connection=connection) if connection else duckdb.from_arrow(self._table)


def _text(column: ChunkedArray) -> ChunkedArray:
    """Bytes as text; what is no UTF-8 has replacement characters."""
    try:
        return column.cast(pyarrow.string())
    except pyarrow.ArrowInvalid:
        texts = [None if each is None else each.decode("utf-8", "replace") for each in column.to_pylist()]
        return pyarrow.chunked_array([pyarrow.array(texts, pyarrow.string())])
