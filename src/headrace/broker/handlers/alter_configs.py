"""AlterConfigs (key 33), versions 0-2.

2     flexible
The request replaces all settings of a resource: a setting that it does not name returns to its default. Clients since
2.3 use IncrementalAlterConfigs instead.
The settings of a resource change together or not at all. Of a broker's settings, those can change that Apache Kafka
changes while it runs (`config.dynamic`). Levels of loggers change by IncrementalAlterConfigs alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from headrace.broker.configs import BROKER_LOGGER, resource_configs
from headrace.broker.handlers.create_topics import code_of
from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demands, RefusalPlace, on_settings
from headrace.errors import ErrorCode, InvalidRequest, KafkaError
from headrace.in_slices import counted, in_slices
from headrace.metadata.config_changes import Alteration
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation

API_KEY = ApiKey.ALTER_CONFIGS
VERSIONS = range(3)
DEMANDS: Demands = on_settings(Operation.ALTER_CONFIGS, "responses", RefusalPlace.ASKED)


class Resource(Protocol):
    """What has settings that change; both requests have these fields."""

    @property
    def resource_type(self) -> int: ...

    @property
    def resource_name(self) -> str: ...


R = TypeVar("R", bound=Resource)


class ResourceOutcome(NamedTuple):
    """The outcome for one resource."""

    resource: Resource
    code: ErrorCode = ErrorCode.NONE
    message: str | None = None


def handle(ctx: RequestContext, request: m.AlterConfigsRequest) -> Answer:
    """Changes the settings; later requests of the connection wait."""
    return ctx.in_order(_alter(ctx, request), lambda error: fail(request, code_of(error)))


def fail(request: m.AlterConfigsRequest, code: ErrorCode) -> m.AlterConfigsResponse:
    """Returns the same error for every resource."""
    return _response(ResourceOutcome(each, code) for each in request.resources)


async def _alter(ctx: RequestContext, request: m.AlterConfigsRequest) -> m.AlterConfigsResponse:
    async def alter_one(resource: m.AlterConfigsRequest.AlterConfigsResource) -> None:
        if resource.resource_type == BROKER_LOGGER:
            raise InvalidRequest(f"Unknown resource type {BROKER_LOGGER}")  # only IncrementalAlterConfigs knows it
        given = Alteration(replacement=[(each.name, each.value) for each in resource.configs])
        await alter(ctx, resource, given, validate_only=request.validate_only)

    return _response(await change_each(request.resources, alter_one))


def _response(outcomes: Iterable[ResourceOutcome]) -> m.AlterConfigsResponse:
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


async def change_each(resources: Sequence[R], change: Callable[[R], Awaitable[None]]) -> list[ResourceOutcome]:
    """Changes one resource after the other. A resource that is named twice gets an error and is not changed."""
    times = await counted((each.resource_type, each.resource_name) for each in resources)
    outcomes = []
    async for each in in_slices(resources):
        try:
            if times[each.resource_type, each.resource_name] > 1:
                raise InvalidRequest("Each resource must appear at most once.")
            await change(each)
        except KafkaError as error:
            outcomes.append(ResourceOutcome(each, error.code, error.message or None))
        else:
            outcomes.append(ResourceOutcome(each))
    return outcomes


async def alter(ctx: RequestContext, resource: Resource, given: Alteration, *, validate_only: bool) -> None:
    """Alters one resource. Raises `KafkaError`."""
    configs = resource_configs(resource.resource_type)
    names = given.names
    if len(set(names)) < len(names):
        raise InvalidRequest("Error due to duplicate config keys")
    await configs.alter(ctx, resource.resource_name, given, validate_only=validate_only)
