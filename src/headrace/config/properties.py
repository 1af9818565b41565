"""From properties to a broker's or a topic's settings. A name that does not exist raises `InvalidConfig`."""

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from headrace.config.broker import BrokerConfig
from headrace.config.setting import Value, parse_value, settings_of
from headrace.config.topic import TopicConfig
from headrace.errors import InvalidConfig

TOPIC_SETTINGS = settings_of(TopicConfig)
BROKER_SETTINGS = settings_of(BrokerConfig)
_TOPIC_BY_BROKER_NAME = {
    broker_name: (attribute, setting, factor)
    for attribute, setting in TOPIC_SETTINGS.values()
    for broker_name, factor in setting.broker_names
}
_ALIASES = {"log.dir": "log.dirs", "node.id": "broker.id"}
_IF_NOT_SET = {"log.flush.interval.ms": "log.flush.scheduler.interval.ms"}
"""Settings that another one is taken for when they are not set."""


def parse_broker(properties: Mapping[str, str]) -> BrokerConfig:
    """A broker's configuration from Kafka-named properties. Raises `InvalidConfig` on an unknown name or bad value."""
    own: dict[str, Value] = {}
    topic: dict[str, tuple[int, Value]] = {}
    properties = dict(properties)
    if "log.dirs" in properties:
        properties.pop("log.dir", None)  # wherever it is: in Kafka, too, it is asked only where the other is not set
    for name, other in _IF_NOT_SET.items():
        if name not in properties and other in properties:
            properties[name] = properties[other]
    for given, text in properties.items():
        name = _ALIASES.get(given, given)
        if name in BROKER_SETTINGS:
            attribute, setting = BROKER_SETTINGS[name]
            own[attribute] = parse_value(setting, text, given)
        elif name in _TOPIC_BY_BROKER_NAME:
            attribute, setting, factor = _TOPIC_BY_BROKER_NAME[name]
            if attribute not in topic or factor < topic[attribute][0]:  # the finest unit wins, as in Kafka
                topic[attribute] = (factor, parse_value(setting, text, given, factor))
        else:
            known = [*BROKER_SETTINGS, *_TOPIC_BY_BROKER_NAME]
            raise InvalidConfig(f"unknown setting {given!r}{_nearest(given, known)}")
    defaults = replace(TopicConfig(), **{k: v for k, (_, v) in topic.items()})  # type: ignore[arg-type]
    return replace(BrokerConfig(topic_defaults=defaults), **own)  # type: ignore[arg-type]


def topic_config(defaults: TopicConfig, overrides: Mapping[str, str]) -> TopicConfig:
    """`defaults` with a topic's own settings on top. Raises `InvalidConfig`."""
    parsed: dict[str, Value] = {}
    for name, text in overrides.items():
        if name not in TOPIC_SETTINGS:
            raise InvalidConfig(f"unknown topic setting {name!r}{_nearest(name, list(TOPIC_SETTINGS))}")
        attribute, setting = TOPIC_SETTINGS[name]
        parsed[attribute] = parse_value(setting, text, name)
    made = replace(defaults, **parsed)  # type: ignore[arg-type]
    if made.min_compaction_lag_ms > made.max_compaction_lag_ms:
        raise InvalidConfig(
            f"min.compaction.lag.ms={made.min_compaction_lag_ms} is more than "
            f"max.compaction.lag.ms={made.max_compaction_lag_ms}"
        )
    return made


def validate_topic_overrides(overrides: Mapping[str, str | None]) -> None:
    """Raises `InvalidConfig` when a topic could not be made with these settings."""
    for name, text in overrides.items():
        if text is None:
            raise InvalidConfig(f"topic setting {name!r} has no value: leave it out to take the broker's default")
    topic_config(TopicConfig(), cast(Mapping[str, str], overrides))


def read_properties(text: str) -> dict[str, str]:
    """A Java properties file's `key=value` lines; `#` and `!` begin a comment, a last backslash continues a line."""
    found: dict[str, str] = {}
    pending = ""
    for raw in text.splitlines():
        line = pending + raw.strip()
        pending = ""
        if line.endswith("\\"):
            pending = line[:-1]
        elif line and line[0] not in "#!":
            cut = min((i for i in (line.find("="), line.find(":")) if i >= 0), default=-1)
            if cut < 0:
                raise InvalidConfig(f"the line {line!r} is not 'key=value'")
            found[line[:cut].strip()] = line[cut + 1 :].strip()
    return found


def _nearest(name: str, known: list[str]) -> str:
    """', did you mean …?' when a known name is close; difflib is imported only for this."""
    from difflib import get_close_matches

    close = get_close_matches(name, known, 1, 0.8)
    return f": did you mean {close[0]!r}?" if close else ""
