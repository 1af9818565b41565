"""Dynamic broker settings: those that change while the broker runs. Pure.

    declared         with `dynamic=True` in a class of broker settings, and the default of every topic setting under its
                     first name (`log.retention.ms`, not `log.retention.hours`)
    without effect   settings that Apache Kafka changes while it runs and that have no meaning here: stored and
                     described, so that tools for Apache Kafka work, and ignored
    of a listener    `listener.name.NAME.SETTING` where SETTING is dynamic; its limits of connections may be set for all
                     brokers too
    fixed            every other setting of a broker; `config.fixed` has those that Apache Kafka changes, with reasons

A setting of one broker takes precedence over one for all brokers, which takes precedence over the value of the start.
Source: Kafka's `DynamicBrokerConfig`, `DynamicThreadPool`, `LogCleaner.validateReconfiguration`, of 3.9 and 4.3.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from headrace.config.broker import BrokerConfig
from headrace.config.listener_settings import (
    PREFIX,
    ListenerSetting,
    check_listener,
    listener_setting,
    merged,
    parse_limit,
    parse_override,
)
from headrace.config.properties import BROKER_SETTINGS, TOPIC_SETTINGS, known_names, nearest, topic_config
from headrace.config.setting import Setting, Value, format_value, parse_value
from headrace.errors import InvalidConfig, InvalidRequest

_TOPIC_DEFAULTS = {
    setting.broker_names[0][0]: (attribute, setting)
    for attribute, setting in TOPIC_SETTINGS.values()
    if setting.broker_names
}
_OWN = {name: found for name, found in BROKER_SETTINGS.items() if found[1].is_dynamic}

DYNAMIC: Mapping[str, Setting] = {name: setting for name, (_, setting) in {**_TOPIC_DEFAULTS, **_OWN}.items()}
"""The settings that change while the broker runs, by the broker's name."""

_PER_BROKER = ("ssl.", "sasl.mechanism.inter.broker.protocol")
"""Settings that each broker has a value of its own of: their files are on one machine, or they change one by one."""


def dynamic_setting(name: str) -> Setting | None:
    """The setting that `name` changes while the broker runs, also one of a listener; None if it is fixed."""
    if not name.startswith(PREFIX):
        return DYNAMIC.get(name)
    found = listener_setting(name)
    if found is None or found.setting is None or found.setting.name not in DYNAMIC:
        return None
    return found.setting


WITHOUT_EFFECT = frozenset(
    """
    background.threads num.io.threads num.network.threads metric.reporters config.providers
    group.coordinator.cached.buffer.max.bytes share.coordinator.cached.buffer.max.bytes
    log.message.downconversion.enable
    log.local.retention.bytes log.local.retention.ms follower.fetch.last.tiered.offset.enable
    remote.fetch.max.wait.ms remote.list.offsets.request.timeout.ms remote.log.index.file.cache.total.size.bytes
    remote.log.manager.copier.thread.pool.size remote.log.manager.copy.max.bytes.per.second
    remote.log.manager.expiration.thread.pool.size remote.log.manager.fetch.max.bytes.per.second
    remote.log.manager.follower.thread.pool.size remote.log.reader.threads
    """.split()  # noqa: SIM905 - a list of many short names
)
"""Dynamic settings of Apache Kafka that change nothing here."""
_WITHOUT_EFFECT_OF_LISTENERS = ".num.network.threads"


def has_no_effect(name: str) -> bool:
    """Whether a setting is stored and described, and changes nothing."""
    return name in WITHOUT_EFFECT or (name.startswith(PREFIX) and name.endswith(_WITHOUT_EFFECT_OF_LISTENERS))


_THREADS = ("log.cleaner.threads", "num.replica.fetchers", "num.recovery.threads.per.data.dir")
"""Numbers of threads or connections: a change may at most halve or double them."""


def effective(static: BrokerConfig, *layers: Mapping[str, str]) -> BrokerConfig:
    """The settings of the start under each of the `layers`, of which the last takes precedence.

    Raises `InvalidConfig` for a value that cannot be parsed or is out of bounds, and for values that do not fit
    together. Names that are not dynamic are ignored.
    """
    own: dict[str, Value] = {}
    topic: dict[str, Value] = {}
    overrides, limits = [static.listener_overrides], [static.listener_limits]
    for layer in layers:
        overrides.append(_overrides(static, layer))
        limits.append(_limits(static, layer))
        for name, text in layer.items():
            if name in _OWN:
                own[_OWN[name][0]] = parse_value(_OWN[name][1], text, name)
            elif name in _TOPIC_DEFAULTS:
                topic[_TOPIC_DEFAULTS[name][0]] = parse_value(_TOPIC_DEFAULTS[name][1], text, name)
    defaults = replace(static.topic_defaults, **topic) if topic else static.topic_defaults  # type: ignore[arg-type]
    if topic:
        topic_config(defaults, {})
    if any(overrides[1:]):
        static = replace(static, listener_overrides=merged(*overrides))
    if any(limits[1:]):
        static = replace(static, listener_limits=merged(*limits))
    return replace(static, topic_defaults=defaults, **own) if own or topic else static  # type: ignore[arg-type]


