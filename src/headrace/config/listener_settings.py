"""The settings of one listener: `listener.name.NAME.SETTING` takes precedence over `SETTING`.

    ssl.keystore.location=/etc/a.pem                          every TLS listener
    listener.name.outside.ssl.keystore.location=/etc/b.pem    the listener OUTSIDE
    listener.name.outside.plain.sasl.jaas.config=...          one mechanism of it; there is no form for all listeners
    listener.name.instances.acme.ssl.keystore.location=...    the own listener of the instance acme, over the settings
                                                              of headrace.instances.listener

The names of listeners are compared in capitals. A name that is not in `listeners` is an error, since a misspelt one
would leave a listener with other security than its operator believes. Apache Kafka ignores it. Names of instances are
not compared with anything, since instances come and go.
Source: Kafka's `ListenerName.configPrefix`, `AbstractConfig.valuesWithPrefixOverride`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar, cast

from headrace.config.broker import BrokerConfig
from headrace.config.setting import Setting, format_value, parse_value, settings_of
from headrace.errors import InvalidConfig

Given = TypeVar("Given", str, int)

PREFIX = "listener.name."
OF_INSTANCES = "INSTANCES."
"""Begins the names of instances' own listeners, among those of listeners in settings."""
_INSTANCE = re.compile(r"instances\.([a-z0-9-]{1,32})\.(.+)", re.ASCII)
_LIMITS = ("max.connections", "max.connection.creation.rate")
"""Settings that each listener has beside the broker's, instead of in its place: see `BrokerConfig.listener_limits`."""
_FURTHER = frozenset(
    {
        "connections.max.reauth.ms", "principal.builder.class", "headrace.sasl.oauthbearer.expected.scope",
        "headrace.sasl.oauthbearer.unsecured.validator.enable", "headrace.ssl.kernel.enable",
    }
)  # fmt: skip

SETTINGS = settings_of(BrokerConfig)
OVERRIDABLE: Mapping[str, Setting] = {
    name: setting for name, (_, setting) in SETTINGS.items() if name.startswith(("ssl.", "sasl.")) or name in _FURTHER
}
"""The broker's settings that a listener may have its own value of."""


class ListenerSetting(NamedTuple):
    """A setting of one listener."""

    listener: str
    """In capitals."""
    name: str
    """Without the prefix."""
    setting: Setting | None
    """The setting of the broker in whose place it stands; None for those of one mechanism."""
    is_limit: bool = False


def listener_setting(name: str) -> ListenerSetting | None:
    """The listener and the setting in `listener.name.NAME.SETTING`; None for any other name, and for settings that are
    not for listeners."""
    if not name.startswith(PREFIX):
        return None
    listener, _, rest = name[len(PREFIX) :].partition(".")
    if (of_instance := _INSTANCE.fullmatch(name[len(PREFIX) :])) is not None:
        found = _overridable(f"{OF_INSTANCES}{of_instance[1].upper()}", of_instance[2])
        if found is not None:
            return found
    if rest in _LIMITS:
        return ListenerSetting(listener.upper(), rest, SETTINGS[rest][1], is_limit=True)
    return _overridable(listener.upper(), rest)


def _overridable(listener: str, name: str) -> ListenerSetting | None:
    if name in OVERRIDABLE:
        return ListenerSetting(listener, name, OVERRIDABLE[name])
    mechanism, _, base = name.partition(".")
    if mechanism and base in _OF_MECHANISMS:
        return ListenerSetting(listener, name, OVERRIDABLE.get(base))
    return None


_OF_MECHANISMS = frozenset(
    """
    sasl.jaas.config sasl.login.class sasl.login.callback.handler.class sasl.server.callback.handler.class
    sasl.kerberos.service.name sasl.kerberos.kinit.cmd connections.max.reauth.ms
    sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.token.endpoint.url sasl.oauthbearer.scope.claim.name
    sasl.oauthbearer.sub.claim.name sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
    sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.jwks.endpoint.refresh.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
    """.split()  # noqa: SIM905 - a list of many long names
)
"""Settings that a listener has for each mechanism."""


def parse_override(found: ListenerSetting, text: str, given: str) -> tuple[str, str, str]:
    """An entry of `BrokerConfig.listener_overrides`. Raises `InvalidConfig`."""
    if found.setting is not None:
        parse_value(found.setting, text, given)
    return found.listener, found.name, text.strip()


def parse_limit(found: ListenerSetting, text: str, given: str) -> tuple[str, str, int]:
    """An entry of `BrokerConfig.listener_limits`. Raises `InvalidConfig`."""
    assert found.setting is not None
    return found.listener, found.name, cast(int, parse_value(found.setting, text, given))


def merged(*layers: Iterable[tuple[str, str, Given]]) -> tuple[tuple[str, str, Given], ...]:
    """Overrides or limits of several layers, of which the last takes precedence."""
    found = {(listener, name): value for layer in layers for listener, name, value in layer}
    return tuple((listener, name, found[listener, name]) for listener, name in sorted(found))


def settings_of_listener(config: BrokerConfig, listener: str) -> dict[str, str]:
    """Every setting of a listener's security as text, by Kafka's name without the prefix. It holds secrets."""
    found = {name: format_value(getattr(config, SETTINGS[name][0])) for name in OVERRIDABLE}
    for layer in layers_of(config, listener):
        found |= {setting: text for each, setting, text in config.listener_overrides if each == layer}
    return found


def layers_of(config: BrokerConfig, listener: str) -> tuple[str, ...]:
    """The listeners whose own settings a listener has, in capitals; the last takes precedence."""
    name = listener.upper()
    return (config.instances_listener.upper(), name) if name.startswith(OF_INSTANCES) else (name,)


def has_own_settings(config: BrokerConfig, listener: str) -> bool:
    """Whether there are settings for this listener alone."""
    name = listener.upper()
    return any(each == name for each, _, _ in config.listener_overrides)


def listener_names(listeners: Sequence[str]) -> tuple[str, ...]:
    """The names of the entries of `listeners`, in capitals. An entry without a name is PLAINTEXT."""
    return tuple(each.rpartition("://")[0].strip().upper() or "PLAINTEXT" for each in listeners)


def check_listener(config: BrokerConfig, listener: str, given: str) -> None:
    """Raises `InvalidConfig` unless the listener of the setting `given` exists."""
    known = listener_names(config.listeners)
    if listener not in known and not listener.startswith(OF_INSTANCES):
        raise InvalidConfig(
            f"{given}: there is no listener {listener}; the listeners are {', '.join(known)}, and a setting of one "
            f"begins with {PREFIX}{known[0].lower() if known else 'NAME'}."
        )
