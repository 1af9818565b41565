"""ReadShareGroupState (key 84), version 0.

The leader of a topic partition reads its state for a share group. The leader epoch is stored and
fences earlier leaders.
"""

from __future__ import annotations

from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

API_KEY = ApiKey.READ_SHARE_GROUP_STATE
VERSIONS = range(1)
DEMANDS: Demands = (Demand(Operation.CLUSTER_ACTION, ResourceType.CLUSTER),)


def handle(ctx: RequestContext, request: m.ReadShareGroupStateRequest) -> Answer:
    """Returns the state of each share partition."""
    from headrace.broker.share import state_handler

    return state_handler.answer(ctx, state_handler.READ, request, ctx.services.share_state.coordinator.read)


def fail(request: m.ReadShareGroupStateRequest, code: ErrorCode) -> m.ReadShareGroupStateResponse:
    """Returns the same error for every partition."""
    from headrace.broker.share import state_handler

    response: m.ReadShareGroupStateResponse = state_handler.fail(state_handler.READ, request, code)
    return response
