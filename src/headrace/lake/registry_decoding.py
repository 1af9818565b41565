"""Records whose values have a schema of a registry, as rows with a column for each field: Avro, Protobuf, JSON Schema.

    0 | id of the schema | payload ─▶ the reader of this schema ─▶ its fields ─▶ the table's columns

The columns are those of JSON tables (`json_fields`), and grow with the schemas: a field of a new schema is a new
column. A number that is narrower than its column fits (int into long, float into double). A value is whole in
`corrupt_value` if it has no such prefix, if the registry does not know its schema, if the schema cannot be columns (an
Avro union of several types, a message within itself), or if a field has another type than its column. A registry that
does not answer is no reason to rescue anything: the round fails, and is tried again.
"""

import os
from collections.abc import Callable
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from headrace.client.consumer.arrow import arrow_schema, to_record_batch
from headrace.client.serializers.errors import RegistryError, missing_library
from headrace.client.serializers.registry.client import SchemaRegistry
from headrace.client.serializers.registry.schemas import AVRO, JSON, PROTOBUF
from headrace.columns.avro_columns import AvroDecoder
from headrace.columns.decoded import Decoded
from headrace.columns.json_columns import JsonDecoder
from headrace.columns.json_schema import infer_json_schema
from headrace.lake.decoding import HEADERS, readable
from headrace.lake.json_fields import CORRUPT_COLUMN, ORIGIN, TOMBSTONE_COLUMN, WIDER, column_of, grown
from headrace.lake.protobuf_columns import ProtobufDecoder
from headrace.lake.rows import fitted
from headrace.records.format2.columns import RecordColumns
from headrace.types import TopicPartition

USER_VARIABLE: Final = "HEADRACE_REGISTRY_USER"
PASSWORD_VARIABLE: Final = "HEADRACE_REGISTRY_PASSWORD"
_FRAME_BYTES: Final = 5
_VALUE: Final = "value"
_LAST: Final = [pa.field(CORRUPT_COLUMN, pa.binary()), pa.field(TOMBSTONE_COLUMN, pa.bool_(), nullable=False)]


def registry_of(address: str) -> SchemaRegistry:
    """The registry at an address, with the user and the password of the environment. Raises InvalidConfig."""
    user = os.environ.get(USER_VARIABLE)
    return SchemaRegistry(address, basic_auth=(user, os.environ.get(PASSWORD_VARIABLE, "")) if user else None)


class PayloadDecoder(Protocol):
    """What makes columns of payloads of one schema. A payload that it cannot read is rescued."""

    def decode(self, values: pa.BinaryArray) -> Decoded: ...


class RegistryTableDecoder:
    """A `Decoder` of values with a schema of a registry."""

    def __init__(
        self, registry: SchemaRegistry, fields: pa.StructType, *, headers: bool = False, grows: bool = True
    ) -> None:
        """`fields` are those that have columns. Without `grows` others are left out."""
        self._registry = registry
        self._origin = (*ORIGIN, HEADERS) if headers else ORIGIN
        self._grows = grows
        self._decoders: dict[bytes, PayloadDecoder | None] = {}
        self.rescued = 0
        self.widens = False
        self._use(fields)

    def decode(self, columns: RecordColumns, partition: TopicPartition) -> pa.RecordBatch:
        """One row for each record, in order. Raises RegistryUnavailable."""
        batch = readable(to_record_batch(columns, partition.topic, partition.partition, (*self._origin, _VALUE)))
        values = batch.column(_VALUE)
        typed, rescued = self._decoded(values)
        self.rescued += len(rescued) - int(rescued.null_count)
        own = [batch.column(name) for name in self._origin]
        return pa.RecordBatch.from_arrays([*own, *typed.columns, rescued, values.is_null()], schema=self.schema)

    def _use(self, fields: pa.StructType) -> None:
        self._fields = fields
        self._typed = pa.schema([field.with_nullable(True) for field in fields])
        renamed = [field.with_name(column_of(field.name)) for field in self._typed]
        self.schema: pa.Schema = pa.schema([*arrow_schema(self._origin), *renamed, *_LAST])

    def _decoded(self, values: pa.BinaryArray) -> tuple[pa.RecordBatch, pa.BinaryArray]:
        """The columns of the values, and those that are rescued."""
        frames = pc.binary_slice(values, 0, _FRAME_BYTES)
        order: list[pa.Array] = []
        parts: list[tuple[pa.RecordBatch, pa.BinaryArray]] = []
        for frame in frames.unique().to_pylist():
            chosen = frames.is_null() if frame is None else pc.fill_null(pc.equal(frames, frame), False)
            rows = pc.indices_nonzero(chosen)
            order.append(rows)
            parts.append(self._part(values.take(rows), None if frame is None else self._decoder(frame)))
        if not parts:
            return fitted(pa.RecordBatch.from_pylist([], pa.schema([])), self._typed), values
        whole = pa.concat_batches([_with_columns(batch, self._typed) for batch, _ in parts])
        rescued = pa.concat_arrays([kept for _, kept in parts])
        if len(parts) == 1:
            return whole, rescued
        places = pc.sort_indices(pa.concat_arrays(order))
        return whole.take(places), rescued.take(places)

    def _part(self, values: pa.BinaryArray, decoder: PayloadDecoder | None) -> tuple[pa.RecordBatch, pa.BinaryArray]:
        """Values of one schema: what they have in columns of the table, and those that are not whole in them."""
        if decoder is None:
            return _with_columns(None, self._typed, len(values)), values
        found = decoder.decode(pc.binary_replace_slice(values, 0, _FRAME_BYTES, b""))
        batch, misses = _usable(found.columns), found.rescued.is_valid()
        if self._grows:
            growth = grown(self._fields, pa.struct(list(batch.schema)), widens=self.widens)
            if growth.fields != self._fields:
                self._use(growth.fields)
        arrays, fields = [], []
        for field, column in zip(batch.schema, batch.columns, strict=True):
            at = self._typed.get_field_index(field.name)
            if at >= 0 and _goes_into(field.type, self._typed.field(at).type, is_complete=self._grows):
                arrays.append(column)
                fields.append(field)
            elif at >= 0 or self._grows:
                misses = pc.or_(misses, column.is_valid())
        kept = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields)) if fields else None
        return _with_columns(kept, self._typed, len(values)), pc.if_else(misses, values, pa.scalar(None, pa.binary()))

    def _decoder(self, frame: bytes) -> PayloadDecoder | None:
        """The decoder of a schema; None for what the registry does not know, and for what cannot be columns."""
        if len(frame) < _FRAME_BYTES or frame[0]:
            return None
        if frame not in self._decoders:
            number = int.from_bytes(frame[1:], "big")
            try:
                schema = self._registry.schema(number)
            except RegistryError:
                return None  # asked again: it may be known later
            try:
                self._decoders[frame] = _MAKERS[schema.kind](self._registry, number, schema.text)
            except (TypeError, KeyError):
                self._decoders[frame] = None
        return self._decoders[frame]


