"""The serializers of a producer, applied to a record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.client.serializers.context import (
    KEY,
    VALUE,
    Function,
    Header,
    SerializationContext,
    may_wait_of,
    with_context,
)
from headrace.client.serializers.errors import RegistryUnavailable, SerializationError


class Serializing:
    """The key's serializer and the value's; None sends bytes as they are. Threads may share it."""

    def __init__(self, key: Any, value: Any) -> None:
        """Raises InvalidConfig for what is no serializer."""
        from headrace.client.serializers.by_name import serializer_of  # not for those who send bytes

        found = serializer_of(key, "key_serializer"), serializer_of(value, "value_serializer")
        self._key, self._value = (None if each is None else with_context(each, "serialize") for each in found)
        self._waits = [(field, may_wait_of(each)) for field, each in zip((KEY, VALUE), found, strict=True)]

    def may_wait(self, topic: str) -> bool:
        """Whether `record` may wait for another server, such as a registry of schemas."""
        return any(waits(topic, field) for field, waits in self._waits)

    def record(self, topic: str, key: Any, value: Any, headers: Any) -> tuple[Any, Any, Any]:
        """Key, value and headers in bytes; a serializer may have added headers. Raises SerializationError."""
        try:
            pairs: list[Header] = list(headers.items() if isinstance(headers, Mapping) else headers)
        except TypeError:
            pairs = headers  # refused by `send`, which says why
        if key is not None and self._key is not None:
            key = _applied(self._key, key, SerializationContext(topic, KEY, pairs))
        if value is not None and self._value is not None:
            value = _applied(self._value, value, SerializationContext(topic, VALUE, pairs))
        return key, value, pairs


def _applied(function: Function, value: Any, context: SerializationContext) -> Any:
    try:
        return function(value, context)
    except RegistryUnavailable:
        raise
    except Exception as cause:  # of whatever library the serializer is from
        said = f"{type(cause).__name__}: {cause}"[:500]
        raise SerializationError(f"{context.topic}: the {context.field} cannot be serialized: {said}") from cause


def serializing_of(key: Any, value: Any) -> Serializing | None:
    """None where no serializer is set, which costs a producer nothing."""
    return None if key is None and value is None else Serializing(key, value)
