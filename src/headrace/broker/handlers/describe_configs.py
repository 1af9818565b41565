"""DescribeConfigs (key 32), versions 0-4.

1     where a value comes from, and its synonyms
3     type and documentation
4     flexible
Topics and brokers. A secret's value is never told. What Apache Kafka 4.3 says of
the same settings is the same, but for this:

    of topics    settings without a meaning here are not listed (codec levels, tiered storage, throttles); a default
                 that Kafka derives from an older unit (`log.roll.hours`) has its synonym too;
                 `message.format.version` and `message.timestamp.difference.max.ms` are still here
    of brokers   all but the rates of replication are read-only: no other changes while the broker runs;
                 `broker.rack` is empty, not null, and the like of `log.roll.ms` has the value in force, not null

Left out: loggers, client metrics, groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.broker.context import RequestContext
from headrace.config import BROKER_SETTINGS, TOPIC_SETTINGS, BrokerConfig, Setting, format_value, topic_config
from headrace.coordination.broker_settings import ALL, DYNAMIC
from headrace.coordination.topics import validate_name
from headrace.errors import ErrorCode, InvalidRequest, KafkaError, UnknownTopicOrPartition
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey

API_KEY = ApiKey.DESCRIBE_CONFIGS
VERSIONS = range(5)

TOPIC, BROKER = 2, 4  # resource types
_SOURCE_TOPIC, _SOURCE_BROKER, _SOURCE_ALL_BROKERS, _SOURCE_STATIC_BROKER, _SOURCE_DEFAULT = 1, 2, 3, 4, 5
_TYPES = {"boolean": 1, "string": 2, "int": 3, "short": 4, "long": 5, "double": 6, "list": 7, "password": 9}

if TYPE_CHECKING:
    Entry = m.DescribeConfigsResponse.DescribeConfigsResourceResult


def handle(ctx: RequestContext, request: m.DescribeConfigsRequest) -> m.DescribeConfigsResponse:
    """The settings of each resource, or of those the ones asked for."""
    results = []
    asked_once = {(each.resource_type, each.resource_name): each for each in request.resources}
    for resource in asked_once.values():
        result = m.DescribeConfigsResponse.DescribeConfigsResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        try:
            entries = _entries(ctx, resource.resource_type, resource.resource_name)
            wanted = resource.configuration_keys
            result.configs = [e for e in entries if not wanted or e.name in wanted]
            for entry in result.configs:
                _trim(entry, request, ctx.api_version)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message or None
        results.append(result)
    return m.DescribeConfigsResponse(results=results)


def fail(request: m.DescribeConfigsRequest, code: ErrorCode) -> m.DescribeConfigsResponse:
    """The same refusal for every resource."""
    result = m.DescribeConfigsResponse.DescribeConfigsResult
    return m.DescribeConfigsResponse(
        results=[
            result(error_code=code, resource_type=each.resource_type, resource_name=each.resource_name)
            for each in request.resources
        ]
    )


def _trim(entry: Entry, request: m.DescribeConfigsRequest, version: int) -> None:
    if version == 0:  # the form before `config_source`
        entry.is_default = entry.config_source == _SOURCE_DEFAULT
    if not request.include_synonyms:
        entry.synonyms = []
    if not request.include_documentation:
        entry.documentation = None


def _entries(ctx: RequestContext, kind: int, name: str) -> Iterator[Entry]:
    if kind == TOPIC:
        validate_name(name)
        if ctx.broker.metadata.topic(name) is None:
            raise UnknownTopicOrPartition(f"there is no topic {name!r}")
        return _topic_entries(ctx.broker.config, ctx.broker.replicas.topic_overrides(name))
    if kind == BROKER:
        settings = ctx.broker.settings
        if not name:
            return _set_for_all(settings.set_for(ALL))
        own_id = str(ctx.broker.replication.broker_id)
        if not name.lstrip("-").isdecimal():
            raise InvalidRequest(f"Broker id must be an integer, but it is: {name}")
        if name != own_id:
            raise InvalidRequest(f"Unexpected broker id, expected {own_id} or empty string, but received {name}")
        changed = [(_SOURCE_BROKER, settings.set_for(own_id)), (_SOURCE_ALL_BROKERS, settings.set_for(ALL))]
        return _broker_entries(ctx.broker.config, changed)
    raise InvalidRequest(f"resource type {kind} has no settings here, only topics (2) and brokers (4)")


def _topic_entries(config: BrokerConfig, overrides: Mapping[str, str]) -> Iterator[Entry]:
    defaults = config.topic_defaults
    own = topic_config(defaults, overrides)
    for name, (attribute, setting) in TOPIC_SETTINGS.items():
        synonyms = []
        if name in overrides:
            synonyms.append(_synonym(name=name, value=overrides[name], source=_SOURCE_TOPIC))
        by_broker = getattr(defaults, attribute)
        for broker_name, _ in setting.broker_names[:1]:  # some a topic alone has
            if by_broker != setting.default:
                synonyms.append(_synonym(name=broker_name, value=format_value(by_broker), source=_SOURCE_STATIC_BROKER))
            synonyms.append(_synonym(name=broker_name, value=format_value(setting.default), source=_SOURCE_DEFAULT))
        yield _entry(setting, format_value(getattr(own, attribute)), synonyms)


def _set_for_all(values: Mapping[str, str]) -> Iterator[Entry]:
    for name, value in values.items():
        synonyms = [_synonym(name=name, value=value, source=_SOURCE_ALL_BROKERS)]
        yield _entry(BROKER_SETTINGS[name][1], value, synonyms)


def _broker_entries(config: BrokerConfig, changed: Sequence[tuple[int, Mapping[str, str]]]) -> Iterator[Entry]:
    """`changed` while the broker runs: from where, and which, the strongest first."""
    topics = {
        setting.broker_names[0][0]: (getattr(config.topic_defaults, attribute), setting)
        for attribute, setting in TOPIC_SETTINGS.values()
        if setting.broker_names
    }
    own = {name: (getattr(config, attribute), setting) for name, (attribute, setting) in BROKER_SETTINGS.items()}
    for name, (value, setting) in {**topics, **own}.items():
        synonyms = [_synonym(name=name, value=each[name], source=source) for source, each in changed if name in each]
        if value != setting.default:
            synonyms.append(_synonym(name=name, value=format_value(value), source=_SOURCE_STATIC_BROKER))
        synonyms.append(_synonym(name=name, value=format_value(setting.default), source=_SOURCE_DEFAULT))
        entry = _entry(setting, synonyms[0].value or "", synonyms)
        entry.name, entry.read_only = name, name not in DYNAMIC
        if setting.kind == "password":
            entry.is_sensitive, entry.value = True, None
            for synonym in entry.synonyms:
                synonym.value = None
        yield entry


def _synonym(name: str, value: str, source: int) -> m.DescribeConfigsResponse.DescribeConfigsSynonym:
    return m.DescribeConfigsResponse.DescribeConfigsSynonym(name=name, value=value, source=source)


def _entry(setting: Setting, value: str, synonyms: list[m.DescribeConfigsResponse.DescribeConfigsSynonym]) -> Entry:
    return m.DescribeConfigsResponse.DescribeConfigsResourceResult(
        name=setting.name,
        value=value,
        config_source=synonyms[0].source if synonyms else _SOURCE_DEFAULT,
        synonyms=synonyms,
        config_type=_TYPES[setting.kind],
        documentation=setting.doc,
    )
