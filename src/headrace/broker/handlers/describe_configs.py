"""DescribeConfigs (key 32), versions 0-4.

1     the source of each value, and its synonyms
3     type and documentation
4     flexible
Describes topics, brokers, loggers of brokers, groups, and subscriptions to metrics of clients, each by its module in
`broker.configs`. The value of a secret is never returned. A broker's setting is read-only if it cannot change while the
broker runs. Apache Kafka 4.3 describes the same settings in the same way, except:

    topics     settings without effect here are not listed (codec levels, tiered storage, throttles); a default that
               Kafka derives from an older unit (`log.roll.hours`) has its synonym too;
               `message.format.version` and `message.timestamp.difference.max.ms` are still listed
    brokers    `broker.rack` is empty, not null; `log.roll.ms` and similar settings have the value in force, not null;
               settings without effect here are listed where they were set while the broker runs
    loggers    those of headrace
"""

from __future__ import annotations

from headrace.broker.configs import resource_configs
from headrace.broker.configs.entries import ConfigSource, Entry
from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demands, RefusalPlace, on_settings
from headrace.broker.request.sliced_requests import in_parts
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation

API_KEY = ApiKey.DESCRIBE_CONFIGS
VERSIONS = range(5)
DEMANDS: Demands = on_settings(Operation.DESCRIBE_CONFIGS, "results", RefusalPlace.LAST)

_PART_RESOURCES = 50
"""Resources that are described in one turn of the event loop. Each has dozens of settings with their synonyms."""


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
            entries = resource_configs(resource.resource_type).describe(ctx, resource.resource_name)
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
        entry.is_default = entry.config_source == ConfigSource.DEFAULT
    if not request.include_synonyms:
        entry.synonyms = []
    if not request.include_documentation:
        entry.documentation = None
