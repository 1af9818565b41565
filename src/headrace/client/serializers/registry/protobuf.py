"""Protobuf messages with a schema of a registry. The bytes are those of Confluent's serializers.

A schema is registered as the serialized descriptor of its file in base64, which needs no compiler here; the files that
it imports are registered before it, under their own names.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any

from headrace.client.serializers.context import SerializationContext
from headrace.client.serializers.errors import missing_library
from headrace.client.serializers.registry.client import SchemaRegistry
from headrace.client.serializers.registry.schemas import PROTOBUF, Reference, Schema, frame_of
from headrace.client.serializers.registry.serdes import OPTIONS, Parsed, RegistryOptions, SchemaRegistration

_BUILT_IN = ("google/protobuf/", "confluent/", "google/type/")


class ProtobufSerializer:
    """Messages of one class."""

    def __init__(self, registry: SchemaRegistry, message_type: Any, options: RegistryOptions = OPTIONS) -> None:
        """Raises InvalidConfig without protobuf."""
        _protobuf()
        self._type = message_type
        self._registration = SchemaRegistration(registry, options)
        self._indexes = _path_of(message_type.DESCRIPTOR)
        self._schema: Schema | None = None
        self.may_wait: Callable[[str, str], bool] = self._registration.may_wait

    def __call__(self, value: Any, context: SerializationContext) -> bytes:
        """The message's bytes. TypeError for another class."""
        if not isinstance(value, self._type):
            raise TypeError(f"a {type(value).__name__} where a {self._type.__name__} is expected")
        registered = self._registration.registered(context, self._type.DESCRIPTOR.full_name, self._given)
        return self._registration.framed(registered, value.SerializeToString(), context, self._indexes)

    def _given(self) -> Schema:
        if self._schema is None:
            file = self._type.DESCRIPTOR.file
            self._schema = Schema(_text_of(file), PROTOBUF, self._references(file))
        return self._schema

    def _references(self, file: Any) -> tuple[Reference, ...]:
        registry, options = self._registration.registry, self._registration.options
        found = []
        for needed in file.dependencies:
            if needed.name.startswith(_BUILT_IN):
                continue
            schema = Schema(_text_of(needed), PROTOBUF, self._references(needed))
            if options.auto_register_schemas:
                registry.register(needed.name, schema, normalize=options.normalize_schemas)
            known = registry.lookup(needed.name, schema, normalize=options.normalize_schemas)
            found.append(Reference(needed.name, needed.name, known.version or 1))
        return tuple(found)


class ProtobufDeserializer:
    """Messages of a class, or without one of whatever the record's schema has."""

    def __init__(self, message_type: Any = None, registry: SchemaRegistry | None = None) -> None:
        """With `message_type` no registry is asked. Raises InvalidConfig without protobuf, ValueError without both."""
        _protobuf()
        if message_type is None and registry is None:
            raise ValueError("give the message's class, or a registry that has its schema")
        self._type, self._registry = message_type, registry
        self._files = Parsed(self._file)

    def __call__(self, data: bytes, context: SerializationContext) -> Any:
        """The message. ValueError for a wrong frame, protobuf's DecodeError for a wrong payload."""
        frame = frame_of(data, context, PROTOBUF)
        kind = self._type or self._dynamic(frame.schema, frame.indexes or [0])
        message = kind()
        message.ParseFromString(frame.payload)
        return message

    def _dynamic(self, key: Any, indexes: list[int]) -> Any:
        from google.protobuf import message_factory

        assert self._registry is not None, "checked when it was made"
        types = self._files.of(self._registry.schema(key, serialized=True)).message_types_by_name.values()
        found = None
        for index in indexes:
            if not 0 <= index < len(types):
                raise ValueError(f"the schema has no message {indexes}")
            found = list(types)[index]
            types = found.nested_types
        return message_factory.GetMessageClass(found)

    def _file(self, schema: Schema) -> Any:
        """The descriptor of the schema's file, in a pool of its own."""
        from google.protobuf import descriptor_pool

        pool = descriptor_pool.DescriptorPool()
        self._add_references(schema, pool, set())
        return pool.AddSerializedFile(_renamed(schema.text, "headrace_schema.proto", pool))

    def _add_references(self, schema: Schema, pool: Any, known: set[str]) -> None:
        assert self._registry is not None, "only of a registry's schemas"
        for reference in schema.references:
            if reference.name in known:
                continue
            known.add(reference.name)
            subject, version = reference.subject, reference.version
            registered = self._registry.version(subject, version)
            found = self._registry.schema(registered.id, serialized=True)
            self._add_references(found, pool, known)
            pool.AddSerializedFile(_renamed(found.text, reference.name, pool))


def _renamed(text: str, name: str, pool: Any) -> bytes:
    """A serialized file under another name, after the built-in files that it needs are in the pool."""
    from google.protobuf import descriptor_pb2, descriptor_pool

    file = descriptor_pb2.FileDescriptorProto.FromString(b64decode(text, validate=True))
    file.name = name
    default = descriptor_pool.Default()
    for needed in file.dependency:
        if needed.startswith(_BUILT_IN):
            pool.AddSerializedFile(default.FindFileByName(needed).serialized_pb)
    data: bytes = file.SerializeToString()
    return data


def _text_of(file: Any) -> str:
    return b64encode(file.serialized_pb).decode()


def _path_of(descriptor: Any) -> list[int]:
    """The message's place in its file: of its outermost message, and so on inwards."""
    path: list[int] = []
    while descriptor is not None:
        outer = descriptor.containing_type
        siblings = outer.nested_types if outer is not None else descriptor.file.message_types_by_name.values()
        path.insert(0, [each.full_name for each in siblings].index(descriptor.full_name))
        descriptor = outer
    return path


def _protobuf() -> None:
    try:
        import google.protobuf.message_factory  # noqa: F401
    except ModuleNotFoundError:
        raise missing_library("protobuf", "protobuf", "Protobuf") from None
