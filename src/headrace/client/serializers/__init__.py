"""Keys and values as people hold them: serializers of producers, deserializers of consumers.

    Producer(address, value_serializer="json")        Consumer(address, value_deserializer=Order)

    context   what a serializer is told     by_name   a name, a type or an object ─▶ a serializer
    plain     text, bytes, numbers          json_values, models   JSON, and classes of records
    serializing   the producer's part       dead_letters   records that nobody can read
    registry/     Avro, JSON Schema and Protobuf by a registry of schemas

What needs a library imports it when it is made. A name is imported on first use. May know no connection: the registry's
client is the only IO. Begin with `by_name`, then `serializing`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.client.serializers.context import SerializationContext
    from headrace.client.serializers.dead_letters import DeadLetters
    from headrace.client.serializers.errors import (
        RecordDeserializationError,
        RegistryError,
        RegistryUnavailable,
        SerializationError,
    )
    from headrace.client.serializers.json_values import JsonDeserializer, JsonSerializer
    from headrace.client.serializers.plain import StringDeserializer, StringSerializer

__all__ = [
    "DeadLetters",
    "JsonDeserializer",
    "JsonSerializer",
    "RecordDeserializationError",
    "RegistryError",
    "RegistryUnavailable",
    "SerializationContext",
    "SerializationError",
    "StringDeserializer",
    "StringSerializer",
]

_MODULES = {
    "DeadLetters": "dead_letters",
    "JsonDeserializer": "json_values",
    "JsonSerializer": "json_values",
    "RecordDeserializationError": "errors",
    "RegistryError": "errors",
    "RegistryUnavailable": "errors",
    "SerializationContext": "context",
    "SerializationError": "errors",
    "StringDeserializer": "plain",
    "StringSerializer": "plain",
}


if not TYPE_CHECKING:  # where a type checker saw it, a misspelt import would pass

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
