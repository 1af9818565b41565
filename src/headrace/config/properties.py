"""Reads the settings of a broker or a topic from properties. A bad value raises `InvalidConfig`, which names it.

A topic's unknown setting is refused. A broker's is a warning with the nearest name that there is, as in Apache Kafka,
which accepts any name; `strict` refuses it. Older names stand for newer ones:

    log.dir                                      log.dirs
    node.id                                      broker.id
    host.name, port                              listeners, where that is not set
    advertised.host.name, advertised.port        advertised.listeners, where that is not set
    log.retention.hours, .minutes and the like   the finest unit wins
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, cast

from headrace.config.broker import BrokerConfig
from headrace.config.listener_settings import check_listener, listener_setting, parse_limit, parse_override
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
ALIASES = {
    "log.dir": "log.dirs",
    "node.id": "broker.id",
    "delegation.token.master.key": "delegation.token.secret.key",
}
OLD_LISTENER_NAMES = {
    "host.name": "listeners",
    "port": "listeners",
    "advertised.host.name": "advertised.listeners",
    "advertised.port": "advertised.listeners",
}
_IF_NOT_SET = {"log.flush.interval.ms": "log.flush.scheduler.interval.ms"}
"""Settings that are taken from another setting if they are not set."""
_LOOPBACK = ("localhost", "127.0.0.1", "::1", "[::1]")


class BrokerProperties(NamedTuple):
    """A broker's configuration, with warnings about the properties it was read from."""

    config: BrokerConfig
    ignored: tuple[str, ...]
    """Settings of Apache Kafka that have no meaning in headrace."""
    warnings: tuple[str, ...]


def parse_broker(properties: Mapping[str, str]) -> BrokerConfig:
    """A broker's configuration from Kafka-named properties. Raises `InvalidConfig` on an unknown name or bad value."""
    return read_broker(properties, strict=True).config


def read_broker(properties: Mapping[str, str], *, strict: bool = False) -> BrokerProperties:
    """A broker's configuration from those of a server.properties. Raises `InvalidConfig`: a bad value, or a setting
    that may not be ignored; if `strict`, an unknown name too.
    """
    own: dict[str, Value] = {}
    topic: dict[str, tuple[int, Value]] = {}
    other: list[str] = []
    limits: list[tuple[str, str, int]] = []
    overrides: list[tuple[str, str, str]] = []
    of_listeners: list[tuple[str, str]] = []
    for given, text in _with_todays_names(properties).items():
        name = ALIASES.get(given, given)
        if name in BROKER_SETTINGS:
            attribute, setting = BROKER_SETTINGS[name]
            own[attribute] = parse_value(setting, text, given)
        elif name in _TOPIC_BY_BROKER_NAME:
            attribute, setting, factor = _TOPIC_BY_BROKER_NAME[name]
            if attribute not in topic or factor < topic[attribute][0]:  # the finest unit wins, as in Kafka
                topic[attribute] = (factor, parse_value(setting, text, given, factor))
        elif found := listener_setting(name):
            of_listeners.append((found.listener, given))
            if found.is_limit:
                limits.append(parse_limit(found, text, given))
            else:
                overrides.append(parse_override(found, text, given))
        else:
            other.append(given)
    ignored, unknown = _judged(other, properties) if other else ((), ())
    if strict and unknown:
        raise InvalidConfig(unknown[0])
    defaults = replace(TopicConfig(), **{k: v for k, (_, v) in topic.items()})  # type: ignore[arg-type]
    made = BrokerConfig(
        topic_defaults=defaults, listener_limits=tuple(limits), listener_overrides=tuple(sorted(overrides))
    )
    config = _with_inter_broker_listener(replace(made, **own))  # type: ignore[arg-type]
    for listener, given in of_listeners:
        check_listener(config, listener, given)
    return BrokerProperties(config, ignored, unknown + _unreachable(properties, config))


def _with_inter_broker_listener(config: BrokerConfig) -> BrokerConfig:
    """`security.inter.broker.protocol` names the listener between brokers, unless `inter.broker.listener.name` does.
    Raises `InvalidConfig` if both do, as Apache Kafka does."""
    protocol = config.security_inter_broker_protocol
    config = replace(
        config,  # names of listeners are compared in capitals
        inter_broker_listener_name=config.inter_broker_listener_name.upper(),
        control_plane_listener_name=config.control_plane_listener_name.upper(),
    )
    if protocol == "PLAINTEXT":
        return config
    if config.inter_broker_listener_name:
        raise InvalidConfig(
            "inter.broker.listener.name and security.inter.broker.protocol are both set: set one of them. The "
            "protocol of a listener is in listener.security.protocol.map"
        )
    return replace(config, inter_broker_listener_name=protocol)


