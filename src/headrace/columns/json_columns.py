"""JSON values in typed columns: a block of values becomes columns at once, by Arrow's reader of JSON.

    value                                     columns       rescued
    one JSON object that fits                 its fields    null
    null                                      null          null
    an object, and a field does not fit       the others    the value
    an object with a key twice                the others    the value       where the key is a column
    an object with a column in other case     the others    the value       see `keeps_other_case`
    all else                                  null          the value

"All else" is what is not UTF-8, not JSON, empty, no object, cut off, or more than one document. Fields without a column
are left out: the schema chooses the fields.

The values of a block are joined by line feeds, and read as one stream of documents. Row n is value n, because

    - each value begins with { and ends with } (others are not joined), so a new value begins where the value before it
      is complete: inside an object or array a comma would be missing, and inside a string no line feed may be;
    - so each value is at least one document, and there are as many documents as values.

If the block does not parse, or has other rows, its parts are tried, and in the end each value alone. What a value
becomes does not depend on the values beside it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator

import pyarrow
import pyarrow.compute
import pyarrow.json

from headrace.columns.arrow_types import Array, BinaryArray, ChunkedArray, Field, RecordBatch, Schema
from headrace.columns.decoded import Decoded, joined
from headrace.columns.json_rows import Row, ValueFit, row_of

BLOCK_ROWS, PART_ROWS, FEW_ROWS = 32_768, 1_024, 64
BLOCK_BYTES_MAX = 64 << 20
_SMALL_BYTES = 16 << 10
_SPACE = " \t\r\n"


class JsonDecoder:
    """Decodes columns of JSON values by one schema. Threads may share it."""

    def __init__(self, schema: Schema, *, keeps_other_case: bool = True, knows_all: bool = False) -> None:
        """`keeps_other_case`: rescue values with a key that is a column's name except for its case. `knows_all`: a
        value with a field that has no column does not fit.

        Readers such as Spark ignore the case of columns, so a column may be null for that alone. Columns may be null,
        numbers, text, booleans, decimals, dates and timestamps (ISO 8601), lists, and structs of these: TypeError
        names another one. ValueError for no column, or a name given twice.
        """
        if not len(schema) or len(set(schema.names)) < len(schema):
            raise ValueError(f"columns need names of their own: {schema.names}")
        self.schema: Schema = pyarrow.schema([_nullable(field) for field in schema])
        self._struct = pyarrow.struct(list(self.schema))
        self._parse_options = pyarrow.json.ParseOptions(
            explicit_schema=pyarrow.schema([_readable(field) for field in self.schema]),
            unexpected_field_behavior="error" if knows_all else "ignore",
        )
        self._none = pyarrow.array([], self._struct)
        self._other_case = _OtherCase(self.schema) if keeps_other_case else None

    def decode(self, values: Array | ChunkedArray) -> Decoded:
        """The values (binary or string, null for a tombstone) in columns. No value is an error."""
        blocks = list(blocks_of(values))
        return joined(
            [self._decoded(block) for block in blocks] or [self._decoded(pyarrow.array([], pyarrow.binary()))]
        )

    def whole(self, values: Array | ChunkedArray) -> RecordBatch | None:
        """The values in columns, if each of them fits at once; None otherwise. Faster than `decode` where it is not."""
        found = []
        for block in blocks_of(values):
            rows = self._at_once(block)
            if rows is None:
                return None
            found.append(rows)
        return _batch_of(pyarrow.concat_arrays(found or [self._none]), self.schema)

    def _decoded(self, block: BinaryArray) -> Decoded:
        """All of the block at once, or in parts, or in the end by rows."""
        found = self._at_once(block)
        if found is not None:
            return Decoded(_batch_of(found, self.schema), pyarrow.nulls(len(block), pyarrow.binary()))
        size = PART_ROWS if len(block) > PART_ROWS else FEW_ROWS
        sifted = self._sifted(block) if size == PART_ROWS or len(block) <= FEW_ROWS else None
        if sifted is not None:
            return sifted
        return joined([self._decoded(block.slice(start, size)) for start in range(0, len(block), size)])

    def _at_once(self, block: BinaryArray) -> pyarrow.StructArray | None:
        """The block as rows; None unless every value is in them whole."""
        present = block.drop_null() if block.null_count else block
        if not len(present):
            return pyarrow.nulls(len(block), self._struct)
        try:
            texts = present.cast(pyarrow.string())  # refuses what is not UTF-8
            if not are_objects(texts):
                return None
            stream = document_stream(texts)
            rows = self._read(stream)
        except pyarrow.ArrowInvalid:
            return None
        if len(rows) != len(texts) or (self._other_case is not None and self._other_case.is_in(stream, texts, rows)):
            return None
        if not block.null_count:
            return rows
        is_present = block.is_valid()
        following = pyarrow.compute.cumulative_sum(is_present.cast(pyarrow.int32()))
        before = pyarrow.compute.subtract(following, 1)
        return rows.take(pyarrow.compute.if_else(is_present, before, pyarrow.scalar(None, before.type)))

    def _read(self, stream: bytes) -> pyarrow.StructArray:
        """The documents in the stream. ArrowInvalid unless all parse and fit."""
        read_options = pyarrow.json.ReadOptions(use_threads=False, block_size=len(stream) + 1)
        if len(stream) < _SMALL_BYTES:  # costs less to begin
            table = pyarrow.json.open_json(pyarrow.BufferReader(stream), read_options, self._parse_options).read_all()
        else:
            table = pyarrow.json.read_json(pyarrow.BufferReader(stream), read_options, self._parse_options)
        if table.schema != self.schema:
            table = table.cast(self.schema)  # dates
        (rows,) = table.to_struct_array().chunks
        return rows

    def _sifted(self, block: BinaryArray) -> Decoded | None:
        """The values without a fault together, because that is faster, and each of the others alone.

        None if there are many rows, and more is wrong with them than that some are no JSON.
        """
        values = block.to_pylist()
        is_object = [value is None or _is_object(value) for value in values]
        is_likely = self._at_once(block.filter(pyarrow.array(is_object, pyarrow.bool_()))) is not None
        if not is_likely and len(block) > PART_ROWS:
            return None
        alone = [
            _WHOLE if is_likely and likely else self._alone(value)
            for value, likely in zip(values, is_object, strict=True)
        ]
        whole = [number for number, row in enumerate(alone) if row.verdict is ValueFit.WHOLE]
        doubtful = [number for number, row in enumerate(alone) if row.verdict is ValueFit.DOUBTFUL]
        together = self._at_once(block.take(pyarrow.array(whole, pyarrow.int32())))
        if together is None:  # the reader is stricter than `_alone`: it is asked about each
            whole, doubtful, together = [], whole + doubtful, self._none
        singles = {number: self._at_once(block.slice(number, 1)) for number in doubtful}
        accepted = {number: row for number, row in singles.items() if row is not None}
        taken = {*whole, *accepted}
        refused = [number for number in range(len(alone)) if number not in taken]
        partial = pyarrow.array([alone[number].fields for number in refused], self._struct)
        order = [*whole, *accepted, *refused]
        places = sorted(range(len(order)), key=order.__getitem__)
        rows = pyarrow.concat_arrays([together, *accepted.values(), partial]).take(
            pyarrow.array(places, pyarrow.int32())
        )
        rescued = [block[number].as_py() if number not in taken else None for number in range(len(alone))]
        return Decoded(_batch_of(rows, self.schema), pyarrow.array(rescued, pyarrow.binary()))

    def _alone(self, value: bytes | None) -> Row:
        if value is None:
            return Row(None, ValueFit.WHOLE)
        row = row_of(value, self._struct)
        is_key = (
            self._other_case is not None and row.fields is not None and self._other_case.is_in_row(value, row.fields)
        )
        return Row(row.fields, ValueFit.REFUSED) if is_key else row


_WHOLE = Row(None, ValueFit.WHOLE)


def _is_object(value: bytes) -> bool:
    """Whether it is an object in JSON, by a quick look: most values that fit nowhere are none."""
    try:
        return isinstance(json.loads(value), dict)
    except (ValueError, RecursionError):
        return False


class _OtherCase:
    """Finds values with a key that is a column's name except for its case."""

    def __init__(self, schema: Schema) -> None:
        names = list(dict.fromkeys(_names(schema)))
        self._is_nested = names != schema.names
        self._count = len(schema)
        self._exact = {name: f'"{name}"'.encode() for name in names}
        self._is_ascii = all(name.isascii() for name in names)
        every = "|".join(map(re.escape, names))
        folded = "|".join(re.escape(name.casefold()) for name in names)
        self._key = re.compile(rf'"(?!(?:{every})")(?i:{every})"\s*:' if self._is_ascii else rf'"(?:{folded})"\s*:')
        self._exact_key = re.compile(rf'"(?:{every})"\s*:')

    def is_in(self, stream: bytes, texts: pyarrow.StringArray, rows: pyarrow.StructArray) -> bool:
        """Whether a row lacks a column, and its text has such a key. The stream has all texts."""
        columns = rows.flatten()
        if not self._is_nested and not any(column.null_count for column in columns):
            return False
        if not self._may_be_in(stream, rows):
            return False
        lacks = pyarrow.compute.is_null(columns[0])
        for column in columns[1:]:
            lacks = pyarrow.compute.or_(lacks, column.is_null())
        chosen = texts if self._is_nested else texts.filter(lacks)
        return any(self._has_key(text) for text in chosen.to_pylist())

    def is_in_row(self, value: bytes, fields: dict[str, object]) -> bool:
        """As `is_in`, of one value, whose fields are those that are not null."""
        is_lacking = self._is_nested or len(fields) < self._count
        return is_lacking and self._has_key(value.decode())

    def _may_be_in(self, stream: bytes, rows: pyarrow.StructArray) -> bool:
        """A count over all bytes, which is fast: as many names in any case as in this one are a no."""
        if not self._is_ascii:
            return True
        lowered, present = stream.lower(), Counter[str]()
        _count_present(rows, present)
        for name, quoted in self._exact.items():
            found = lowered.count(quoted.lower())
            if found != present[name] and found != stream.count(quoted):
                return True
        return False

    def _has_key(self, text: str) -> bool:
        if self._is_ascii:
            return self._key.search(text) is not None
        return len(self._key.findall(text.casefold())) != len(self._exact_key.findall(text))


