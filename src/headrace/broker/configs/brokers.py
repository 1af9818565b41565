"""Configs of brokers: this broker's, or those for all brokers if the name is empty."""

from collections.abc import Iterator, Mapping, Sequence

from headrace.broker.configs.entries import ConfigSource, Entry, Synonym, entry, synonym
from headrace.broker.request.context import RequestContext
from headrace.config import BROKER_SETTINGS, TOPIC_SETTINGS, BrokerConfig, Setting, format_value
from headrace.config.dynamic import WITHOUT_EFFECT, dynamic_setting, has_no_effect
from headrace.config.listener_settings import PREFIX, listener_setting
from headrace.config.setting import Value
from headrace.errors import InvalidRequest
from headrace.metadata.broker_configs import ALL
from headrace.metadata.config_changes import Alteration

Layer = tuple[int, Mapping[str, str]]
"""Settings of a broker with their source."""

_WITHOUT_EFFECT = Setting("", "string", "", "A setting of Apache Kafka that has no effect here.")
_SECRET = Setting("", "password", "", "A setting of one mechanism of a listener.")


def describe(ctx: RequestContext, name: str) -> Iterator[Entry]:
    """Every config of this broker, or those that are set for all."""
    settings = ctx.services.settings
    if not name:
        return _set_for_all(settings.set_for(ALL))
    own_id = str(ctx.services.replication.broker_id)
    if not name.lstrip("-").isdecimal():
        raise InvalidRequest(f"Broker id must be an integer, but it is: {name}")
    if name != own_id:
        raise InvalidRequest(f"Unexpected broker id, expected {own_id} or empty string, but received {name}")
    return _entries(ctx.services.config, layers(ctx))


async def alter(ctx: RequestContext, name: str, alteration: Alteration, *, validate_only: bool) -> None:
    """Alters what is set for this broker, or for all."""
    own_id = str(ctx.services.replication.broker_id)
    if name and not name.lstrip("-").isdecimal():
        raise InvalidRequest(f"Node id must be an integer, but it is: {name}")
    if name not in ("", own_id):
        raise InvalidRequest(f"Unexpected broker id, expected {own_id}, but received {name}")
    await ctx.services.settings.rewrite(name or ALL, alteration, validate_only=validate_only)


def _set_for_all(values: Mapping[str, str]) -> Iterator[Entry]:
    for name, value in values.items():
        setting = dynamic_setting(name) or _WITHOUT_EFFECT
        yield _hidden(setting, _named(name, entry(setting, value, [synonym(name, value, ConfigSource.ALL_BROKERS)])))


def _entries(config: BrokerConfig, changed: Sequence[Layer]) -> Iterator[Entry]:
    """`config`: the settings of the start. `changed`: those set since, the layer that takes precedence first."""
    topics = {
        setting.broker_names[0][0]: (getattr(config.topic_defaults, attribute), setting)
        for attribute, setting in TOPIC_SETTINGS.values()
        if setting.broker_names
    }
    own = {name: (getattr(config, attribute), setting) for name, (attribute, setting) in BROKER_SETTINGS.items()}
    for name, (value, setting) in {**topics, **own}.items():
        synonyms = synonyms_of_broker(name, setting, value, changed)
        yield _hidden(setting, _named(name, entry(setting, synonyms[0].value or "", synonyms)))
    yield from _entries_of_listeners(config, changed)
    for name in sorted(WITHOUT_EFFECT):
        synonyms = [synonym(name, values[name], source) for source, values in changed if name in values]
        if synonyms:
            yield _named(name, entry(_WITHOUT_EFFECT, synonyms[0].value or "", synonyms))


def _entries_of_listeners(config: BrokerConfig, changed: Sequence[Layer]) -> Iterator[Entry]:
    """The settings of single listeners. Their synonyms are where they are set, not those of the broker in whose place
    they stand."""
    sources: list[Layer] = [*changed, (ConfigSource.STATIC_BROKER, _static_of_listeners(config))]
    names = {name for _, values in sources for name in values if name.startswith(PREFIX)}
    for name in sorted(names):
        found = listener_setting(name)
        setting = _SECRET if found is None or found.setting is None else found.setting
        synonyms = [synonym(name, values[name], source) for source, values in sources if name in values]
        yield _hidden(setting, _named(name, entry(setting, synonyms[0].value or "", synonyms)))


def _static_of_listeners(config: BrokerConfig) -> dict[str, str]:
    limits = {(listener, name): str(value) for listener, name, value in config.listener_limits}
    own = {(listener, name): text for listener, name, text in config.listener_overrides}
    return {f"{PREFIX}{listener.lower()}.{name}": text for (listener, name), text in {**limits, **own}.items()}


def _hidden(setting: Setting, found: Entry) -> Entry:
    """The entry without its values, if they are secret."""
    if setting.kind == "password":
        found.is_sensitive, found.value = True, None
        for each in found.synonyms:
            each.value = None
    return found


def _named(name: str, found: Entry) -> Entry:
    found.name = name
    found.read_only = dynamic_setting(name) is None and not has_no_effect(name)
    return found


# Used by the configs of topics too


def layers(ctx: RequestContext) -> list[Layer]:
    """What is set for this broker and for all, the layer that takes precedence first."""
    settings = ctx.services.settings
    own_id = str(ctx.services.replication.broker_id)
    return [(ConfigSource.BROKER, settings.set_for(own_id)), (ConfigSource.ALL_BROKERS, settings.set_for(ALL))]


def synonyms_of_broker(name: str, setting: Setting, at_start: Value, changed: Sequence[Layer]) -> list[Synonym]:
    """The places that set a broker's setting, the one that takes precedence first, the built-in default last."""
    synonyms = [synonym(name, values[name], source) for source, values in changed if name in values]
    if at_start != setting.default:
        synonyms.append(synonym(name, format_value(at_start), ConfigSource.STATIC_BROKER))
    return [*synonyms, synonym(name, format_value(setting.default), ConfigSource.DEFAULT)]
