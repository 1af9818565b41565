"""AlterConfigs (key 33), versions 0-2.

2     flexible
The older way to change settings: what a resource sets is afterwards exactly what the request says, so that everything
it does not name goes back to its default. Clients since 2.3 ask IncrementalAlterConfigs.
Each resource is changed or refused as a whole. Of brokers only the rates of replication can change while they run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from headrace.broker.context import Answer, RequestContext
from headrace.broker.handlers.create_topics import code_of
from headrace.broker.handlers.describe_configs import BROKER, TOPIC
from headrace.coordination.broker_settings import ALL
from headrace.coordination.config_changes import replaced
from headrace.errors import ErrorCode, InvalidRequest, KafkaError
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey

API_KEY = ApiKey.ALTER_CONFIGS
VERSIONS = range(3)


class Resource(Protocol):
    """Whose settings are to change, as both requests name it."""

    @property
    def resource_type(self) -> int: ...

    @property
    def resource_name(self) -> str: ...


R = TypeVar("R", bound=Resource)


class Outcome(NamedTuple):
    """What became of one resource."""

    resource: Resource
    code: ErrorCode = ErrorCode.NONE
    message: str | None = None


def handle(ctx: RequestContext, request: m.AlterConfigsRequest) -> Answer:
    """Changes the settings, in the order of the connection."""
    return ctx.in_order(_alter(ctx, request), lambda error: fail(request, code_of(error)))


def fail(request: m.AlterConfigsRequest, code: ErrorCode) -> m.AlterConfigsResponse:
    """The same refusal for every resource."""
    return _response(Outcome(each, code) for each in request.resources)


async def _alter(ctx: RequestContext, request: m.AlterConfigsRequest) -> m.AlterConfigsResponse:
    async def alter_one(resource: m.AlterConfigsRequest.AlterConfigsResource) -> None:
        after = replaced([(each.name, each.value) for each in resource.configs])
        if resource.resource_type == BROKER:
            entity = broker_entity(ctx, resource.resource_name)
            given = [(each.name, each.value) for each in resource.configs]
            await ctx.broker.settings.rewrite(entity, None, given, validate_only=request.validate_only)
            return
        configs = ctx.broker.replicas.configs
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


# What AlterConfigs and IncrementalAlterConfigs have in common


async def change_each(resources: Sequence[R], change: Callable[[R], Awaitable[None]]) -> list[Outcome]:
    """Changes one resource after the other; one that is named twice is refused both times."""
    times = Counter((each.resource_type, each.resource_name) for each in resources)
    outcomes = []
    for each in resources:
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
    """Whose settings these are in the tree: this broker's, or, with an empty name, every broker's. Raises
    `InvalidRequest` for another one's."""
    own_id = str(ctx.broker.replication.broker_id)
    if name and not name.lstrip("-").isdecimal():
        raise InvalidRequest(f"Node id must be an integer, but it is: {name}")
    if name not in ("", own_id):
        raise InvalidRequest(f"Unexpected broker id, expected {own_id}, but received {name}")
    return name or ALL
