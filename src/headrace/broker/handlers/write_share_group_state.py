"""WriteShareGroupState (key 85), versions 0-1.

1     the number of records at or above the start offset that are finished (KIP-1226)
The leader of a topic partition stores what has changed in a share partition.
"""

from __future__ import annotations

from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

API_KEY = ApiKey.WRITE_SHARE_GROUP_STATE
VERSIONS = range(2)
DEMANDS: Demands = (Demand(Operation.CLUSTER_ACTION, ResourceType.CLUSTER),)


def handle(ctx: RequestContext, request: m.WriteShareGroupStateRequest) -> Answer:
    """Stores the changes of each share partition; answers when they are committed."""
    from headrace.broker.share import state_handler

    return state_handler.answer(ctx, state_handler.WRITE, request, ctx.services.share_state.coordinator.write)


def fail(request: m.WriteShareGroupStateRequest, code: ErrorCode) -> m.WriteShareGroupStateResponse:
    """Returns the same error for every partition."""
    from headrace.broker.share import state_handler

    response: m.WriteShareGroupStateResponse = state_handler.fail(state_handler.WRITE, request, code)
    return response
