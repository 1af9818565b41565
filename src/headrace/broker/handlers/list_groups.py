"""ListGroups (key 16), versions 0-5.

1     throttle time
3     flexible
4     each group's state; a filter by state
5     each group's type; a filter by type
Every broker lists the groups that it coordinates; a tool asks all brokers. Filters ignore case. A filter with an
unknown name matches no group. All groups are of the classic type so far.
"""

from __future__ import annotations

from headrace.broker.request.admission import Demand, Demands
from headrace.broker.request.context import Answer, RequestContext
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

API_KEY = ApiKey.LIST_GROUPS
VERSIONS = range(6)
DEMANDS: Demands = (Demand(Operation.DESCRIBE, ResourceType.CLUSTER),)

CLASSIC = "classic"

_STATES_FROM, _TYPES_FROM = 4, 5


def handle(ctx: RequestContext, request: m.ListGroupsRequest) -> Answer:
    """Returns the groups of this coordinator; COORDINATOR_LOAD_IN_PROGRESS while groups are still loading."""
    error, overviews = ctx.services.groups.overview()
    states = {state.strip().lower() for state in request.states_filter}
    if request.types_filter and CLASSIC not in (kind.lower() for kind in request.types_filter):
        overviews = []
    return m.ListGroupsResponse(
        error_code=error,
        groups=[
            m.ListGroupsResponse.ListedGroup(
                group_id=each.group_id,
                protocol_type=each.protocol_type,
                group_state=each.state.value if ctx.api_version >= _STATES_FROM else "",
                group_type=CLASSIC if ctx.api_version >= _TYPES_FROM else "",
            )
            for each in overviews
            if not states or each.state.value.lower() in states
        ],
    )
