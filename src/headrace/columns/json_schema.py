"""The schema of some JSON values: every field of every object, with the type that its first values have.

Whole numbers and others in one field are a double. Where types differ otherwise the first one stays, and `JsonDecoder`
rescues the values that do not fit. Text stays text: JSON has no dates. A field that is null everywhere is text.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow
import pyarrow.compute
import pyarrow.json

from headrace.columns.json_columns import are_objects, blocks_of, document_stream
from headrace.columns.json_rows import document_of

DEPTH_MAX = 32
_BRACKETS_MAX = 64
"""Arrow's inference ends the process at some ten thousand levels: values with more are looked at one by one."""
_NO_BRACKETS = bytes(set(range(256)) - set(b"{[\n"))


def infer_json_schema(values: pyarrow.Array | pyarrow.ChunkedArray, *, nulls_as_text: bool = True) -> pyarrow.Schema:
    """The schema of the objects in a column of binary or text; without fields if there is no object.

    Without `nulls_as_text` a field that is null everywhere is left out: later values may say what it is.
    """
    found = pyarrow.struct([])
    for block in blocks_of(values):
        found = _merged(found, _inferred(block.drop_null()))
    return pyarrow.schema(list(_usable(found, nulls_as_text)))


def _inferred(block: pyarrow.BinaryArray) -> pyarrow.StructType:
    """The type of a block at once, or of its values one by one where Arrow refuses."""
    try:
        texts = block.cast(pyarrow.string())
        stream = document_stream(texts)
        if len(texts) and _most_brackets(texts, stream) <= _BRACKETS_MAX and are_objects(texts):
            options = pyarrow.json.ReadOptions(use_threads=False, block_size=len(stream) + 1)
            table = pyarrow.json.read_json(pyarrow.BufferReader(stream), read_options=options)
            if table.num_rows == len(texts):
                return pyarrow.struct(list(table.schema))
    except (pyarrow.ArrowException, UnicodeDecodeError):
        pass  # a field that changes its type, a key twice, or a value that is no JSON
    return _inferred_by_rows(block)


def _most_brackets(texts: pyarrow.StringArray, stream: bytes) -> int:
    """The opening brackets of the value that has most, which is no less than its levels."""
    if stream.count(b"\n") == len(texts):  # a line for each value: three times as fast as Arrow's count
        return max(map(len, stream.translate(None, _NO_BRACKETS).split(b"\n")))
    count = pyarrow.compute.count_substring
    return int(pyarrow.compute.max(pyarrow.compute.add(count(texts, "{"), count(texts, "["))).as_py())


def _inferred_by_rows(block: pyarrow.BinaryArray) -> pyarrow.StructType:
    found: pyarrow.DataType = pyarrow.struct([])
    for value in block.to_pylist():
        try:
            document = document_of(value)
        except (ValueError, RecursionError):
            continue
        if isinstance(document, dict):
            found = _merged(found, _type_of(document, DEPTH_MAX))
    return found


def _type_of(value: Any, depth: int) -> pyarrow.DataType:
    match value:
        case bool():
            return pyarrow.bool_()
        case int():
            return pyarrow.int64() if -(1 << 63) <= value < 1 << 63 else pyarrow.float64()
        case float() | Decimal():
            return pyarrow.float64()
        case dict() if depth:
            fields = [pyarrow.field(name, _type_of(each, depth - 1)) for name, each in value.items()]
            return pyarrow.struct(fields)
        case list() if depth:
            element: pyarrow.DataType = pyarrow.null()
            for each in value:
                element = _merged(element, _type_of(each, depth - 1))
            return pyarrow.list_(element)
        case None:
            return pyarrow.null()
    return pyarrow.string()


def _merged(first: pyarrow.DataType, second: pyarrow.DataType) -> pyarrow.DataType:
    """The type for values of both; the first one if there is none."""
    types = pyarrow.types
    if first == second or types.is_null(second):
        return first
    if types.is_null(first):
        return second
    if {first, second} == {pyarrow.int64(), pyarrow.float64()}:
        return pyarrow.float64()
    if types.is_struct(first) and types.is_struct(second):
        fields = {field.name: field.type for field in first}
        for field in second:
            fields[field.name] = _merged(fields.get(field.name, pyarrow.null()), field.type)
        return pyarrow.struct(list(fields.items()))
    if types.is_list(first) and types.is_list(second):
        return pyarrow.list_(_merged(first.value_type, second.value_type))
    return first


def _usable(kind: pyarrow.DataType, nulls_as_text: bool) -> pyarrow.DataType:
    """The type with text where Arrow saw a time or only nulls, and without structs that have no fields."""
    types = pyarrow.types
    if types.is_struct(kind):
        fields = [(field.name, _usable(field.type, nulls_as_text)) for field in kind]
        return pyarrow.struct([(name, inner) for name, inner in fields if not _is_empty(inner)])
    if types.is_list(kind):
        return pyarrow.list_(_usable(kind.value_type, nulls_as_text))
    if types.is_null(kind):
        return pyarrow.string() if nulls_as_text else pyarrow.struct([])
    return pyarrow.string() if types.is_timestamp(kind) else kind


def _is_empty(kind: pyarrow.DataType) -> bool:
    while pyarrow.types.is_list(kind):
        kind = kind.value_type
    return bool(pyarrow.types.is_struct(kind)) and not kind.num_fields