class _JsonPayloads:
    """JSON of any schema: columns are made of the fields that the values have."""

    def decode(self, values: pa.BinaryArray) -> Decoded:
        schema = infer_json_schema(values, nulls_as_text=False)
        if not len(schema):
            return Decoded(_with_columns(None, schema, len(values)), values)
        return JsonDecoder(schema).decode(values)


def _avro(_registry: SchemaRegistry, _number: int, text: str) -> PayloadDecoder:
    try:
        return AvroDecoder(text)
    except ModuleNotFoundError:
        raise missing_library("fastavro", "avro", "Avro") from None


_MAKERS: Final[dict[str, Callable[[SchemaRegistry, int, str], PayloadDecoder]]] = {
    AVRO: _avro,
    JSON: lambda _registry, _number, _text: _JsonPayloads(),
    PROTOBUF: lambda registry, number, _text: ProtobufDecoder(registry, number),
}


def _with_columns(batch: pa.RecordBatch | None, schema: pa.Schema, rows: int = 0) -> pa.RecordBatch:
    """The batch with these columns; without one, as many rows of nulls."""
    if batch is None:
        return pa.RecordBatch.from_arrays([pa.nulls(rows, field.type) for field in schema], schema=schema)
    return fitted(batch, schema)


def _usable(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with types that tables have; a column that is null always has no type, and is left out."""
    fields = [
        pa.field(field.name, _table_type(field.type)) for field in batch.schema if not pa.types.is_null(field.type)
    ]
    return fitted(batch, pa.schema(fields)) if fields else batch.select([])


def _table_type(kind: pa.DataType) -> pa.DataType:
    """The type of a table for one of a schema. A time of no zone becomes text: not every table has its type."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC") if kind.tz else pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _table_type(field.type)) for field in kind if not pa.types.is_null(field.type)])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _table_type(kind.item_type))
    return pa.list_(_table_type(kind.value_type)) if pa.types.is_list(kind) else kind


_EXACT: Final = WIDER - {(pa.int64(), pa.float64())}
"""Every number of the one is one of the other."""


def _goes_into(found: Any, known: Any, *, is_complete: bool) -> bool:
    """Whether all values of a type can be in a column of another; with `is_complete` none of their fields may lack."""
    if found == known or (found, known) in _EXACT:
        return True
    if pa.types.is_struct(found) and pa.types.is_struct(known):
        types = {field.name: field.type for field in known}
        return all(
            _goes_into(field.type, types[field.name], is_complete=is_complete)
            if field.name in types
            else not is_complete
            for field in found
        )
    if pa.types.is_list(found) and pa.types.is_list(known):
        return _goes_into(found.value_type, known.value_type, is_complete=is_complete)
    if pa.types.is_map(found) and pa.types.is_map(known):
        return bool(found.key_type == known.key_type and found.item_type == known.item_type)
    return False