def _overrides(static: BrokerConfig, layer: Mapping[str, str]) -> tuple[tuple[str, str, str], ...]:
    """The settings of single listeners in a layer. Raises `InvalidConfig`."""
    found = []
    for name, text in layer.items():
        if (setting := _of_listener(static, name)) is not None and not setting.is_limit:
            found.append(parse_override(setting, text, name))
    return tuple(found)


def _limits(static: BrokerConfig, layer: Mapping[str, str]) -> tuple[tuple[str, str, int], ...]:
    """The limits of single listeners in a layer. Raises `InvalidConfig`."""
    found = []
    for name, text in layer.items():
        if (setting := _of_listener(static, name)) is not None and setting.is_limit:
            found.append(parse_limit(setting, text, name))
    return tuple(found)


def _of_listener(static: BrokerConfig, name: str) -> ListenerSetting | None:
    """A dynamic setting of one listener, or None. Raises `InvalidConfig` for a listener that is not there."""
    if not name.startswith(PREFIX) or dynamic_setting(name) is None:
        return None
    found = listener_setting(name)
    if found is not None:
        check_listener(static, found.listener, name)
    return found


def value_of(config: BrokerConfig, name: str) -> str:
    """The value of a dynamic setting in `config`, as text."""
    if name in _OWN:
        return format_value(getattr(config, _OWN[name][0]))
    return format_value(getattr(config.topic_defaults, _TOPIC_DEFAULTS[name][0]))


def usable(values: Mapping[str, str], static: BrokerConfig | None = None) -> tuple[dict[str, str], list[str]]:
    """Of stored settings, those that can be applied, and why each of the others cannot. `static`: the settings of the
    start, which have the listeners."""
    known: dict[str, str] = {}
    refused: list[str] = []
    for name, text in values.items():
        setting = dynamic_setting(name)
        if setting is not None:
            try:
                parse_value(setting, text, name)
                if static is not None and (found := listener_setting(name)) is not None:
                    check_listener(static, found.listener, name)
            except InvalidConfig as error:
                refused.append(error.message)
                continue
        elif not has_no_effect(name):
            refused.append(f"{name} cannot change while the broker runs")
            continue
        known[name] = text
    return known, refused


def check_names(names: Iterable[str]) -> None:
    """Raises `InvalidRequest` for settings that are fixed at the start or unknown."""
    others = [name for name in names if dynamic_setting(name) is None and not has_no_effect(name)]
    if others:
        from headrace.config.fixed import FIXED

        known = [*known_names(), *FIXED]
        unknown = [f"There is no setting {name!r}{nearest(name, known)}." for name in others if name not in known]
        reasons = [f"{name}: {FIXED[name]}" for name in others if name in FIXED]
        advice = unknown or ["Set them when the broker starts (headrace serve --set NAME=VALUE).", *reasons]
        raise InvalidRequest(f"Cannot update these configs dynamically: [{', '.join(others)}]. {' '.join(advice)}")


def check_entity(names: Iterable[str]) -> None:
    """Raises `InvalidRequest` for settings that cannot be set for all brokers at once, as Apache Kafka does."""
    own = [name for name in names if name.startswith(_PER_BROKER) or _is_of_one_listener(name)]
    if own:
        raise InvalidRequest(
            f"Cannot update these configs at default cluster level: [{', '.join(own)}]. Set them for each broker."
        )


def _is_of_one_listener(name: str) -> bool:
    """Whether a listener's setting is one of each broker: its limits may be the same on all."""
    found = listener_setting(name)
    return name.startswith(PREFIX) and not has_no_effect(name) and (found is None or not found.is_limit)


def check_change(current: BrokerConfig, wanted: BrokerConfig) -> None:
    """Raises `InvalidConfig` if a running broker cannot go from its `current` settings to those `wanted`."""
    for name in _THREADS:
        attribute = _OWN[name][0]
        old, new = getattr(current, attribute), getattr(wanted, attribute)
        if new == old:
            continue
        what = f"Dynamic thread count update validation failed for {name}={new}"
        if new < 1:
            raise InvalidConfig(f"{what}, value should be at least 1")
        if new < old // 2:
            raise InvalidConfig(f"{what}, value should be at least half the current value {old}")
        if new > old * 2:
            raise InvalidConfig(f"{what}, value should not be greater than double the current value {old}")
