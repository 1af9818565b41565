"""What a serializer is told beside the value, and which objects serve as one. Pure.

A serializer is any of

    f(value)                                  json.dumps, str.encode, a lambda
    f(value, context)                         confluent-kafka's way
    o.serialize(topic, value)                 kafka-python's way, in both of its forms
    o.serialize(topic, headers, value)

and a deserializer the same, with `deserialize`. Null is never given to one: a null value is a tombstone, and a null key
is no key, whatever the format.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from headrace.errors import InvalidConfig

if TYPE_CHECKING:
    from inspect import Parameter

KEY: Final = "key"
VALUE: Final = "value"

Header: TypeAlias = tuple[str, bytes | None]
SerializerLike: TypeAlias = Callable[..., bytes | None] | object
"""A callable, an object with `serialize`, a name such as `json`, or a class of records as `str` or a dataclass."""
DeserializerLike: TypeAlias = Callable[..., Any] | object


class SerializationContext:
    """Where a value is from or goes to. `field` is `key` or `value`; a serializer may append to `headers`."""

    __slots__ = ("field", "headers", "topic")

    def __init__(self, topic: str, field: str, headers: list[Header] | None = None) -> None:
        self.topic: str = topic
        self.field: str = field
        self.headers: list[Header] = [] if headers is None else headers

    def __repr__(self) -> str:
        return f"SerializationContext(topic={self.topic!r}, field={self.field!r}, headers={self.headers!r})"


Function: TypeAlias = Callable[[Any, SerializationContext], Any]
"""The one form that the clients call."""


def with_context(given: Any, method: str) -> Function:
    """`given` as a function of a value and its context. `method` is serialize or deserialize. Raises InvalidConfig."""
    bound: Any = getattr(given, method, None)
    if bound is not None and not isinstance(given, type):
        if len(_positional(bound)) >= 3:
            return lambda value, context: bound(context.topic, context.headers, value)
        return lambda value, context: bound(context.topic, value)
    if not callable(given):
        raise InvalidConfig(
            f"{given!r} is no {method}r: give a function of the value, an object with {method}, or a name such as json"
        )
    if _takes_context(given):
        function: Function = given
        return function
    return lambda value, _: given(value)


def may_wait_of(given: Any) -> Callable[[str, str], bool]:
    """Whether a call of the serializer for (topic, field) may wait for another server. confluent-kafka's may."""
    asked: Callable[[str, str], bool] | None = getattr(given, "may_wait", None)
    is_foreign = type(given).__module__.startswith("confluent_kafka.schema_registry")
    return asked or (lambda topic, field: is_foreign)


def _takes_context(given: Callable[..., Any]) -> bool:
    """Whether the second argument is the context: one that is required, or one that is called so."""
    if isinstance(given, type):
        return False
    positional = _positional(given)
    required = [each for each in positional if each.default is each.empty]
    return len(required) == 2 or (len(positional) > 1 and positional[1].name in ("ctx", "context"))


def _positional(given: Callable[..., Any]) -> list[Parameter]:
    from inspect import signature  # 5 ms of an import, for those who have a serializer alone

    try:
        parameters = signature(given).parameters.values()
    except (TypeError, ValueError):  # written in C
        return []
    return [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
