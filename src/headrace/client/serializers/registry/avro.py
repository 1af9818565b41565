"""Values in Avro with a schema of a registry, by fastavro. The bytes are those of Confluent's serializers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any

from headrace.client.serializers.context import SerializationContext
from headrace.client.serializers.errors import missing_library
from headrace.client.serializers.models import converter_of, fields_of
from headrace.client.serializers.registry.client import SchemaRegistry
from headrace.client.serializers.registry.schemas import AVRO, Schema, frame_of
from headrace.client.serializers.registry.serdes import OPTIONS, Parsed, RegistryOptions, SchemaRegistration


class AvroSerializer:
    """Dictionaries, values, and models of dataclasses, pydantic and msgspec in Avro."""

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: str | Mapping[str, Any] | Schema | None = None,
        options: RegistryOptions = OPTIONS,
        to_dict: Callable[[Any], Any] | None = None,
    ) -> None:
        """`schema` may be missing with `use_latest_version`. `to_dict` makes something of values that Avro can hold.

        Raises InvalidConfig without fastavro, and the library's error for a schema that is none.
        """
        _fastavro()
        self._registration = SchemaRegistration(registry, options)
        self._schema = schema_of(schema, AVRO) if schema is not None else None
        if self._schema is None and not options.use_latest_version:
            raise ValueError("a schema is needed: give one, or use_latest_version")
        self._to_dict = to_dict or fields_of
        self._parsed = Parsed(lambda found: parsed_avro(found, registry))
        self._name = None if self._schema is None else name_of(self._parsed.of(self._schema))
        self.may_wait: Callable[[str, str], bool] = self._registration.may_wait

    def __call__(self, value: Any, context: SerializationContext) -> bytes:
        """The value's bytes. Raises what fastavro does for a value that does not fit."""
        registered = self._registration.registered(context, self._name, self._given)
        schema = self._parsed.of(registered.schema)
        plain = self._to_dict(value)
        return self._registration.framed(registered, _written(schema, plain), context)

    def _given(self) -> Schema:
        assert self._schema is not None, "checked when it was made"
        return self._schema


class AvroDeserializer:
    """Avro as dictionaries and values, or as objects of a model."""

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: str | Mapping[str, Any] | Schema | None = None,
        model: Any = None,
    ) -> None:
        """`schema` is the reader's, to which records of other versions are resolved; without one it is the record's.

        `model` is a class of records, or a function of the dictionary. Raises InvalidConfig without a library.
        """
        _fastavro()
        self._registry = registry
        self._parsed = Parsed(lambda found: parsed_avro(found, registry))
        self._reader = None if schema is None else self._parsed.of(schema_of(schema, AVRO))
        self._made = None if model is None else converter_of(model)

    def __call__(self, data: bytes, context: SerializationContext) -> Any:
        """The value. ValueError for a wrong frame, fastavro's errors for a payload that does not fit the schema."""
        frame = frame_of(data, context, AVRO)
        schema = self._parsed.of(self._registry.schema(frame.schema))
        found = frame.payload if _is_bytes(schema) else _read(frame.payload, schema, self._reader)
        return found if self._made is None else self._made(found)


def parsed_avro(schema: Schema, registry: SchemaRegistry) -> Any:
    """The schema as fastavro has it, with those that it refers to."""
    named: dict[str, Any] = {}
    _collect(schema, registry, named)
    return _fastavro().schema.load_schema("$root", repo=_Repository({**named, "$root": json.loads(schema.text)}))


def schema_of(given: str | Mapping[str, Any] | Schema, kind: str) -> Schema:
    """A schema of its text or its structure; a type's name alone is registered as Confluent's serializers do."""
    if isinstance(given, Schema):
        return given
    text = given.strip() if isinstance(given, str) else json.dumps(given)
    return Schema(f'{{"type":{text}}}' if kind == AVRO and text[:1] not in ("{", "[") else text, kind)


def name_of(parsed: Any) -> str | None:
    """The name of a record; a primitive is called as its type, and a union has no name."""
    if isinstance(parsed, dict):
        name = parsed.get("name", parsed.get("type"))
        return name if isinstance(name, str) else None
    return parsed if isinstance(parsed, str) else None


class _Repository:
    """Schemas by name, for fastavro."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named

    def load(self, name: str) -> Any:
        """A copy, as fastavro changes what it gets. Its error for an unknown name."""
        try:
            return json.loads(json.dumps(self._named[name]))
        except KeyError:
            raise _fastavro().repository.SchemaRepositoryError(
                f"the schema refers to {name}, which is missing"
            ) from None


def _collect(schema: Schema, registry: SchemaRegistry, named: dict[str, Any]) -> None:
    for reference in schema.references:
        if reference.name not in named:
            found = registry.version(reference.subject, reference.version).schema
            named[reference.name] = json.loads(found.text)
            _collect(found, registry, named)


def _is_bytes(schema: Any) -> bool:
    """A schema of bytes alone has no length before them: Confluent's serializers leave it out."""
    return schema == "bytes" or (isinstance(schema, dict) and schema.get("type") == "bytes")


def _written(schema: Any, value: Any) -> bytes:
    if _is_bytes(schema):
        return bytes(value)
    buffer = BytesIO()
    _fastavro().schemaless_writer(buffer, schema, value)
    return buffer.getvalue()


def _read(payload: bytes, writer: Any, reader: Any) -> Any:
    return _fastavro().schemaless_reader(BytesIO(payload), writer, reader)


def _fastavro() -> Any:
    try:
        import fastavro
        import fastavro.repository
        import fastavro.schema
    except ModuleNotFoundError:
        raise missing_library("fastavro", "avro", "Avro") from None
    return fastavro
