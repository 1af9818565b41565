"""AlterConfigs (key 33), versions 0-2.

2     flexible
The request replaces all settings of a resource: a setting that it does not name returns to its default. Clients since
2.3 use IncrementalAlterConfigs instead.
The settings of a resource change together or not at all. Of a broker's settings, only the replication rates can change
while it runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from headrace.broker.handlers.create_topics import code_of
from headrace.broker.handlers.describe_configs import BROKER, TOPIC
from headrace.broker.request.admission import Demand, Demands, configured_cluster, configured_topics
from headrace.broker.request.context import Answer, RequestContext
from headrace.errors import ErrorCode, InvalidRequest, KafkaError
from headrace.in_slices import counted, in_slices
from headrace.metadata.broker_configs import ALL
from headrace.metadata.config_changes import replaced
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

API_KEY = ApiKey.ALTER_CONFIGS
VERSIONS = range(3)
DEMANDS: Demands = (
    Demand(Operation.ALTER_CONFIGS, ResourceType.TOPIC, configured_topics),
    Demand(Operation.ALTER_CONFIGS, ResourceType.CLUSTER, configured_cluster),
)


class Resource(Protocol):
    """A topic or broker whose settings change; both requests have these fields."""

    @property
    def resource_type(self) -> int: ...

    @property
    def resource_name(self) -> str: ...


R = TypeVar("R", bound=Resource)


class Outcome(NamedTuple):
    """The outcome for one resource."""

    resource: Resource
    code: ErrorCode = ErrorCode.NONE
    message: str | None = None


def handle(ctx: RequestContext, request: m.AlterConfigsRequest) -> Answer:
    """Changes the settings; later requests of the connection wait."""
    return ctx.in_order(_alter(ctx, request), lambda error: fail(request, code_of(error)))


def fail(request: m.AlterConfigsRequest, code: ErrorCode) -> m.AlterConfigsResponse:
    """Returns the same error for every resource."""
    return _response(Outcome(each, code) for each in request.resources)


async def _alter(ctx: RequestContext, request: m.AlterConfigsRequest) -> m.AlterConfigsResponse:
    async def alter_one(resource: m.AlterConfigsRequest.AlterConfigsResource) -> None:
        after = replaced([(each.name, each.value) for each in resource.configs])
        if resource.resource_type == BROKER:
            entity = broker_entity(ctx, resource.resource_name)
            given = [(each.name, each.value) for each in resource.configs]
            await ctx.services.settings.rewrite(entity, None, given, validate_only=request.validate_only)
            return
        configs = ctx.services.replicas.configs
        await configs.rewrite(resource.resource_name, lambda _own: after, validate_only=request.validate_only)

    return _response(await change_each(request.resources, alter_one))


def _response(outcomes: Iterable[Outcome]) -> m.AlterConfigsResponse:
    return m.AlterConfigsResponse(
        responses=[
            m.AlterConfigsResponse.AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource, code, message in outcomes
        ]
    )


# Used by AlterConfigs and IncrementalAlterConfigs


async def change_each(resources: Sequence[R], change: Callable[[R], Awaitable[None]]) -> list[Outcome]:
    """Changes one resource after the other. A resource that is named twice gets an error and is not changed."""
    times = await counted((each.resource_type, each.resource_name) for each in resources)
    outcomes = []
    async for each in in_slices(resources):
        try:
            if times[each.resource_type, each.resource_name] > 1:
                raise InvalidRequest("Each resource must appear at most once.")
            _check_resource(each.resource_type, each.resource_name)
            await change(each)
        except KafkaError as error:
            outcomes.append(Outcome(each, error.code, error.message or None))
        else:
            outcomes.append(Outcome(each))
    return outcomes


def _check_resource(kind: int, name: str) -> None:
    if kind not in (TOPIC, BROKER):
        raise InvalidRequest(f"Unknown resource type {kind}")
    if kind == TOPIC and not name:
        raise InvalidRequest("Default topic resources are not allowed.")


def broker_entity(ctx: RequestContext, name: str) -> str:
    """Returns the entity of these settings in the metadata store: this broker, or all brokers if the name is empty.
    Raises `InvalidRequest` for another broker."""
    own_id = str(ctx.services.replication.broker_id)
    if name and not name.lstrip("-").isdecimal():
        raise InvalidRequest(f"Node id must be an integer, but it is: {name}")
    if name not in ("", own_id):
        raise InvalidRequest(f"Unexpected broker id, expected {own_id}, but received {name}")
    return name or ALL