def _count_present(rows: pyarrow.StructArray, present: Counter[str]) -> None:
    """How many values are under each name: each of them has a key that is exactly this name."""
    for field, column in zip(rows.type, rows.flatten(), strict=True):
        present[field.name] += len(column) - column.null_count
        while pyarrow.types.is_list(column.type):
            column = column.flatten()
        if pyarrow.types.is_struct(column.type):
            _count_present(column, present)


def document_stream(texts: pyarrow.StringArray) -> bytes:
    """The texts as lines. There is a last line feed: the reader ends a block at one."""
    whole = pyarrow.ListArray.from_arrays(pyarrow.array([0, len(texts)], pyarrow.int32()), texts)
    return bytes(pyarrow.compute.binary_join(whole, "\n")[0].as_buffer()) + b"\n"


def are_objects(texts: pyarrow.StringArray) -> bool:
    """Whether each text begins with { and ends with }, between white space.

    This is a guard, too: a stream that begins with `null` ends the process in Arrow's reader.
    """
    trimmed = pyarrow.compute.ascii_trim(texts, _SPACE)
    begins, ends = (pyarrow.compute.starts_with(trimmed, "{"), pyarrow.compute.ends_with(trimmed, "}"))
    return bool(pyarrow.compute.all(pyarrow.compute.and_(begins, ends)).as_py())


