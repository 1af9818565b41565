"""Protobuf messages of a registry's schema in typed columns. Imports protobuf.

    int32, sint32, sfixed32; all other whole numbers     int32; int64
    uint64, fixed64                                      decimal(20, 0)
    float, double, bool, string, bytes                   the same
    an enum                                              text: its name, or the number of one that the schema lacks
    repeated, map, a message                             list, map, struct
    google.protobuf.Timestamp, and the wrappers          a time in UTC, the wrapped value

A field is null where it is absent and the schema tells absence; else it has its default. A message within itself cannot
be a column. Each message is parsed alone, which is some ten times slower than Avro.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from headrace.client.serializers.context import SerializationContext
from headrace.client.serializers.registry.client import SchemaRegistry
from headrace.client.serializers.registry.protobuf import ProtobufDeserializer
from headrace.columns.decoded import Decoded

_FRAME = b"\0"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIMESTAMP = "google.protobuf.Timestamp"
_WRAPPERS = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)


class ProtobufDecoder:
    """Decodes payloads, with their message indexes, of one schema. The first message that it reads decides the type: a
    schema's file may have several messages, and a topic has values of one."""

    def __init__(self, registry: SchemaRegistry, number: int) -> None:
        self._prefix = _FRAME + number.to_bytes(4, "big")
        self._deserializer = ProtobufDeserializer(registry=registry)
        self._kind: Any = None
        self._schema = pa.schema([])
        self._is_possible = True

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """One row for each payload."""
        rows = [self._row(value) for value in values.to_pylist()]
        try:
            batch = pa.RecordBatch.from_pylist([row or {} for row in rows], self._schema)
        except (pa.ArrowException, OverflowError, ValueError, TypeError):
            rows = [row if self._fits(row) else None for row in rows]
            batch = pa.RecordBatch.from_pylist([row or {} for row in rows], self._schema)
        rescued = [value if row is None else None for value, row in zip(values.to_pylist(), rows, strict=True)]
        return Decoded(batch, pa.array(rescued, pa.binary()))

    def _row(self, value: bytes) -> dict[str, Any] | None:
        from google.protobuf.message import DecodeError

        try:
            message = self._deserializer(self._prefix + value, SerializationContext("", "value"))
        except (DecodeError, ValueError):
            return None
        kind = message.DESCRIPTOR
        if self._kind is None:
            self._kind = kind
            try:
                self._schema = pa.schema(list(_struct_of(kind, ())))
            except TypeError:  # a message within itself
                self._is_possible = False
        if not self._is_possible or kind.full_name != self._kind.full_name:
            return None
        try:
            return _fields(message)
        except OverflowError:  # a time of no calendar
            return None

    def _fits(self, row: dict[str, Any] | None) -> bool:
        try:
            return row is not None and bool(pa.RecordBatch.from_pylist([row], self._schema))
        except (pa.ArrowException, OverflowError, ValueError, TypeError):
            return False


def _struct_of(message: Any, outer: tuple[str, ...]) -> pa.StructType:
    if message.full_name in outer:
        raise TypeError(f"{message.full_name} is within itself")
    inner = (*outer, message.full_name)
    return pa.struct([(field.name, _type_of(field, inner)) for field in message.fields])


def _type_of(field: Any, outer: tuple[str, ...]) -> pa.DataType:
    if _is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return pa.map_(_one_of(key, outer), _one_of(value, outer))
    one = _one_of(field, outer)
    return pa.list_(one) if _is_repeated(field) else one


def _one_of(field: Any, outer: tuple[str, ...]) -> pa.DataType:
    if field.message_type is not None:
        name = field.message_type.full_name
        if name == _TIMESTAMP:
            return pa.timestamp("us", "UTC")
        if name in _WRAPPERS:
            return _one_of(field.message_type.fields_by_name["value"], outer)
        return _struct_of(field.message_type, outer)
    if field.type in (field.TYPE_UINT64, field.TYPE_FIXED64):
        return pa.decimal128(20, 0)
    kinds = {
        field.CPPTYPE_INT32: pa.int32(),
        field.CPPTYPE_UINT32: pa.int64(),
        field.CPPTYPE_INT64: pa.int64(),
        field.CPPTYPE_DOUBLE: pa.float64(),
        field.CPPTYPE_FLOAT: pa.float32(),
        field.CPPTYPE_BOOL: pa.bool_(),
        field.CPPTYPE_ENUM: pa.string(),
    }
    if field.cpp_type in kinds:
        return kinds[field.cpp_type]
    return pa.binary() if field.type == field.TYPE_BYTES else pa.string()


def _fields(message: Any) -> dict[str, Any]:
    return {field.name: _value(message, field) for field in message.DESCRIPTOR.fields}


def _value(message: Any, field: Any) -> Any:
    value = getattr(message, field.name)
    if _is_map(field):
        inner = field.message_type.fields_by_name["value"]
        return [(key, _plain(each, inner)) for key, each in value.items()]
    if _is_repeated(field):
        return [_plain(each, field) for each in value]
    return None if field.has_presence and not message.HasField(field.name) else _plain(value, field)


def _plain(value: Any, field: Any) -> Any:
    if field.message_type is not None:
        name = field.message_type.full_name
        if name == _TIMESTAMP:
            return _EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
        return value.value if name in _WRAPPERS else _fields(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    return value


def _is_map(field: Any) -> bool:
    return bool(field.message_type is not None and field.message_type.GetOptions().map_entry)


def _is_repeated(field: Any) -> bool:
    found = getattr(field, "is_repeated", None)  # newer versions of the library
    return bool(found) if found is not None else field.label == field.LABEL_REPEATED
