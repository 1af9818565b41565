"""Schemas of a registry, the names under which they are kept, and where a record says which one it has. Pure.

    0 | id int32                 | [message indexes] | payload        the usual prefix
    1 | guid 16 bytes            | [message indexes] | payload        the same by a global id
    header __key_schema_id or __value_schema_id: 1 | guid | [message indexes], and a payload without a prefix

Message indexes are of Protobuf alone: the path to the message in its file, as zigzag varints after their count; the
path [0] is one zero byte. Source: Confluent's serializers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from headrace.client.serializers.context import KEY, Header, SerializationContext

AVRO: Final = "AVRO"
JSON: Final = "JSON"
PROTOBUF: Final = "PROTOBUF"

ID_MAGIC, GUID_MAGIC = 0, 1
_INDEXES_MAX = 100
_VARINT_BYTES_MAX = 5


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema that another one uses under a name."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema's text; `kind` is AVRO, JSON or PROTOBUF."""

    text: str
    kind: str = AVRO
    references: tuple[Reference, ...] = ()


@dataclass(frozen=True, slots=True)
class Registered:
    """A schema that a registry knows; old registries give no guid."""

    id: int
    schema: Schema = field(repr=False)
    guid: UUID | None = None
    version: int | None = None


SubjectNames: TypeAlias = Callable[[SerializationContext, str | None], str]
"""The subject of a schema, by where the record goes and the name of the record in the schema."""


def topic_name(context: SerializationContext, record: str | None) -> str:
    """`orders-value`: one schema for a topic, with its versions."""
    return f"{context.topic}-{context.field}"


def record_name(context: SerializationContext, record: str | None) -> str:
    """`shop.Order`: one schema for a kind of record, in whichever topic."""
    return _named(record)


def topic_record_name(context: SerializationContext, record: str | None) -> str:
    """`orders-shop.Order`: several kinds of records in a topic."""
    return f"{context.topic}-{_named(record)}"


STRATEGIES: dict[str, SubjectNames] = {
    "topic": topic_name,
    "record": record_name,
    "topic_record": topic_record_name,
}


def _named(record: str | None) -> str:
    if not record:
        raise ValueError("the schema has no name, which its subject would be made of: use the strategy `topic`")
    return record


class Frame(NamedTuple):
    """Which schema a record has, and its payload."""

    schema: int | UUID
    indexes: list[int] | None
    payload: bytes


def header_name(context: SerializationContext) -> str:
    """The header that has the schema's guid."""
    return "__key_schema_id" if context.field == KEY else "__value_schema_id"


def prefix_of(registered: Registered, indexes: Iterable[int] | None = None) -> bytes:
    """The prefix of a payload."""
    return bytes((ID_MAGIC,)) + registered.id.to_bytes(4, "big") + _index_bytes(indexes)


def header_of(registered: Registered, context: SerializationContext, indexes: Iterable[int] | None = None) -> Header:
    """The header beside a payload without a prefix. ValueError if the registry gave no guid."""
    if registered.guid is None:
        raise ValueError("the registry gives no guid of schemas: keep the schema's id in the prefix")
    return header_name(context), bytes((GUID_MAGIC,)) + registered.guid.bytes + _index_bytes(indexes)


def frame_of(data: bytes, context: SerializationContext, kind: str) -> Frame:
    """The frame of a key or value: of its header, else of its prefix. ValueError if it has none."""
    name = header_name(context)
    for header, content in context.headers:
        if header == name and content is not None:
            schema, indexes, rest = _identified(bytes(content), kind)
            if rest:
                raise ValueError(f"the header {name} has {len(rest)} bytes too many")
            return Frame(schema, indexes, data)
    return Frame(*_identified(data, kind))


def _identified(data: bytes, kind: str) -> tuple[int | UUID, list[int] | None, bytes]:
    """The schema, the message indexes, and what follows."""
    magic = data[0] if data else None
    size = {ID_MAGIC: 5, GUID_MAGIC: 17}.get(-1 if magic is None else magic)
    if size is None or len(data) < size:
        raise ValueError(
            f"{len(data)} bytes that begin with {data[:5].hex() or 'nothing'} name no schema of a registry"
        )
    schema = int.from_bytes(data[1:5], "big") if magic == ID_MAGIC else UUID(bytes=data[1:17])
    if kind != PROTOBUF:
        return schema, None, data[size:]
    indexes, position = _indexes(data, size)
    return schema, indexes, data[position:]


def _index_bytes(indexes: Iterable[int] | None) -> bytes:
    if indexes is None:
        return b""
    path = list(indexes)
    return b"\0" if path == [0] else b"".join(map(_varint_bytes, (len(path), *path)))


def _indexes(data: bytes, position: int) -> tuple[list[int], int]:
    count, position = _varint(data, position)
    if not 0 <= count <= _INDEXES_MAX:
        raise ValueError(f"a path of {count} message indexes")
    path = []
    for _ in range(count):
        index, position = _varint(data, position)
        path.append(index)
    return path or [0], position


def _varint_bytes(number: int) -> bytes:
    rest, found = (number << 1) ^ (number >> 31), bytearray()
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    found.append(rest)
    return bytes(found)


def _varint(data: bytes, position: int) -> tuple[int, int]:
    rest = 0
    for shift in range(_VARINT_BYTES_MAX):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        rest |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return (rest >> 1) ^ -(rest & 1), position
    raise ValueError("the message indexes are cut off")
