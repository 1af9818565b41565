"""Serializers by what users give for them: a name, a type, a class of records, or the thing itself.

Kafka's Java classes are known by their names, too, so that the properties of a Java client work:
`org.apache.kafka.common.serialization.LongSerializer` is `long`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.client.serializers import plain
from headrace.client.serializers.json_values import JsonDeserializer, JsonSerializer
from headrace.client.serializers.models import is_model
from headrace.errors import InvalidConfig

_JAVA = "org.apache.kafka.common.serialization."
_ALIASES = {"bytearray": "bytes", "bytebuffer": "bytes", "int": "integer", "str": "string", "bool": "boolean"}
_TYPES: dict[Any, str] = {str: "string", bytes: "bytes", dict: "json", list: "json"}
NAMES = ("string", "bytes", "json", *plain.NUMBERS, "uuid")


def serializer_of(given: Any, setting: str) -> Any:
    """The serializer that is meant. InvalidConfig names the setting."""
    name = _name_of(given, setting)
    if name is None:
        return JsonSerializer() if is_model(given) else given
    if name in plain.NUMBERS:
        return plain.NumberSerializer(plain.NUMBERS[name])
    made: dict[str, Callable[[], Any]] = {
        "string": plain.StringSerializer,
        "bytes": lambda: plain.as_is,
        "json": JsonSerializer,
        "uuid": lambda: plain.uuid_bytes,
    }
    return made[name]()


def deserializer_of(given: Any, setting: str) -> Any:
    """The deserializer that is meant. InvalidConfig names the setting."""
    name = _name_of(given, setting)
    if name is None:
        return JsonDeserializer(given) if is_model(given) else given
    if name in plain.NUMBERS:
        return plain.NumberDeserializer(plain.NUMBERS[name])
    made: dict[str, Callable[[], Any]] = {
        "string": plain.StringDeserializer,
        "bytes": lambda: plain.as_is,
        "json": JsonDeserializer,
        "uuid": lambda: plain.uuid_of,
    }
    return made[name]()


def _name_of(given: Any, setting: str) -> str | None:
    if isinstance(given, type) and given in (int, float, bool):
        raise InvalidConfig(f"{setting}={given.__name__}: numbers have several forms, choose integer, long or double")
    name = given if isinstance(given, str) else _TYPES.get(given) if isinstance(given, type) else None
    if name is None:
        return None
    short = name.removeprefix(_JAVA).removesuffix("Serializer").removesuffix("Deserializer").lower()
    known = _ALIASES.get(short, short)
    if known not in NAMES:
        raise InvalidConfig(f"{setting}={name!r}: expected a function, an object, or one of {', '.join(NAMES)}")
    return known
