"""ListConfigResources (key 74), versions 0-1.

0     subscriptions to client metrics (the API was ListClientMetricsResources)
1     topics, brokers, loggers of brokers, subscriptions and groups: those of the requested types, or all
Topics and brokers are listed whether they set configs or not, groups and subscriptions if they do. An unknown type gets
UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headrace.broker.configs import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from headrace.broker.handlers.create_topics import code_of
from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands
from headrace.errors import ErrorCode
from headrace.in_slices import in_slices
from headrace.metadata import entity_configs
from headrace.metadata.entity_configs import desanitize
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

API_KEY = ApiKey.LIST_CONFIG_RESOURCES
VERSIONS = range(2)
DEMANDS: Demands = (Demand(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER),)

_INLINE_TOPICS_MAX = 1000


def handle(ctx: RequestContext, request: m.ListConfigResourcesRequest) -> Answer:
    """Returns the names of the resources."""
    known = _NAMES if ctx.api_version else {CLIENT_METRICS: _NAMES[CLIENT_METRICS]}
    types = frozenset(request.resource_types) if ctx.api_version and request.resource_types else known.keys()
    if not types <= known.keys():
        return fail(request, ErrorCode.UNSUPPORTED_VERSION)
    wanted = {kind: names for kind, names in known.items() if kind in types}
    if TOPIC in wanted and len(ctx.services.metadata.topics) > _INLINE_TOPICS_MAX:
        return ctx.in_order(_list_in_slices(ctx, wanted), lambda error: fail(request, code_of(error)))
    return _response([_resource(kind, name) for kind, names in wanted.items() for name in names(ctx)])


def fail(request: m.ListConfigResourcesRequest, code: ErrorCode) -> m.ListConfigResourcesResponse:
    """Returns a response with an error."""
    return m.ListConfigResourcesResponse(error_code=code)


async def _list_in_slices(ctx: RequestContext, wanted: dict[int, Names]) -> m.ListConfigResourcesResponse:
    every = ((kind, name) for kind, names in wanted.items() for name in list(names(ctx)))
    return _response([_resource(kind, name) async for kind, name in in_slices(every)])


def _response(resources: list[m.ListConfigResourcesResponse.ConfigResource]) -> m.ListConfigResourcesResponse:
    return m.ListConfigResourcesResponse(config_resources=resources)


def _resource(kind: int, name: str) -> m.ListConfigResourcesResponse.ConfigResource:
    return m.ListConfigResourcesResponse.ConfigResource(resource_name=name, resource_type=kind)


def _brokers(ctx: RequestContext) -> Iterable[str]:
    metadata = ctx.services.metadata
    return (str(each) for each in metadata.brokers if metadata.endpoint(each, ctx.listener) is not None)


Names = Callable[[RequestContext], Iterable[str]]
_NAMES: dict[int, Names] = {  # in the order of Apache Kafka's answer
    GROUP: lambda ctx: map(desanitize, ctx.services.entities.all(entity_configs.GROUPS)),
    CLIENT_METRICS: lambda ctx: map(desanitize, ctx.services.entities.all(entity_configs.CLIENT_METRICS)),
    BROKER_LOGGER: _brokers,
    BROKER: _brokers,
    TOPIC: lambda ctx: ctx.services.metadata.topics,
}
