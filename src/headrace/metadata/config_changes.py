"""Config changes: applies AlterConfigs and IncrementalAlterConfigs to a topic's configs. Pure.

    SET         sets the value
    DELETE      restores the broker's default; no error if the topic does not set the config
    APPEND      appends the comma-separated words that the list lacks
    SUBTRACT    removes these words from the list; an empty list is a value, not the default

A list that the topic does not set starts as the broker's default. `replaced` is for AlterConfigs: the topic's configs
become exactly those of the request.
Source: Kafka's `ConfigurationControlManager`, `ConfigAdminManager`.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from headrace.config import TOPIC_SETTINGS, TopicConfig, format_value
from headrace.errors import InvalidConfig, InvalidRequest


class Operation(IntEnum):
    """The operations of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Change(NamedTuple):
    """The change of one config."""

    name: str
    operation: Operation
    value: str | None = None


def changed(own: Mapping[str, str], changes: Sequence[Change], defaults: TopicConfig) -> dict[str, str]:
    """A topic's configs after `changes`, not validated. Raises `InvalidRequest`, `InvalidConfig`."""
    _check_names([change.name for change in changes])
    after = dict(own)
    for name, operation, value in changes:
        if operation is Operation.DELETE:
            after.pop(name, None)
            continue
        text = _given(name, value)
        if operation is not Operation.SET:
            text = _in_list(after.get(name), name, operation, text, defaults)
        after[name] = text
    return after


def replaced(values: Sequence[tuple[str, str | None]]) -> dict[str, str]:
    """A topic's configs if they are replaced by `values`, not validated. Raises `InvalidRequest`."""
    _check_names([name for name, _ in values])
    return {name: _given(name, value) for name, value in values}


def _check_names(names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        raise InvalidRequest("Error due to duplicate config keys")


def _given(name: str, value: str | None) -> str:
    if value is None:
        raise InvalidRequest(f"Null value not supported for : {name}")
    return value


def _in_list(own: str | None, name: str, operation: Operation, text: str, defaults: TopicConfig) -> str:
    known = TOPIC_SETTINGS.get(name)
    if known is None or known[1].kind != "list":
        raise InvalidConfig(f"Can't {operation.name} to key {name} because its type is not LIST.")
    before = _words(format_value(getattr(defaults, known[0])) if own is None else own)
    words = dict.fromkeys(_words(text))
    if operation is Operation.APPEND:
        return ",".join(dict.fromkeys([*before, *words]))
    return ",".join(word for word in before if word not in words)


def _words(text: str) -> list[str]:
    return [word for part in text.split(",") if (word := part.strip())]
