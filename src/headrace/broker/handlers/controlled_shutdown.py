"""ControlledShutdown (key 7), versions 0-3.

2     the broker epoch
3     flexible
A broker that is about to stop asks the controller to move its leaders to other replicas. The response names the
partitions that could not be moved; the broker asks again. A broker that is not the controller answers NOT_CONTROLLER.
"""

from __future__ import annotations

from headrace.broker.handlers.create_topics import code_of
from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType
from headrace.types import BrokerId

API_KEY = ApiKey.CONTROLLED_SHUTDOWN
VERSIONS = range(4)
DEMANDS: Demands = (Demand(Operation.CLUSTER_ACTION, ResourceType.CLUSTER),)


def handle(ctx: RequestContext, request: m.ControlledShutdownRequest) -> Answer:
    """Returns the partitions that the broker still leads."""
    return ctx.in_order(_shut_down(ctx, request), lambda error: fail(request, code_of(error)))


def fail(request: m.ControlledShutdownRequest, code: ErrorCode) -> m.ControlledShutdownResponse:
    """Returns a response with an error."""
    return m.ControlledShutdownResponse(error_code=code)


async def _shut_down(ctx: RequestContext, request: m.ControlledShutdownRequest) -> m.ControlledShutdownResponse:
    left = await ctx.services.controller.controlled_shutdown(BrokerId(request.broker_id), request.broker_epoch)
    return m.ControlledShutdownResponse(
        remaining_partitions=[
            m.ControlledShutdownResponse.RemainingPartition(topic_name=topic, partition_index=number)
            for topic, number in left
        ]
    )
