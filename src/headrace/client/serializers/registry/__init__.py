"""Avro, JSON Schema and Protobuf by a registry of schemas, compatible with Confluent's serializers byte for byte.

    schemas   schemas, subjects, the frame of a value     client   the registry, with a cache
    serdes    what the three formats share                avro     json_schema     protobuf

Confluent's own serializers (confluent_kafka.schema_registry) work with this client too, for what these leave out:
rules, encryption of fields, and migrations. May know HTTP, and each format its library. Begin with `serdes`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.client.serializers.registry.avro import AvroDeserializer, AvroSerializer
    from headrace.client.serializers.registry.client import SchemaRegistry
    from headrace.client.serializers.registry.json_schema import JsonSchemaDeserializer, JsonSchemaSerializer
    from headrace.client.serializers.registry.protobuf import ProtobufDeserializer, ProtobufSerializer
    from headrace.client.serializers.registry.schemas import Reference, Schema
    from headrace.client.serializers.registry.serdes import RegistryOptions

__all__ = [
    "AvroDeserializer",
    "AvroSerializer",
    "JsonSchemaDeserializer",
    "JsonSchemaSerializer",
    "ProtobufDeserializer",
    "ProtobufSerializer",
    "Reference",
    "RegistryOptions",
    "Schema",
    "SchemaRegistry",
]

_MODULES = {
    "AvroDeserializer": "avro",
    "AvroSerializer": "avro",
    "JsonSchemaDeserializer": "json_schema",
    "JsonSchemaSerializer": "json_schema",
    "ProtobufDeserializer": "protobuf",
    "ProtobufSerializer": "protobuf",
    "Reference": "schemas",
    "RegistryOptions": "serdes",
    "Schema": "schemas",
    "SchemaRegistry": "client",
}


if not TYPE_CHECKING:  # where a type checker saw it, a misspelt import would pass

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
