"""Records whose values are JSON objects, as rows with a column for each field.

    topic partition offset timestamp key [headers] | fields ... | corrupt_value binary | tombstone boolean

These are the columns of the load job, so that either continues the other's table. A value of which anything is not in
the fields' columns is whole in `corrupt_value`. With `grows`, fields that come become columns (`json_fields`); else the
schema chooses, and other fields are left out, as by the load job. Null, [] and {} alone make no column.
"""

import pyarrow as pa
import pyarrow.compute as pc

from headrace.client.consumer.arrow import arrow_schema, to_record_batch
from headrace.columns.json_columns import JsonDecoder
from headrace.columns.json_rows import document_of
from headrace.columns.json_schema import infer_json_schema
from headrace.lake.decoding import HEADERS, readable
from headrace.lake.json_fields import (
    CORRUPT_COLUMN,
    ORIGIN,
    TOMBSTONE_COLUMN,
    column_of,
    differs_by_case,
    grown,
    has_more,
)
from headrace.records.format2.columns import RecordColumns
from headrace.types import TopicPartition

_VALUE = "value"
_PAUSE_MAX = 15
_LAST = [pa.field(CORRUPT_COLUMN, pa.binary()), pa.field(TOMBSTONE_COLUMN, pa.bool_(), nullable=False)]


class JsonTableDecoder:
    """A `Decoder` of JSON values."""

    def __init__(self, fields: pa.StructType, *, headers: bool = False, grows: bool = False) -> None:
        """`fields` are those of the values. Raises TypeError for a type that JSON cannot be decoded into."""
        self._origin = (*ORIGIN, HEADERS) if headers else ORIGIN
        self._grows = grows
        self.rescued = 0
        self.widens = False
        self._skips = self._pause = 0
        self._use(fields)

    def decode(self, columns: RecordColumns, partition: TopicPartition) -> pa.RecordBatch:
        """One row for each record, in order."""
        batch = readable(to_record_batch(columns, partition.topic, partition.partition, (*self._origin, _VALUE)))
        values = batch.column(_VALUE)
        decoded, rescued = self._as_known(values), pa.nulls(len(values), pa.binary())
        if decoded is None:
            found = pa.struct(list(infer_json_schema(values, nulls_as_text=False)))
            is_incomplete = self._grow(found) if self._grows else False
            decoded, rescued = self._decoded(values, found)
            rescued = _with_unknown(values, rescued, self._fields) if is_incomplete else rescued
        self.rescued += len(rescued) - int(rescued.null_count)
        own = [batch.column(name) for name in self._origin]
        arrays = [*own, *decoded.columns, rescued, values.is_null()]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _use(self, fields: pa.StructType) -> None:
        self._fields = fields
        typed = pa.schema(list(fields))
        self._decoder = JsonDecoder(typed, keeps_other_case=False) if fields.num_fields else None
        self._known = JsonDecoder(typed, keeps_other_case=False, knows_all=True) if fields.num_fields else None
        self._strict = JsonDecoder(typed) if fields.num_fields and not self._grows else None
        known = [] if self._decoder is None else list(self._decoder.schema)
        renamed = [field.with_name(column_of(field.name)) for field in known]
        self.schema: pa.Schema = pa.schema([*arrow_schema(self._origin), *renamed, *_LAST])

    def _as_known(self, values: pa.BinaryArray) -> pa.RecordBatch | None:
        """The columns, if the values have none but known fields, and all fit: the usual case, at half the cost.

        After a failure it is not tried for some batches, so that odd values cost little more than before.
        """
        if self._known is None or self._skips:
            self._skips = max(0, self._skips - 1)
            return None
        found = self._known.whole(values)
        self._pause = 0 if found is not None else min(_PAUSE_MAX, 2 * self._pause + 1)
        self._skips = self._pause
        return found

    def _grow(self, found: pa.StructType) -> bool:
        """Take the fields that were found; returns whether some of them cannot be columns."""
        growth = grown(self._fields, found, widens=self.widens)
        if growth.fields != self._fields:
            self._use(growth.fields)
        return growth.is_incomplete

    def _decoded(self, values: pa.BinaryArray, found: pa.StructType) -> tuple[pa.RecordBatch, pa.BinaryArray]:
        """The columns of the values, whose fields are `found`.

        To search the values for keys in another case takes longer than all else. A decoder that grows needs none: such
        a field is one that cannot be a column.
        """
        decoder = self._decoder
        if self._strict is not None and differs_by_case(self._fields, found):
            decoder = self._strict
        if decoder is not None:
            decoded = decoder.decode(values)
            return decoded.columns, decoded.rescued
        return pa.RecordBatch.from_arrays([], names=[]), values


def _with_unknown(values: pa.BinaryArray, rescued: pa.BinaryArray, fields: pa.StructType) -> pa.BinaryArray:
    """`rescued` with the values whose fields are not all in `fields`. Slow: it looks at each value alone."""
    mask = pa.array([_is_unknown(value, fields) for value in values.to_pylist()])
    return pc.if_else(mask, values, rescued)


def _is_unknown(value: bytes | None, fields: pa.StructType) -> bool:
    try:
        return value is not None and has_more(document_of(value), fields)
    except (ValueError, RecursionError):
        return False  # rescued by the decoder
