"""The columns that the fields of JSON values become, and how they grow. Pure.

    field price          column price
    field key            column value_key         the record's own columns and those of the load job keep their names
    field value_key      column value_value_key   so that each column is of one field
    field "a b"          no column                Delta's readers refuse such names: the value is rescued
    field Price          no column                beside price: readers ignore case

A field with another type than its column stays out, and the value is rescued. There are `FIELDS_MAX` fields at most, at
any depth: an object with keys that are data would make a column of each.
"""

import re
from typing import Any, Final, NamedTuple

import pyarrow as pa

from headrace.lake.decoding import HEADERS

ORIGIN: Final = ("topic", "partition", "offset", "timestamp", "key")
CORRUPT_COLUMN: Final = "corrupt_value"
TOMBSTONE_COLUMN: Final = "tombstone"
FIELDS_MAX: Final = 1_000
NAME_MAX: Final = 255
PARTITION_COLUMNS: Final = ("record_month", "record_day", "record_hour", "key_bucket")
"""The columns that divide a table into partitions, if they are not of fields."""
WIDER: Final = {
    (pa.int32(), pa.int64()),
    (pa.int32(), pa.float64()),
    (pa.int64(), pa.float64()),
    (pa.float32(), pa.float64()),
}
"""The types of numbers that a column may get another one for."""
_OWN: Final = frozenset({*ORIGIN, HEADERS, CORRUPT_COLUMN, TOMBSTONE_COLUMN, *PARTITION_COLUMNS})
_PREFIX: Final = "value_"
_UNUSABLE: Final = re.compile(r"[ ,;{}()=.`\x00-\x1f\x7f]")


class Growth(NamedTuple):
    """Fields with those that were found, and whether some of these cannot be columns."""

    fields: pa.StructType
    is_incomplete: bool


def column_of(field: str) -> str:
    """The column of a field."""
    return _PREFIX + field if _base(field) in _OWN else field


def field_of(column: str) -> str:
    """The field of a column: the inverse of `column_of`."""
    return column.removeprefix(_PREFIX) if _base(column) in _OWN else column


def is_own(column: str) -> bool:
    """Whether a column is not of a field."""
    return column.lower() in _OWN


def grown(known: pa.StructType, found: pa.StructType, *, widens: bool = False) -> Growth:
    """`known` with the fields of `found` that it does not have, at any depth; with `widens` also with wider types."""
    room = FIELDS_MAX - _count(known)
    fields, room, is_incomplete = _grown(known, found, room, widens)
    return Growth(fields, is_incomplete)


def has_more(document: Any, kind: pa.DataType) -> bool:
    """Whether a JSON document has fields with a value that `kind` has no place for."""
    if isinstance(document, dict) and pa.types.is_struct(kind):
        types = {field.name: field.type for field in kind}
        return any(
            not _is_nothing(value) if name not in types else has_more(value, types[name])
            for name, value in document.items()
        )
    if isinstance(document, list) and pa.types.is_list(kind):
        return any(has_more(value, kind.value_type) for value in document)
    return False


def differs_by_case(known: pa.DataType, found: pa.DataType) -> bool:
    """Whether a field was found whose name is that of a known one except for its case, at any depth."""
    if pa.types.is_list(known) and pa.types.is_list(found):
        return differs_by_case(known.value_type, found.value_type)
    if not (pa.types.is_struct(known) and pa.types.is_struct(found)):
        return False
    types = {field.name: field.type for field in known}
    folded = {name.casefold() for name in types}
    return any(
        differs_by_case(types[field.name], field.type) if field.name in types else field.name.casefold() in folded
        for field in found
    )


def _base(name: str) -> str:
    while name.startswith(_PREFIX):
        name = name.removeprefix(_PREFIX)
    return name.lower()


def _grown(known: pa.StructType, found: pa.StructType, room: int, widens: bool) -> tuple[pa.StructType, int, bool]:
    fields = {field.name: field.type for field in known}
    folded = {name.lower() for name in fields}
    is_incomplete = False
    for name, kind in ((field.name, field.type) for field in found):
        if name in fields:
            fields[name], room, lacks = _merged(fields[name], kind, room, widens)
            is_incomplete |= lacks
        elif not name or len(name) > NAME_MAX or _UNUSABLE.search(name) or name.lower() in folded:
            is_incomplete = True
        else:
            usable, left, lacks = _merged(_emptied(kind), kind, room - 1, widens)
            is_incomplete |= lacks or left < 0
            if left >= 0 and not _is_empty(usable):
                fields[name], room = usable, left
                folded.add(name.lower())
    return pa.struct(list(fields.items())), room, is_incomplete


def _merged(known: pa.DataType, found: pa.DataType, room: int, widens: bool) -> tuple[pa.DataType, int, bool]:
    if pa.types.is_struct(known) and pa.types.is_struct(found):
        return _grown(known, found, room, widens)
    if pa.types.is_list(known) and pa.types.is_list(found):
        element, room, is_incomplete = _merged(known.value_type, found.value_type, room, widens)
        return pa.list_(element), room, is_incomplete
    if widens and (known, found) in WIDER:
        return found, room, False
    return known, room, False  # the decoder rescues values of another type


def _emptied(kind: pa.DataType) -> pa.DataType:
    """The type without the fields of its structs."""
    if pa.types.is_struct(kind):
        return pa.struct([])
    return pa.list_(_emptied(kind.value_type)) if pa.types.is_list(kind) else kind


def _is_empty(kind: pa.DataType) -> bool:
    while pa.types.is_list(kind):
        kind = kind.value_type
    return bool(pa.types.is_struct(kind)) and not kind.num_fields


def _count(kind: pa.DataType) -> int:
    if pa.types.is_struct(kind):
        return sum(1 + _count(field.type) for field in kind)
    return _count(kind.value_type) if pa.types.is_list(kind) else 0


def _is_nothing(value: Any) -> bool:
    return value is None or value == [] or value == {}
