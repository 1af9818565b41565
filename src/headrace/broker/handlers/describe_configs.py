"""DescribeConfigs (key 32), versions 0-4.

1     the source of each value, and its synonyms
3     type and documentation
4     flexible
Describes topics and brokers. The value of a secret is never returned. Apache Kafka 4.3 describes the same settings in
the same way, except:

    topics     settings without effect here are not listed (codec levels, tiered storage, throttles); a default that
               Kafka derives from an older unit (`log.roll.hours`) has its synonym too;
               `message.format.version` and `message.timestamp.difference.max.ms` are still listed
    brokers    all settings but the replication rates are read-only: no other setting changes while the broker runs;
               `broker.rack` is empty, not null; `log.roll.ms` and similar settings have the value in force, not null

Left out: loggers, client metrics, groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.broker.request.admission import Demand, Demands, configured_cluster, configured_topics
from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.sliced_requests import in_parts
from headrace.config import BROKER_SETTINGS, TOPIC_SETTINGS, BrokerConfig, Setting, format_value, topic_config
from headrace.controller.decisions.topics import validate_name
from headrace.errors import ErrorCode, InvalidRequest, KafkaError, UnknownTopicOrPartition
from headrace.metadata.broker_configs import ALL, DYNAMIC
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

API_KEY = ApiKey.DESCRIBE_CONFIGS
VERSIONS = range(5)
DEMANDS: Demands = (
    Demand(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, configured_topics),
    Demand(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, configured_cluster),
)

TOPIC, BROKER = 2, 4  # resource types
_SOURCE_TOPIC, _SOURCE_BROKER, _SOURCE_ALL_BROKERS, _SOURCE_STATIC_BROKER, _SOURCE_DEFAULT = 1, 2, 3, 4, 5
_TYPES = {"boolean": 1, "string": 2, "int": 3, "short": 4, "long": 5, "double": 6, "list": 7, "password": 9}

_PART_RESOURCES = 50
"""Resources that are described in one turn of the event loop. Each has dozens of settings with their synonyms."""

if TYPE_CHECKING:
    Entry = m.DescribeConfigsResponse.DescribeConfigsResourceResult


def handle(ctx: RequestContext, request: m.DescribeConfigsRequest) -> Answer:
    """Returns the settings of each resource, or only the requested ones."""
    request.resources = list({(each.resource_type, each.resource_name): each for each in request.resources}.values())
    return in_parts(ctx, request, ("resources",), ("results",), lambda part: _answer(ctx, part), fail, _PART_RESOURCES)


def _answer(ctx: RequestContext, request: m.DescribeConfigsRequest) -> m.DescribeConfigsResponse:
    results = []
    for resource in request.resources:
        result = m.DescribeConfigsResponse.DescribeConfigsResult(
            resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        try:
            entries = _entries(ctx, resource.resource_type, resource.resource_name)
            wanted = frozenset(resource.configuration_keys or ())
            result.configs = [e for e in entries if not wanted or e.name in wanted]
            for entry in result.configs:
                _trim(entry, request, ctx.api_version)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message or None
        results.append(result)
    return m.DescribeConfigsResponse(results=results)


def fail(request: m.DescribeConfigsRequest, code: ErrorCode) -> m.DescribeConfigsResponse:
    """Returns the same error for every resource."""
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
        if ctx.services.metadata.topic(name) is None:
            raise UnknownTopicOrPartition(f"topic {name!r} does not exist")
        return _topic_entries(ctx.services.config, ctx.services.replicas.topic_overrides(name))
    if kind == BROKER:
        settings = ctx.services.settings
        if not name:
            return _set_for_all(settings.set_for(ALL))
        own_id = str(ctx.services.replication.broker_id)
        if not name.lstrip("-").isdecimal():
            raise InvalidRequest(f"Broker id must be an integer, but it is: {name}")
        if name != own_id:
            raise InvalidRequest(f"Unexpected broker id, expected {own_id} or empty string, but received {name}")
        changed = [(_SOURCE_BROKER, settings.set_for(own_id)), (_SOURCE_ALL_BROKERS, settings.set_for(ALL))]
        return _broker_entries(ctx.services.config, changed)
    raise InvalidRequest(f"resource type {kind} has no settings: only topics (2) and brokers (4) do")


def _topic_entries(config: BrokerConfig, overrides: Mapping[str, str]) -> Iterator[Entry]:
    defaults = config.topic_defaults
    own = topic_config(defaults, overrides)
    for name, (attribute, setting) in TOPIC_SETTINGS.items():
        synonyms = []
        if name in overrides:
            synonyms.append(_synonym(name=name, value=overrides[name], source=_SOURCE_TOPIC))
        by_broker = getattr(defaults, attribute)
        for broker_name, _ in setting.broker_names[:1]:  # empty for a setting that only topics have
            if by_broker != setting.default:
                synonyms.append(_synonym(name=broker_name, value=format_value(by_broker), source=_SOURCE_STATIC_BROKER))
            synonyms.append(_synonym(name=broker_name, value=format_value(setting.default), source=_SOURCE_DEFAULT))
        yield _entry(setting, format_value(getattr(own, attribute)), synonyms)


def _set_for_all(values: Mapping[str, str]) -> Iterator[Entry]:
    for name, value in values.items():
        synonyms = [_synonym(name=name, value=value, source=_SOURCE_ALL_BROKERS)]
        yield _entry(BROKER_SETTINGS[name][1], value, synonyms)


def _broker_entries(config: BrokerConfig, changed: Sequence[tuple[int, Mapping[str, str]]]) -> Iterator[Entry]:
    """`changed`: the settings changed while the broker runs, by source, the source that takes precedence first."""
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
