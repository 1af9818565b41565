"""IncrementalAlterConfigs (key 44), versions 0-1.

1     flexible
Each operation sets a setting, returns it to its default, or appends to or subtracts from a list. Settings that the
request does not name stay. The settings of a resource change together or not at all. Of a broker's settings, those can
change that are dynamic, as in AlterConfigs; an invalid one gets INVALID_REQUEST, as in Apache Kafka. The changes of
loggers last until the broker stops.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.broker.handlers.alter_configs import ResourceOutcome, alter, change_each
from headrace.broker.handlers.create_topics import code_of
from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demands, RefusalPlace, on_settings
from headrace.errors import ErrorCode, InvalidRequest
from headrace.metadata.config_changes import Alteration, ConfigChange, ConfigOperation
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security import access

API_KEY = ApiKey.INCREMENTAL_ALTER_CONFIGS
VERSIONS = range(2)
DEMANDS: Demands = on_settings(access.Operation.ALTER_CONFIGS, "responses", RefusalPlace.ASKED)


def handle(ctx: RequestContext, request: m.IncrementalAlterConfigsRequest) -> Answer:
    """Changes the settings; later requests of the connection wait."""
    return ctx.in_order(_alter(ctx, request), lambda error: fail(request, code_of(error)))


def fail(request: m.IncrementalAlterConfigsRequest, code: ErrorCode) -> m.IncrementalAlterConfigsResponse:
    """Returns the same error for every resource."""
    return _response(ResourceOutcome(each, code) for each in request.resources)


async def _alter(ctx: RequestContext, request: m.IncrementalAlterConfigsRequest) -> m.IncrementalAlterConfigsResponse:
    async def alter_one(resource: m.IncrementalAlterConfigsRequest.AlterConfigsResource) -> None:
        changes = [ConfigChange(each.name, _operation(each.config_operation), each.value) for each in resource.configs]
        await alter(ctx, resource, Alteration(changes), validate_only=request.validate_only)

    return _response(await change_each(request.resources, alter_one))


def _operation(number: int) -> ConfigOperation:
    try:
        return ConfigOperation(number)
    except ValueError:
        raise InvalidRequest(f"Unknown operation {number} on a setting") from None


def _response(outcomes: Iterable[ResourceOutcome]) -> m.IncrementalAlterConfigsResponse:
    return m.IncrementalAlterConfigsResponse(
        responses=[
            m.IncrementalAlterConfigsResponse.AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource, code, message in outcomes
        ]
    )
