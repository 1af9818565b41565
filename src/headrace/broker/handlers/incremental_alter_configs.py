"""IncrementalAlterConfigs (key 44), versions 0-1.

1     flexible
Each setting is set, taken back to its default, or, when it is a list, appended to or subtracted from; those that are
not named stay. Each resource is changed or refused as a whole. Of brokers only the rates of replication, as in
AlterConfigs.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.broker.context import Answer, RequestContext
from headrace.broker.handlers.alter_configs import Outcome, broker_entity, change_each
from headrace.broker.handlers.create_topics import code_of
from headrace.broker.handlers.describe_configs import BROKER
from headrace.coordination.config_changes import Change, Operation, changed
from headrace.errors import ErrorCode, InvalidRequest
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey

API_KEY = ApiKey.INCREMENTAL_ALTER_CONFIGS
VERSIONS = range(2)


def handle(ctx: RequestContext, request: m.IncrementalAlterConfigsRequest) -> Answer:
    """Changes the settings, in the order of the connection."""
    return ctx.in_order(_alter(ctx, request), lambda error: fail(request, code_of(error)))


def fail(request: m.IncrementalAlterConfigsRequest, code: ErrorCode) -> m.IncrementalAlterConfigsResponse:
    """The same refusal for every resource."""
    return _response(Outcome(each, code) for each in request.resources)


async def _alter(ctx: RequestContext, request: m.IncrementalAlterConfigsRequest) -> m.IncrementalAlterConfigsResponse:
    configs = ctx.broker.replicas.configs

    async def alter_one(resource: m.IncrementalAlterConfigsRequest.AlterConfigsResource) -> None:
        changes = [Change(each.name, _operation(each.config_operation), each.value) for each in resource.configs]
        if resource.resource_type == BROKER:
            entity = broker_entity(ctx, resource.resource_name)
            await ctx.broker.settings.rewrite(entity, changes, validate_only=request.validate_only)
            return
        await configs.rewrite(
            resource.resource_name,
            lambda own: changed(own, changes, configs.defaults),
            validate_only=request.validate_only,
        )

    return _response(await change_each(request.resources, alter_one))


def _operation(number: int) -> Operation:
    try:
        return Operation(number)
    except ValueError:
        raise InvalidRequest(f"Unknown operation {number} on a setting") from None


def _response(outcomes: Iterable[Outcome]) -> m.IncrementalAlterConfigsResponse:
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
