"""Avro values in typed columns. Imports fastavro, and polars where it is installed.

Records in Avro have no border, so many can be read at once only if each is as long as its reader takes it to be. polars
reads blocks of records into columns; a block is made for it in which every record stands behind a random mark:

    mark | record 0 | mark | record 1 | ...          the record's schema, with the mark as its first field

A record that is too long or too short moves the next mark, so all marks are at their places exactly if every record is.
Who wrote the records cannot know the mark. Where one is not, or polars refuses, fastavro reads each record of the part
alone, and what does not fit is rescued. polars is the more lenient one: it takes every number but 0 for the branch of
a union with null, and every byte but 0 for true. Records of several schemas are read by each, and put in their order.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any

import pyarrow
import pyarrow.compute

from headrace.columns.arrow_types import Array, BinaryArray, ChunkedArray, DataType, RecordBatch, Schema, Table
from headrace.columns.avro_schema import arrow_schema_of
from headrace.columns.decoded import Decoded, joined

PART_ROWS = 8_192
_MARK, _MARK_BYTES = "headrace_mark", 16
_SYNC = bytes(16)
_ONCE = (pyarrow.string(), pyarrow.binary())
_FRAME_BYTES = 5


class AvroDecoder:
    """Decodes columns of records of one schema, without a frame. Threads may share it."""

    def __init__(self, schema: str | Mapping[str, Any], *, columns: Schema | None = None) -> None:
        """`columns` are those wanted (None: all that the schema has): a missing one is null, and types are cast.

        TypeError for a schema that is no record, or that columns cannot hold.
        """
        plain = json.loads(schema) if isinstance(schema, str) else dict(schema)
        self._own = arrow_schema_of(plain)
        self.schema: Schema = self._own if columns is None else columns
        mark = {"name": _MARK, "type": {"type": "fixed", "name": _MARK, "size": _MARK_BYTES}}
        self._parsed = _fastavro().parse_schema(plain)
        fields = _fastavro().schema.expand_schema(plain)["fields"]  # polars knows no names of types
        self._marked = {**plain, "fields": [mark, *fields]}
        has_known_types = all(_is_safe(field.type) for field in self._own) and not any(map(_has_inner_enum, fields))
        self._is_fast = _polars() is not None and has_known_types

    def decode(self, values: Array | ChunkedArray) -> Decoded:
        """The values (binary, null for a tombstone) in columns, one row for each. No value is an error."""
        chunks = values.chunks if isinstance(values, pyarrow.ChunkedArray) else [values]
        parts = [
            self._decoded(chunk.cast(pyarrow.binary()).slice(start, PART_ROWS))
            for chunk in chunks
            for start in range(0, len(chunk), PART_ROWS)
        ]
        return joined(parts or [self._decoded(pyarrow.array([], pyarrow.binary()))])

    def _decoded(self, part: BinaryArray) -> Decoded:
        found = self._at_once(part) if self._is_fast and len(part) and not part.null_count else None
        if found is not None:
            return Decoded(self._shaped(found), pyarrow.nulls(len(part), pyarrow.binary()))
        values = part.to_pylist()
        records = [self._record(value) for value in values]
        try:
            batch = pyarrow.RecordBatch.from_pylist([each or {} for each in records], self._own)
        except (pyarrow.ArrowException, OverflowError, ValueError, TypeError):
            records = [each if self._fits(each) else None for each in records]
            batch = pyarrow.RecordBatch.from_pylist([each or {} for each in records], self._own)
        rescued = [value if record is None else None for value, record in zip(values, records, strict=True)]
        if self._is_fast and not part.null_count and not any(rescued):
            self._is_fast = False  # the schema has something that polars cannot read
        return Decoded(self._shaped(batch), pyarrow.array(rescued, pyarrow.binary()))

    def _at_once(self, part: BinaryArray) -> RecordBatch | None:
        """The records as columns; None unless each is exactly a record."""
        mark = os.urandom(_MARK_BYTES)
        whole = pyarrow.ListArray.from_arrays(pyarrow.array([0, len(part)], pyarrow.int32()), part)
        records = bytes(pyarrow.compute.binary_join(whole, mark)[0].as_buffer())
        try:
            frame = _polars().read_avro(BytesIO(_container(self._marked, len(part), mark + records)))
        except BaseException as error:
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            return None
        # no mark follows the last record: fastavro measures it
        table = frame.to_arrow()
        if table.num_rows != len(part) or self._record(part[-1].as_py()) is None:
            return None
        marks = table[_MARK]
        if not pyarrow.compute.all(pyarrow.compute.equal(marks, pyarrow.scalar(mark, marks.type))).as_py():
            return None
        try:
            return _batch_of(table, self._own)
        except pyarrow.ArrowException:
            return None

    def _record(self, value: bytes | None) -> dict[str, Any] | None:
        """The record, if the value is exactly one."""
        if value is None:
            return None
        stream = BytesIO(value)
        try:
            found: dict[str, Any] = _fastavro().schemaless_reader(stream, self._parsed, None)
        except Exception:  # of fastavro, which raises whatever goes wrong first
            return None
        return found if stream.tell() == len(value) else None

    def _fits(self, record: dict[str, Any] | None) -> bool:
        try:
            return record is not None and bool(pyarrow.RecordBatch.from_pylist([record], self._own))
        except (pyarrow.ArrowException, OverflowError, ValueError, TypeError):
            return False

    def _shaped(self, batch: RecordBatch) -> RecordBatch:
        return batch if self.schema is self._own else _batch_of(pyarrow.Table.from_batches([batch]), self.schema)


class FramedAvroDecoder:
    """Decodes columns of records after the id of their schema in a registry: a zero byte, and four of the id."""

    def __init__(self, schema_of: Callable[[int], str | Mapping[str, Any]], columns: Schema | None = None) -> None:
        """`schema_of` gives the schema of an id, and raises LookupError for an unknown one: its values are rescued.

        `columns` are those wanted. Without them the columns are those of all schemas that occur, which must agree on
        the type of each.
        """
        self._schema_of = schema_of
        self._columns = columns
        self._decoders: dict[int, AvroDecoder | None] = {}

    def decode(self, values: Array | ChunkedArray) -> Decoded:
        """The values in columns, one row for each. A value without a frame is rescued. pyarrow.ArrowTypeError for
        schemas that do not agree.
        """
        whole = values.combine_chunks() if isinstance(values, pyarrow.ChunkedArray) else values
        whole = pyarrow.concat_arrays(whole.chunks) if isinstance(whole, pyarrow.ChunkedArray) else whole
        whole = whole.cast(pyarrow.binary())
        frames = pyarrow.compute.binary_slice(whole, 0, _FRAME_BYTES)
        decoders = {frame: self._decoder(frame) for frame in frames.unique().to_pylist()}
        known = [each for each in decoders.values() if each is not None]
        schema = self._columns or pyarrow.unify_schemas([each.schema for each in known] or [pyarrow.schema([])])
        order: list[Array] = []
        parts: list[Decoded] = []
        for frame, decoder in decoders.items():
            chosen = pyarrow.compute.equal(frames, frame) if frame is not None else frames.is_null()
            rows = pyarrow.compute.indices_nonzero(pyarrow.compute.fill_null(chosen, False))
            order.append(rows)
            parts.append(_part(whole.take(rows), decoder, schema))
        if not parts:
            return Decoded(pyarrow.RecordBatch.from_pylist([], schema), pyarrow.array([], pyarrow.binary()))
        found = joined(parts)
        places = pyarrow.compute.sort_indices(pyarrow.concat_arrays(order))
        rescued = found.rescued.take(places)
        return Decoded(found.columns.take(places) if len(schema) else found.columns, rescued)

    def _decoder(self, frame: bytes | None) -> AvroDecoder | None:
        if frame is None or len(frame) < _FRAME_BYTES or frame[0] != 0:
            return None
        number = int.from_bytes(frame[1:], "big")
        if number not in self._decoders:
            try:
                self._decoders[number] = AvroDecoder(self._schema_of(number))
            except LookupError:
                return None
        return self._decoders[number]


def _part(values: BinaryArray, decoder: AvroDecoder | None, schema: Schema) -> Decoded:
    """The values of one schema, or of none, in the columns of all."""
    if decoder is None:
        nulls = [pyarrow.nulls(len(values), field.type) for field in schema]
        batch = pyarrow.RecordBatch.from_arrays(nulls, schema=schema)
        return Decoded(batch, values)
    found = decoder.decode(pyarrow.compute.binary_replace_slice(values, 0, _FRAME_BYTES, b""))
    is_kept = found.rescued.is_valid()
    rescued = pyarrow.compute.if_else(is_kept, values, pyarrow.scalar(None, pyarrow.binary()))
    return Decoded(_batch_of(pyarrow.Table.from_batches([found.columns]), schema), rescued)


def _batch_of(table: Table, schema: Schema) -> RecordBatch:
    """The columns of the schema, cast; one that the table lacks is null. ArrowInvalid where a value does not fit."""
    arrays = []
    for field in schema:
        at = table.schema.get_field_index(field.name)
        column = pyarrow.nulls(table.num_rows, field.type) if at < 0 else table.column(at).cast(field.type)
        plain = column.combine_chunks() if isinstance(column, pyarrow.ChunkedArray) else column
        arrays.append(pyarrow.concat_arrays(plain.chunks) if isinstance(plain, pyarrow.ChunkedArray) else plain)
    return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)


def _container(schema: Mapping[str, Any], count: int, block: bytes) -> bytes:
    """A file of Avro with one block."""
    text = json.dumps(schema).encode()
    meta = b"".join(_long(len(each)) + each for each in (b"avro.schema", text, b"avro.codec", b"null"))
    return b"".join((b"Obj\x01", _long(2), meta, _long(0), _SYNC, _long(count), _long(len(block)), block, _SYNC))


def _long(number: int) -> bytes:
    rest, found = number << 1, bytearray()
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    found.append(rest)
    return bytes(found)


def _is_safe(kind: DataType) -> bool:
    """Whether polars reads it: no count in a record makes it take more memory than the record has bytes."""
    types = pyarrow.types
    if types.is_struct(kind):
        return all(_is_safe(field.type) for field in kind)
    return bool(types.is_primitive(kind) or types.is_decimal(kind) or kind in _ONCE)


def _has_inner_enum(field: Mapping[str, Any]) -> bool:
    """Whether an enum is anywhere but at the top, where polars panics."""
    kinds = field["type"] if isinstance(field["type"], list) else [field["type"]]
    return any('"enum"' in json.dumps(kind) for kind in kinds if not isinstance(kind, dict) or kind["type"] != "enum")


def _polars() -> Any:
    try:
        import polars
    except ModuleNotFoundError:
        return None
    return polars


def _fastavro() -> Any:
    import fastavro
    import fastavro.schema

    return fastavro
