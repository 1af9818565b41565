"""Group configs: what groups set (`/config/groups/G`) over the broker's settings.

`EntityConfigs` reads and follows them.

A value that the broker's bounds do not allow is refused. If the bounds became narrower since, the value is moved to the
nearest bound, with a warning. Source: Kafka's `GroupConfig`, `GroupConfigManager`.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from headrace.config import BROKER_SETTINGS, BrokerConfig, format_value, parse_value
from headrace.config.group_configs import GROUP_SETTINGS, GroupSetting
from headrace.config.setting import Value
from headrace.errors import InvalidConfig
from headrace.metadata.config_changes import Alteration
from headrace.metadata.entity_configs import GROUPS, Decide, EntityConfigs, desanitize, sanitize

log = logging.getLogger(__name__)


class Rewrites(Protocol):
    """Changes configs of entities."""

    async def rewrite(self, entity_type: str, name: str, decide: Decide, /, *, validate_only: bool = False) -> None:
        """As `EntityConfigs.rewrite`."""


class GroupConfigs:
    """The configs of every group."""

    def __init__(
        self, entities: EntityConfigs, broker: BrokerConfig, settings: Mapping[str, GroupSetting] = GROUP_SETTINGS
    ) -> None:
        self._entities = entities
        self._broker = broker
        self.settings = settings
        """Every config that groups have, by name."""
        self._values: dict[str, dict[str, Value]] = {}
        self._defaults: dict[str, Value] = {}  # those that were asked for
        self._listeners: list[Callable[[str], None]] = []
        entities.on_change(GROUPS, self._take)

    def broker_changed(self, broker: BrokerConfig) -> None:
        """Takes the broker's settings, some of which change while it runs, as defaults and bounds."""
        self._broker = broker
        self._defaults.clear()

    def on_change(self, listener: Callable[[str], None]) -> None:
        """Calls `listener` with the id of a group whose configs changed."""
        self._listeners.append(listener)

    def default(self, name: str) -> Value:
        """The value of a config for groups that do not set it."""
        if name not in self._defaults:
            each = self.settings[name]
            self._defaults[name] = self._of_broker(each.broker_name) if each.broker_name else each.setting.default
        return self._defaults[name]

    def value(self, group: str, name: str) -> Value:
        """The effective value of a config of a group."""
        own = self._values.get(group)
        return own[name] if own is not None and name in own else self.default(name)

    def number(self, group: str, name: str) -> int:
        """The effective value of a config that is a whole number."""
        value = self._defaults.get(name)  # of nearly all groups, for each heartbeat
        if value is None or group in self._values:
            value = self.value(group, name)
        assert isinstance(value, int)
        return value

    def overrides(self, group: str) -> Mapping[str, str]:
        """The effective values of the configs that a group sets, as text."""
        return {name: format_value(value) for name, value in self._values.get(group, {}).items()}

    async def rewrite(
        self, group: str, alteration: Alteration, *, validate_only: bool = False, through: Rewrites | None = None
    ) -> None:
        """Alters what a group sets, `through` others than the cluster's entities if they are given. Raises
        `InvalidConfig` for an unknown name or a value that is not allowed, and what `EntityConfigs.rewrite` raises."""

        def decide(before: Mapping[str, str]) -> Mapping[str, str]:
            after = alteration.applied(before, self._list)
            self.validate({name: text for name, text in after.items() if before.get(name) != text}, after)
            return after

        entities = self._entities if through is None else through
        await entities.rewrite(GROUPS, sanitize(group), decide, validate_only=validate_only)

    def validate(self, new: Mapping[str, str], after: Mapping[str, str]) -> None:
        """Raises `InvalidConfig` unless the `new` ones among the configs `after` a change are allowed."""
        for name in new:
            if name not in self.settings:
                raise InvalidConfig(f"Unknown group config name: {name}")
        values = {name: self.default(name) for name in self.settings}
        values |= {
            name: parse_value(self.settings[name].setting, text, name)
            for name, text in after.items()
            if name in self.settings
        }
        for name in new:
            each, value = self.settings[name], values[name]
            for bound, word in ((each.least, "greater"), (each.most, "less")):
                if bound and _is_beyond(value, self._of_broker(bound), word):
                    raise InvalidConfig(f"{name} must be {word} than or equal to {bound}")
        for name, each in self.settings.items():
            if each.more_than and (name in new or each.more_than in new) and not values[name] > values[each.more_than]:  # type: ignore[operator]
                raise InvalidConfig(f"{name} must be greater than {each.more_than}")

    def _list(self, name: str) -> str | None:
        each = self.settings.get(name)
        return format_value(self.default(name)) if each is not None and each.setting.kind == "list" else None

    def _of_broker(self, name: str) -> Value:
        value: Value = getattr(self._broker, BROKER_SETTINGS[name][0])
        return value

    def _clamped(self, each: GroupSetting, value: Value) -> Value:
        if each.least:
            value = max(value, self._of_broker(each.least))
        return min(value, self._of_broker(each.most)) if each.most else value

    def _take(self, node: str, configs: Mapping[str, str]) -> None:
        group, values = desanitize(node), {}
        for name, text in configs.items():
            each = self.settings.get(name)
            if each is None:
                log.warning("a config of group %s is ignored: it has the unknown name %s", group, name)
                continue
            try:
                given = parse_value(each.setting, text, name)
            except InvalidConfig as error:
                log.warning("a config of group %s is ignored: %s", group, error.message)
                continue
            values[name] = self._clamped(each, given)
            if values[name] != given:
                log.warning("%s=%s of group %s is out of bounds, %s is used", name, text, group, values[name])
        if values:
            self._values[group] = values
        else:
            self._values.pop(group, None)
        for listener in self._listeners:
            listener(group)


def _is_beyond(value: Value, bound: Value, word: str) -> bool:
    return value < bound if word == "greater" else value > bound  # type: ignore[operator]
