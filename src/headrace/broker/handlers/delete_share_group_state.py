"""DeleteShareGroupState (key 86), version 0.

The group coordinator removes the state of a share group or a topic.
"""

from __future__ import annotations

from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

API_KEY = ApiKey.DELETE_SHARE_GROUP_STATE
VERSIONS = range(1)
DEMANDS: Demands = (Demand(Operation.CLUSTER_ACTION, ResourceType.CLUSTER),)


def handle(ctx: RequestContext, request: m.DeleteShareGroupStateRequest) -> Answer:
    """Removes the state of each share partition."""
    from headrace.broker.share import state_handler

    return state_handler.answer(ctx, state_handler.DELETE, request, ctx.services.share_state.coordinator.delete)


def fail(request: m.DeleteShareGroupStateRequest, code: ErrorCode) -> m.DeleteShareGroupStateResponse:
    """Returns the same error for every partition."""
    from headrace.broker.share import state_handler

    response: m.DeleteShareGroupStateResponse = state_handler.fail(state_handler.DELETE, request, code)
    return response
