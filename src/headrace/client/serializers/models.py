"""Documents of JSON as objects of a class: dataclasses, and classes of pydantic and msgspec.

Each library reads its own classes. Dataclasses and other types (`list[Order]`, a TypedDict) are read by msgspec if it
is installed, else by pydantic; both check types. Without either, dataclasses are made by their annotations, unchecked
but for missing and unknown fields.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable
from typing import Any, Union

from headrace.client.serializers.errors import missing_library
from headrace.client.serializers.json_text import json_reader


def is_model(given: Any) -> bool:
    """Whether it is a class of records: a dataclass, or one of pydantic or msgspec."""
    if not isinstance(given, type):
        return False
    return dataclasses.is_dataclass(given) or hasattr(given, "model_validate") or hasattr(given, "__struct_fields__")


def decoder_of(model: Any) -> Callable[[bytes], Any]:
    """A function that makes such an object of a document. InvalidConfig names the library that is missing."""
    if hasattr(model, "model_validate_json"):
        read: Callable[[bytes], Any] = model.model_validate_json
        return read
    try:
        import msgspec
    except ModuleNotFoundError:
        pass
    else:
        return msgspec.json.Decoder(model).decode
    try:
        import pydantic
    except ModuleNotFoundError:
        pass
    else:
        return pydantic.TypeAdapter(model).validate_json
    if not dataclasses.is_dataclass(model):
        raise missing_library("msgspec or pydantic", "models", f"JSON as {model}")
    plain = json_reader()
    return lambda data: made(model, plain(data))


def converter_of(model: Any) -> Callable[[Any], Any]:
    """A function that makes such an object of dictionaries and values; another callable as it is."""
    if hasattr(model, "model_validate"):
        validate: Callable[[Any], Any] = model.model_validate
        return validate
    if not is_model(model):
        other: Callable[[Any], Any] = model
        return other
    try:
        import msgspec
    except ModuleNotFoundError:
        return lambda value: made(model, value)
    return lambda value: msgspec.convert(value, model)


def made(kind: Any, value: Any) -> Any:
    """A dataclass of an object's fields, at any depth of lists, dictionaries and options."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        if not isinstance(value, dict):
            raise TypeError(f"a {type(value).__name__} where an object for {kind.__name__} is expected")
        hints = typing.get_type_hints(kind)
        unknown = sorted(value.keys() - hints.keys())
        if unknown:
            raise TypeError(f"{kind.__name__} has no {', '.join(unknown)}")
        return kind(**{name: made(hints[name], each) for name, each in value.items()})
    if origin is list and isinstance(value, list):
        return [made(arguments[0], each) for each in value]
    if origin is dict and isinstance(value, dict):
        return {name: made(arguments[1], each) for name, each in value.items()}
    if origin in (Union, types.UnionType) and value is not None:
        chosen = [each for each in arguments if each is not type(None)]
        return made(chosen[0], value) if len(chosen) == 1 else value
    return value


def fields_of(value: Any) -> Any:
    """A model's fields as dictionaries, lists and values, for a format that writes these; other values as they are."""
    if hasattr(value, "model_dump"):
        return value.model_dump()
    if hasattr(value, "__struct_fields__"):
        import msgspec

        return msgspec.structs.asdict(value) if not _is_nested(value) else _deep(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return value


def _is_nested(value: Any) -> bool:
    return any(
        not isinstance(getattr(value, name), str | bytes | int | float | None) for name in value.__struct_fields__
    )


def _deep(value: Any) -> Any:
    """As `dataclasses.asdict`, of msgspec's structs."""
    if hasattr(value, "__struct_fields__"):
        return {name: _deep(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, list | tuple):
        return [_deep(each) for each in value]
    return {name: _deep(each) for name, each in value.items()} if isinstance(value, dict) else value
