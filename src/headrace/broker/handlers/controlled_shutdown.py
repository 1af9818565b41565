"""ControlledShutdown (key 7), versions 0-3.

2     the epoch of the broker's registration
3     flexible
From a broker that is about to stop, to the controller: lead elsewhere what I lead. The answer names what could not be
moved; the broker asks again. A broker that is not the controller answers NOT_CONTROLLER.
"""

from __future__ import annotations

from headrace.broker.cluster_action import must_be_a_broker
from headrace.broker.context import Answer, RequestContext
from headrace.broker.handlers.create_topics import code_of
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.types import BrokerId

API_KEY = ApiKey.CONTROLLED_SHUTDOWN
VERSIONS = range(4)


def handle(ctx: RequestContext, request: m.ControlledShutdownRequest) -> Answer:
    """The partitions that the broker leads still."""
    must_be_a_broker(ctx)
    return ctx.in_order(_shut_down(ctx, request), lambda error: fail(request, code_of(error)))


def fail(request: m.ControlledShutdownRequest, code: ErrorCode) -> m.ControlledShutdownResponse:
    """A refusal."""
    return m.ControlledShutdownResponse(error_code=code)


async def _shut_down(ctx: RequestContext, request: m.ControlledShutdownRequest) -> m.ControlledShutdownResponse:
    left = await ctx.broker.controller.controlled_shutdown(BrokerId(request.broker_id), request.broker_epoch)
    return m.ControlledShutdownResponse(
        remaining_partitions=[
            m.ControlledShutdownResponse.RemainingPartition(topic_name=topic, partition_index=number)
            for topic, number in left
        ]
    )
