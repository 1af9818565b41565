"""JSON as keys and values: of dictionaries, lists, dataclasses, and models of pydantic and msgspec.

Written compact and in UTF-8, by orjson where it is installed, else by the standard library: the same bytes. Times are
ISO 8601, an Enum is its value, a UUID and a Decimal are text. A number that JSON does not have (NaN) is null with
orjson and an error without.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any, Generic, TypeVar, cast
from uuid import UUID

from headrace.client.serializers.json_text import json_reader
from headrace.client.serializers.models import decoder_of

M = TypeVar("M")


class JsonSerializer:
    """Values as JSON documents. `default` makes something of values that have no form in JSON."""

    def __init__(self, default: Callable[[Any], Any] | None = None) -> None:
        self._default = default
        self._write = _orjson_writer(self._otherwise) or _plain_writer(self._otherwise)

    def __call__(self, value: Any) -> bytes:
        """The document. TypeError for a value that has no form in JSON."""
        return self._write(value)

    def _otherwise(self, value: Any) -> Any:
        if hasattr(value, "model_dump"):
            return value.model_dump(mode="json")
        if hasattr(value, "__struct_fields__"):
            import msgspec

            return msgspec.to_builtins(value)
        if isinstance(value, Decimal):
            return str(value)
        if self._default is not None:
            return self._default(value)
        raise TypeError(f"a {type(value).__name__} has no form in JSON: give `default` to JsonSerializer")


class JsonDeserializer(Generic[M]):
    """Documents as values; of a model, which checks them: a dataclass, or a class of pydantic or msgspec."""

    def __init__(self, model: type[M] | None = None) -> None:
        """InvalidConfig if the model's library is not installed."""
        self._read: Callable[[bytes], Any] = json_reader() if model is None else decoder_of(model)

    def __call__(self, data: bytes) -> M:
        """The value. ValueError for what is no JSON, the model's own error for what does not fit."""
        return cast("M", self._read(data))


def _orjson_writer(otherwise: Callable[[Any], Any]) -> Callable[[Any], bytes] | None:
    try:
        import orjson
    except ModuleNotFoundError:
        return None

    def write(value: Any) -> bytes:
        try:
            return orjson.dumps(value, otherwise, orjson.OPT_NON_STR_KEYS)
        except orjson.JSONEncodeError as error:
            raise error.__cause__ or error from None  # `otherwise` says what to do

    return write


def _plain_writer(otherwise: Callable[[Any], Any]) -> Callable[[Any], bytes]:
    def known(value: Any) -> Any:
        """As orjson does."""
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
        if isinstance(value, datetime | date | time):
            return value.isoformat()
        if isinstance(value, UUID):
            return str(value)
        return value.value if isinstance(value, Enum) else otherwise(value)

    encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=known)
    return lambda value: encoder.encode(value).encode()