def _batch_of(rows: pyarrow.StructArray, schema: Schema) -> RecordBatch:
    return pyarrow.RecordBatch.from_arrays(rows.flatten(), schema=schema)


def blocks_of(values: Array | ChunkedArray) -> Iterator[BinaryArray]:
    """The values in parts of at most BLOCK_ROWS, and BLOCK_BYTES_MAX unless it is one value."""
    chunks = values.chunks if isinstance(values, pyarrow.ChunkedArray) else [values]
    for chunk in chunks:
        plain = chunk.cast(pyarrow.binary())
        for start in range(0, len(plain), BLOCK_ROWS):
            yield from _bounded(plain.slice(start, BLOCK_ROWS))


def _bounded(block: BinaryArray) -> Iterator[BinaryArray]:
    if len(block) < 2 or block.nbytes <= BLOCK_BYTES_MAX:
        yield block
        return
    half = len(block) // 2
    yield from _bounded(block.slice(0, half))
    yield from _bounded(block.slice(half))


def _names(fields: Schema | pyarrow.StructType) -> Iterator[str]:
    """The names of all fields, at any depth."""
    for field in fields:
        yield field.name
        kind = field.type
        while pyarrow.types.is_list(kind):
            kind = kind.value_type
        if pyarrow.types.is_struct(kind):
            yield from _names(kind)


def _nullable(field: Field) -> Field:
    """The field, which may be null at any depth: a value may lack it."""
    kind, types = field.type, pyarrow.types
    if types.is_struct(kind):
        kind = pyarrow.struct([_nullable(each) for each in kind])
    elif types.is_list(kind):
        kind = pyarrow.list_(_nullable(kind.value_field))
    elif not (
        (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_null(kind))
        or (types.is_string(kind) or types.is_large_string(kind) or types.is_decimal128(kind))
        or (types.is_timestamp(kind) or types.is_date32(kind))
    ) or types.is_float16(kind):
        raise TypeError(f"column {field.name}: JSON cannot be decoded into {kind}")
    return field.with_type(kind).with_nullable(True)


def _readable(field: Field) -> Field:
    """The field as Arrow's reader takes it: dates as text (it takes their numbers alone)."""
    kind = field.type
    if pyarrow.types.is_struct(kind):
        return field.with_type(pyarrow.struct([_readable(each) for each in kind]))
    if pyarrow.types.is_list(kind):
        return field.with_type(pyarrow.list_(_readable(kind.value_field)))
    return field.with_type(pyarrow.string()) if pyarrow.types.is_date32(kind) else field
