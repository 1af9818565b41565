"""ListGroups (key 16), versions 0-5.

1     throttle time
3     flexible
4     each group's state; a filter by state
5     each group's type; a filter by type
Every broker lists the groups that it coordinates; a tool asks all brokers. Filters ignore case. A filter with an
unknown name matches no group.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.broker.handlers.create_topics import code_of
from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands, RefusalEffect
from headrace.coordinators.groups.group import GroupOverview
from headrace.errors import ErrorCode
from headrace.in_slices import in_slices
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

API_KEY = ApiKey.LIST_GROUPS
VERSIONS = range(6)
_LISTED = Demand(
    Operation.DESCRIBE, ResourceType.GROUP, or_on_cluster=Operation.DESCRIBE, by_handler=RefusalEffect.HIDDEN
)
DEMANDS: Demands = (_LISTED,)

_STATES_FROM, _TYPES_FROM = 4, 5
_DECIDED_PER_SLICE = 200
"""Groups about which rules are asked in one turn of the event loop."""


def handle(ctx: RequestContext, request: m.ListGroupsRequest) -> Answer:
    """Returns the groups of this coordinator; COORDINATOR_LOAD_IN_PROGRESS while groups are still loading."""
    error, overviews = ctx.services.groups.overview(ctx.prefix)
    admission = ctx.services.admission
    if not admission.has_rules:
        return _response(ctx, request, error, overviews)

    async def permitted() -> m.ListGroupsResponse:
        listed = in_slices(overviews, _DECIDED_PER_SLICE)
        return _response(
            ctx, request, error, [each async for each in listed if admission.permits(ctx, _LISTED, each.group_id)]
        )

    return ctx.in_order(permitted(), lambda failure: m.ListGroupsResponse(error_code=code_of(failure)))


def _response(
    ctx: RequestContext, request: m.ListGroupsRequest, error: ErrorCode, overviews: Iterable[GroupOverview]
) -> m.ListGroupsResponse:
    states = {state.strip().lower() for state in request.states_filter}
    kinds = {kind.strip().lower() for kind in request.types_filter}
    return m.ListGroupsResponse(
        error_code=error,
        groups=[
            m.ListGroupsResponse.ListedGroup(
                group_id=each.group_id,
                protocol_type=each.protocol_type,
                group_state=each.state if ctx.api_version >= _STATES_FROM else "",
                group_type=each.kind.value if ctx.api_version >= _TYPES_FROM else "",
            )
            for each in overviews
            if (not states or each.state.lower() in states) and (not kinds or each.kind.value in kinds)
        ],
    )
