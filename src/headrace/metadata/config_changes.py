"""Config changes: applies AlterConfigs and IncrementalAlterConfigs to the configs of a resource. Pure.

    SET         sets the value
    DELETE      restores the broker's default; no error if the resource does not set the config
    APPEND      appends the comma-separated words that the list lacks
    SUBTRACT    removes these words from the list; an empty list is a value, not the default

A list that the resource does not set starts as its default. `replaced` is for AlterConfigs: the configs become exactly
those of the request.
Source: Kafka's `ConfigurationControlManager`, `ConfigAdminManager`.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from headrace.config import TOPIC_SETTINGS, TopicConfig, format_value
from headrace.errors import InvalidConfig, InvalidRequest


class ConfigOperation(IntEnum):
    """The operations of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    """The change of one config."""

    name: str
    operation: ConfigOperation
    value: str | None = None


Lists = Callable[[str], str | None]
"""The default of a config that is a list; None for another config."""


def lists_of_topics(defaults: TopicConfig) -> Lists:
    """The lists among topic configs, with the broker's defaults."""

    def default(name: str) -> str | None:
        known = TOPIC_SETTINGS.get(name)
        return format_value(getattr(defaults, known[0])) if known is not None and known[1].kind == "list" else None

    return default


class Alteration(NamedTuple):
    """What a request does to the configs of one resource."""

    changes: Sequence[ConfigChange] = ()
    replacement: Sequence[tuple[str, str | None]] | None = None
    """All new configs, of AlterConfigs; None for IncrementalAlterConfigs."""

    @property
    def names(self) -> list[str]:
        """The configs that the request names."""
        return [name for name, *_ in (self.changes if self.replacement is None else self.replacement)]

    def applied(self, own: Mapping[str, str], lists: Lists) -> dict[str, str]:
        """The configs afterwards, not validated. Raises `InvalidRequest`, `InvalidConfig`."""
        return changed(own, self.changes, lists) if self.replacement is None else replaced(self.replacement)


def changed(own: Mapping[str, str], changes: Sequence[ConfigChange], lists: Lists) -> dict[str, str]:
    """The configs after `changes`, not validated. Raises `InvalidRequest`, `InvalidConfig`."""
    _check_names([change.name for change in changes])
    after = dict(own)
    for name, operation, value in changes:
        if operation is ConfigOperation.DELETE:
            after.pop(name, None)
            continue
        text = _given(name, value)
        if operation is not ConfigOperation.SET:
            text = _in_list(after.get(name), name, operation, text, lists)
        after[name] = text
    return after


def replaced(values: Sequence[tuple[str, str | None]]) -> dict[str, str]:
    """The configs if they are replaced by `values`, not validated. Raises `InvalidRequest`."""
    _check_names([name for name, _ in values])
    return {name: _given(name, value) for name, value in values}


def _check_names(names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        raise InvalidRequest("Error due to duplicate config keys")


def _given(name: str, value: str | None) -> str:
    if value is None:
        raise InvalidRequest(f"Null value not supported for : {name}")
    return value


def _in_list(own: str | None, name: str, operation: ConfigOperation, text: str, lists: Lists) -> str:
    default = lists(name)
    if default is None:
        raise InvalidConfig(f"Can't {operation.name} to key {name} because its type is not LIST.")
    before = _words(default if own is None else own)
    words = dict.fromkeys(_words(text))
    if operation is ConfigOperation.APPEND:
        return ",".join(dict.fromkeys([*before, *words]))
    return ",".join(word for word in before if word not in words)


def _words(text: str) -> list[str]:
    return [word for part in text.split(",") if (word := part.strip())]
