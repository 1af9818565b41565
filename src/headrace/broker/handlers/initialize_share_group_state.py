"""InitializeShareGroupState (key 83), version 0.

The group coordinator begins share partitions, or begins them anew at other offsets.
"""

from __future__ import annotations

from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

API_KEY = ApiKey.INITIALIZE_SHARE_GROUP_STATE
VERSIONS = range(1)
DEMANDS: Demands = (Demand(Operation.CLUSTER_ACTION, ResourceType.CLUSTER),)


def handle(ctx: RequestContext, request: m.InitializeShareGroupStateRequest) -> Answer:
    """Stores the initial state of each share partition."""
    from headrace.broker.share import state_handler

    return state_handler.answer(ctx, state_handler.INITIALIZE, request, ctx.services.share_state.coordinator.initialize)


def fail(request: m.InitializeShareGroupStateRequest, code: ErrorCode) -> m.InitializeShareGroupStateResponse:
    """Returns the same error for every partition."""
    from headrace.broker.share import state_handler

    response: m.InitializeShareGroupStateResponse = state_handler.fail(state_handler.INITIALIZE, request, code)
    return response
