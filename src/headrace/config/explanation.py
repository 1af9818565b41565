"""Explains a setting on the command line, for an installed package without its documentation."""

from collections.abc import Iterator
from fnmatch import fnmatchcase

from headrace.config import apache_kafka
from headrace.config.listener_settings import ListenerSetting, listener_setting
from headrace.config.properties import (
    ALIASES,
    BROKER_SETTINGS,
    OLD_LISTENER_NAMES,
    TOPIC_SETTINGS,
    known_names,
    nearest,
)
from headrace.config.setting import Setting, format_value
from headrace.errors import InvalidConfig


def explain(name: str) -> str:
    """Several lines about a setting of a broker, a topic, or Apache Kafka. Raises `InvalidConfig` if the name is
    unknown."""
    if name in ALIASES:
        return f"{name} is another name of {ALIASES[name]}.\n\n{explain(ALIASES[name])}"
    if name in OLD_LISTENER_NAMES:
        newer = OLD_LISTENER_NAMES[name]
        return f"{name} is used only if {newer} is not set. Set {newer} instead.\n\n{explain(newer)}"
    found = [_of_broker(setting) for each, (_, setting) in BROKER_SETTINGS.items() if each == name]
    found += [_of_topic(setting, name) for _, setting in TOPIC_SETTINGS.values() if name in _names(setting)]
    if found:
        return "\n\n".join(found)
    if of_listener := listener_setting(name):
        return "\n\n".join(_of_listener(name, of_listener))
    match apache_kafka.judge(name):
        case apache_kafka.Ignored(reason):
            return f"{name} is a setting of Apache Kafka that has no meaning here and is ignored. {reason}"
        case apache_kafka.RefusedSetting(reason, harmless):
            allowed = " or ".join(each or "nothing" for each in harmless)
            return f"{name} is a setting of Apache Kafka that is refused, unless it is set to {allowed}. {reason}"
    raise InvalidConfig(f"unknown setting {name!r}{nearest(name, [*known_names(), *TOPIC_SETTINGS])}")


def named_like(pattern: str) -> list[str]:
    """The settings of Apache Kafka that headrace ignores or refuses, and that a pattern of `fnmatch` matches."""
    return [name for name in apache_kafka.names() if fnmatchcase(name, pattern)]


def meaning(setting: Setting) -> str:
    """The description of the setting, with its choices."""
    choices = ", ".join(each or "nothing" for each in setting.choices)
    return f"{setting.doc} One of {choices}." if choices else setting.doc


def shown_default(setting: Setting) -> str:
    """The default of the setting with its unit; '' if it has none."""
    text = format_value(setting.default)
    return f"{text} {setting.unit}".rstrip() if text else ""


def _of_listener(name: str, found: ListenerSetting) -> Iterator[str]:
    mechanism, _, base = found.name.partition(".")
    if found.setting is None:
        yield (
            f"{name} sets {base} of the mechanism {mechanism.upper()} for the listener {found.listener}. "
            "There is no form for all listeners."
        )
    else:
        yield f"{name} sets {found.name} for the listener {found.listener} alone."
        yield explain(found.setting.name)


def _names(setting: Setting) -> list[str]:
    return [setting.name, *(name for name, _ in setting.broker_names)]


def _of_broker(setting: Setting) -> str:
    return "\n".join([f"{setting.name}: a setting of a broker", *_facts(setting)])


def _of_topic(setting: Setting, name: str) -> str:
    what = "a setting of a topic" if name == setting.name else f"the default of the topics' setting {setting.name}"
    return "\n".join([f"{name}: {what}", *_facts(setting), *_broker_names(setting, name)])


def _facts(setting: Setting) -> Iterator[str]:
    yield f"type: {setting.kind}"
    yield f"default: {shown_default(setting) or 'none'}"
    bounds = [f"{bound} {value:g}" for bound, value in (("at least", setting.low), ("at most", setting.high))
              if value is not None]  # fmt: skip
    if bounds:
        yield f"bounds: {', '.join(bounds)}"
    yield meaning(setting)


def _broker_names(setting: Setting, name: str) -> Iterator[str]:
    others = [each for each in _names(setting)[1:] if each != name]
    if others:
        yield f"The broker sets the default of all topics with {' or '.join(others)}."
