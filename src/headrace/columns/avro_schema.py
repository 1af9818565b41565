"""The Arrow schema of records in Avro: what `AvroDecoder` makes of them. Pure.

null, boolean, int, long, float, double, string, bytes, fixed, enum     as they are; fixed is binary, enum is text
    decimal, date, timestamp-millis and -micros, and their local forms      Arrow's; another logical type as the plain
record, array, map, union of null and another type                      struct, list, map, the other type
a record within itself, a union of several types                        TypeError
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow

_PLAIN: dict[str, pyarrow.DataType] = {
    "null": pyarrow.null(),
    "boolean": pyarrow.bool_(),
    "int": pyarrow.int32(),
    "long": pyarrow.int64(),
    "float": pyarrow.float32(),
    "double": pyarrow.float64(),
    "string": pyarrow.string(),
    "bytes": pyarrow.binary(),
}
_LOGICAL: dict[tuple[str, str], pyarrow.DataType] = {
    ("int", "date"): pyarrow.date32(),
    ("long", "timestamp-millis"): pyarrow.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pyarrow.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pyarrow.timestamp("ms"),
    ("long", "local-timestamp-micros"): pyarrow.timestamp("us"),
}
_DECIMAL_DIGITS_MAX = 38


def arrow_schema_of(schema: Any) -> pyarrow.Schema:
    """The columns of a record's schema, as its JSON has it. TypeError names what no column can hold."""
    if not isinstance(schema, Mapping) or schema.get("type") not in ("record", "error"):
        raise TypeError("only records have columns")
    kind = _Types().of(schema, "")
    return pyarrow.schema(list(kind))


class _Types:
    """The named types of a schema, known from where they are defined on."""

    def __init__(self) -> None:
        self._named: dict[str, pyarrow.DataType | None] = {}

    def of(self, schema: Any, namespace: str) -> pyarrow.DataType:
        if isinstance(schema, str):
            return _PLAIN[schema] if schema in _PLAIN else self._known(schema, namespace)
        if isinstance(schema, list):
            others = [each for each in schema if each != "null"]
            if len(others) > 1:
                raise TypeError(f"a union of {len(others)} types is no column")
            return self.of(others[0], namespace) if others else pyarrow.null()
        kind = schema["type"]
        if kind in ("record", "error", "enum", "fixed"):
            return self._defined(schema, namespace)
        if kind == "array":
            return pyarrow.list_(self.of(schema["items"], namespace))
        if kind == "map":
            return pyarrow.map_(pyarrow.string(), self.of(schema["values"], namespace))
        if isinstance(kind, str) and kind in _PLAIN:
            return _logical(schema, kind)
        return self.of(kind, namespace)

    def _known(self, name: str, namespace: str) -> pyarrow.DataType:
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        found = self._named.get(full, self._named.get(name))
        if found is None:
            raise TypeError(f"{name} refers to itself, or is not defined")
        return found

    def _defined(self, schema: Mapping[str, Any], namespace: str) -> pyarrow.DataType:
        name = schema["name"]
        own = name.rpartition(".")[0] or schema.get("namespace", namespace)
        full = name if "." in name or not own else f"{own}.{name}"
        self._named[full] = None  # until it is complete
        if schema["type"] == "enum":
            found: pyarrow.DataType = pyarrow.string()
        elif schema["type"] == "fixed":
            found = _logical(schema, "fixed")
        else:
            found = pyarrow.struct([(field["name"], self.of(field["type"], own)) for field in schema["fields"]])
        self._named[full] = found
        return found


def _logical(schema: Mapping[str, Any], kind: str) -> pyarrow.DataType:
    plain = _PLAIN.get(kind, pyarrow.binary())
    logical = schema.get("logicalType")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision, scale = schema.get("precision", 0), schema.get("scale", 0)
        is_usable = 0 < precision <= _DECIMAL_DIGITS_MAX and 0 <= scale <= precision
        return pyarrow.decimal128(precision, scale) if is_usable else plain
    return _LOGICAL.get((kind, str(logical)), plain)