def _with_todays_names(properties: Mapping[str, str]) -> dict[str, str]:
    found = dict(properties)
    if "log.dirs" in found:
        found.pop("log.dir", None)  # wherever it is: in Kafka, too, it is asked only where the other is not set
    for name, other in _IF_NOT_SET.items():
        if name not in found and other in found:
            found[name] = found[other]
    old = {name: found.pop(name) for name in OLD_LISTENER_NAMES if name in found}
    if old:
        host, port = old.get("host.name", "").strip(), old.get("port", "9092").strip()
        if "listeners" not in found and not {"host.name", "port"}.isdisjoint(old):
            found["listeners"] = f"PLAINTEXT://{host or '127.0.0.1'}:{port}"
        if "advertised.listeners" not in found and not {"advertised.host.name", "advertised.port"}.isdisjoint(old):
            host = old.get("advertised.host.name", host).strip() or "127.0.0.1"
            found["advertised.listeners"] = f"PLAINTEXT://{host}:{old.get('advertised.port', port).strip()}"
    return found


def _judged(others: Sequence[str], properties: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Of names that are no settings here: those that are ignored, and what is said of unknown ones."""
    from headrace.config import apache_kafka

    ignored, unknown = [], []
    for name in others:
        match apache_kafka.judge(name):
            case apache_kafka.Ignored():
                ignored.append(name)
            case apache_kafka.RefusedSetting() as refused:
                if not refused.allows(properties[name]):
                    raise InvalidConfig(f"{name}={properties[name]!r} cannot be ignored. {refused.reason}")
            case None:
                unknown.append(f"unknown setting {name!r}{nearest(name, known_names())}")
    return tuple(ignored), tuple(unknown)


def _unreachable(properties: Mapping[str, str], config: BrokerConfig) -> tuple[str, ...]:
    """A warning where a file for Apache Kafka, which listens on every address by default, means other machines."""
    if {"listeners", "host.name"} & properties.keys():
        return ()
    others = [each.rpartition("://")[2] for each in config.advertised_listeners]
    others += config.zookeeper_connect.partition("/")[0].split(",") if config.zookeeper_connect else []
    if all((each.rpartition(":")[0] or each).strip() in _LOOPBACK for each in others):
        return ()
    return (
        "listeners is not set: the broker listens on 127.0.0.1 only, while Apache Kafka listens on every "
        "address by default; set listeners=PLAINTEXT://:9092 to accept connections from other machines",
    )


def known_names() -> list[str]:
    """Every name that a broker accepts as a setting."""
    return [*BROKER_SETTINGS, *_TOPIC_BY_BROKER_NAME, *ALIASES, *OLD_LISTENER_NAMES]


def topic_config(defaults: TopicConfig, overrides: Mapping[str, str]) -> TopicConfig:
    """The topic's own settings over `defaults`. Raises `InvalidConfig`."""
    parsed: dict[str, Value] = {}
    for name, text in overrides.items():
        if name not in TOPIC_SETTINGS:
            raise InvalidConfig(f"unknown topic setting {name!r}{nearest(name, list(TOPIC_SETTINGS))}")
        attribute, setting = TOPIC_SETTINGS[name]
        parsed[attribute] = parse_value(setting, text, name)
    made = replace(defaults, **parsed)  # type: ignore[arg-type]
    if made.min_compaction_lag_ms > made.max_compaction_lag_ms:
        raise InvalidConfig(
            f"min.compaction.lag.ms={made.min_compaction_lag_ms} is more than "
            f"max.compaction.lag.ms={made.max_compaction_lag_ms}"
        )
    if made.kafka07_enable and made.is_compacted:
        raise InvalidConfig(
            f"headrace.kafka07.enable=true does not fit cleanup.policy={','.join(made.cleanup_policy)}: compaction "
            "removes records, and a replica's byte positions would not be those of another; use cleanup.policy=delete"
        )
    return made


def validate_topic_overrides(overrides: Mapping[str, str | None]) -> None:
    """Raises `InvalidConfig` if a topic cannot be created with these settings."""
    for name, text in overrides.items():
        if text is None:
            raise InvalidConfig(f"topic setting {name!r} has no value: remove it to use the broker's default")
    topic_config(TopicConfig(), cast(Mapping[str, str], overrides))


def nearest(name: str, known: list[str]) -> str:
    """', did you mean …?' when a known name is close; difflib is imported only for this."""
    from difflib import get_close_matches

    close = get_close_matches(name, known, 1, 0.8)
    return f": did you mean {close[0]!r}?" if close else ""
