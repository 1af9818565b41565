"""ReportInstanceUsage (key 10002), version 0. headrace's own.

A broker tells the controller what instances used, and stored, on it, and is answered with leases of their limits
(`broker.instances.flow_messages` has the documents). A broker that is not the controller answers NOT_CONTROLLER.
"""

from __future__ import annotations

from headrace.broker.handlers.create_topics import code_of
from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

API_KEY = ApiKey.REPORT_INSTANCE_USAGE
VERSIONS = range(1)
DEMANDS: Demands = (Demand(Operation.CLUSTER_ACTION, ResourceType.CLUSTER),)


def handle(ctx: RequestContext, request: m.ReportInstanceUsageRequest) -> Answer:
    """Returns the leases that the broker may hold, and what is stored in all."""
    return ctx.in_order(
        _receive(ctx, request),
        lambda error: m.ReportInstanceUsageResponse(error_code=code_of(error), error_message=str(error)),
    )


def fail(request: m.ReportInstanceUsageRequest, code: ErrorCode) -> m.ReportInstanceUsageResponse:
    """Returns a response with an error."""
    return m.ReportInstanceUsageResponse(error_code=code)


async def _receive(ctx: RequestContext, request: m.ReportInstanceUsageRequest) -> m.ReportInstanceUsageResponse:
    return m.ReportInstanceUsageResponse(answer=await ctx.services.instance_flow().receive(request.report))
