"""DescribeInstanceFlow (key 10003), version 0. headrace's own.

What this broker knows of the flow and the storage of instances (all when `names` is null), as a JSON document: rates in
force, what flows, who was throttled. The controller's document also has how it shares the limits out. Instances that do
not exist are left out. `headrace instance why` and `usage` ask every broker.
"""

from __future__ import annotations

import json

from headrace.broker.handlers.create_topics import code_of
from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

API_KEY = ApiKey.DESCRIBE_INSTANCE_FLOW
VERSIONS = range(1)
DEMANDS: Demands = (Demand(Operation.DESCRIBE, ResourceType.CLUSTER),)


def handle(ctx: RequestContext, request: m.DescribeInstanceFlowRequest) -> Answer:
    """Returns the document."""
    return ctx.in_order(
        _describe(ctx, request),
        lambda error: m.DescribeInstanceFlowResponse(error_code=code_of(error), error_message=str(error)),
    )


def fail(request: m.DescribeInstanceFlowRequest, code: ErrorCode) -> m.DescribeInstanceFlowResponse:
    """Returns a response with an error."""
    return m.DescribeInstanceFlowResponse(error_code=code)


async def _describe(ctx: RequestContext, request: m.DescribeInstanceFlowRequest) -> m.DescribeInstanceFlowResponse:
    described = await ctx.services.instance_flow().describe(request.names)
    return m.DescribeInstanceFlowResponse(document=json.dumps(described))
