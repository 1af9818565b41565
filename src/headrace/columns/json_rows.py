"""One JSON value alone, by the standard library: for the rows of a block that Arrow's reader refuses.

It finds out which fields fit, so that one wrong field does not take the others with it. A key that occurs twice is
ambiguous: its column is null. Slow: some ten microseconds per value, and more where a time must be parsed.

Where Arrow's reader might take what is refused here (times, decimals, deep nesting), the verdict is doubtful, and the
reader is asked about the value alone.
"""

from __future__ import annotations

import json
from decimal import Decimal, InvalidOperation
from enum import IntEnum
from math import isinf
from typing import Any, NamedTuple

import pyarrow

_DIGITS_MAX = 400
"""Longer numbers fit no type, and Python takes quadratic time to parse them."""


class ValueFit(IntEnum):
    """Whether all of a value fits into the columns."""

    REFUSED = 0
    DOUBTFUL = 1
    WHOLE = 2


REFUSED, DOUBTFUL, WHOLE = ValueFit


class Row(NamedTuple):
    """The fields of a value that fit (None: it is no object), and whether all did."""

    fields: dict[str, Any] | None
    verdict: ValueFit


class _Object(dict[str, Any]):
    """A JSON object that knows which of its keys occurred twice."""

    repeated: frozenset[str] = frozenset()


def row_of(value: bytes, kind: pyarrow.StructType) -> Row:
    """The value as a row of `kind`; no fields if it is not exactly one JSON object in UTF-8. Never raises."""
    try:
        found = document_of(value)
    except RecursionError:
        return Row(None, DOUBTFUL)
    except ValueError:
        return Row(None, DOUBTFUL if b"Inf" in value else REFUSED)
    return Row(*_struct(found, kind)) if isinstance(found, _Object) else Row(None, REFUSED)


def document_of(value: bytes) -> Any:
    """The one JSON document in the value. ValueError if there is another number of them, or no JSON in UTF-8;
    RecursionError for one that is nested too deeply.
    """
    return _DECODER.decode(value.decode("utf-8"))


def _object(pairs: list[tuple[str, Any]]) -> _Object:
    made = _Object(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        made.repeated = frozenset(name for name in made if names.count(name) > 1)
    return made


def _integer(digits: str) -> int | Decimal:
    return int(digits) if len(digits) < _DIGITS_MAX else Decimal(digits)


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_float=Decimal, parse_int=_integer)


def _struct(found: _Object, kind: pyarrow.StructType) -> tuple[dict[str, Any], ValueFit]:
    fields: dict[str, Any] = {}
    verdict = DOUBTFUL if not found.repeated.isdisjoint(kind.names) else WHOLE
    for field in kind:
        value = found.get(field.name)
        if value is not None and field.name not in found.repeated:
            fields[field.name], one = _converted(value, field.type)
            verdict = min(verdict, one)
    return fields, verdict


def _converted(value: Any, kind: pyarrow.DataType) -> tuple[Any, ValueFit]:
    """The value for a column of this type, or None; and whether nothing of it was lost."""
    types = pyarrow.types
    if value is None:
        return None, WHOLE
    if types.is_struct(kind):
        return _struct(value, kind) if isinstance(value, _Object) else (None, REFUSED)
    if types.is_list(kind):
        return _list(value, kind) if isinstance(value, list) else (None, REFUSED)
    if isinstance(value, bool) or types.is_boolean(kind):
        return _kept(value, isinstance(value, bool) and types.is_boolean(kind), REFUSED)
    if types.is_string(kind) or types.is_large_string(kind):
        return _kept(value, isinstance(value, str) and _is_unicode(value), REFUSED)
    if types.is_integer(kind):
        is_number = not isinstance(value, str)
        return _kept(value, isinstance(value, int) and _is_in_range(value, kind), DOUBTFUL if is_number else REFUSED)
    if types.is_floating(kind):
        return _float(value)
    return _parsed(value, kind)


def _kept(value: Any, fits: bool, otherwise: ValueFit) -> tuple[Any, ValueFit]:
    return (value, WHOLE) if fits else (None, otherwise)


def _float(value: Any) -> tuple[float | None, ValueFit]:
    if not isinstance(value, int | float | Decimal):
        return None, REFUSED
    try:
        number = float(value)
    except OverflowError:
        return None, DOUBTFUL
    return _kept(number, isinstance(value, float) or not isinf(number), DOUBTFUL)


def _list(value: list[Any], kind: pyarrow.ListType) -> tuple[list[Any] | None, ValueFit]:
    """A list, if every element fits: the others would move to another place."""
    elements = [_converted(each, kind.value_type) for each in value]
    verdict = min((one for _, one in elements), default=WHOLE)
    return ([each for each, _ in elements] if verdict is WHOLE else None), verdict


def _is_unicode(text: str) -> bool:
    """Not with half of a surrogate pair, which JSON can escape and UTF-8 cannot hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_in_range(value: int, kind: pyarrow.DataType) -> bool:
    bits = kind.bit_width
    if pyarrow.types.is_signed_integer(kind):
        return bool(-(1 << bits - 1) <= value < 1 << bits - 1)
    return bool(0 <= value < 1 << bits)


def _parsed(value: Any, kind: pyarrow.DataType) -> tuple[Any, ValueFit]:
    """Decimals, and dates and times as text."""
    try:
        if pyarrow.types.is_decimal(kind):
            if isinstance(value, str | int | Decimal):
                return pyarrow.scalar(Decimal(value), kind).as_py(), WHOLE
        elif isinstance(value, str):
            return _time(value, kind), WHOLE
    except (pyarrow.ArrowException, InvalidOperation, ValueError, OverflowError):
        return None, DOUBTFUL
    return None, REFUSED


def _time(text: str, kind: pyarrow.DataType) -> int:
    """Days, or units of time, since 1970; digits below the unit are cut off."""
    if not pyarrow.types.is_timestamp(kind):
        return int(pyarrow.scalar(text).cast(kind).cast(pyarrow.int32()).as_py())
    plain = pyarrow.scalar(text)
    for zone in ("UTC", None):  # without an offset a time is in UTC
        for unit in (kind.unit, "ns"):
            try:
                time = plain.cast(pyarrow.timestamp(unit, zone))
            except pyarrow.ArrowInvalid:
                continue
            return int(time.cast(pyarrow.timestamp(kind.unit, zone), safe=False).cast(pyarrow.int64()).as_py())
    raise ValueError(text)
