"""ReadShareGroupStateSummary (key 87), versions 0-1.

1     the number of records at or above the start offset that are finished (KIP-1226)
The group coordinator reads start offsets, for the lag of a share group.
"""

from __future__ import annotations

from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

API_KEY = ApiKey.READ_SHARE_GROUP_STATE_SUMMARY
VERSIONS = range(2)
DEMANDS: Demands = (Demand(Operation.CLUSTER_ACTION, ResourceType.CLUSTER),)


def handle(ctx: RequestContext, request: m.ReadShareGroupStateSummaryRequest) -> Answer:
    """Returns the start offset of each share partition."""
    from headrace.broker.share import state_handler

    return state_handler.answer(ctx, state_handler.SUMMARY, request, ctx.services.share_state.coordinator.read_summary)


def fail(request: m.ReadShareGroupStateSummaryRequest, code: ErrorCode) -> m.ReadShareGroupStateSummaryResponse:
    """Returns the same error for every partition."""
    from headrace.broker.share import state_handler

    response: m.ReadShareGroupStateSummaryResponse = state_handler.fail(state_handler.SUMMARY, request, code)
    return response
