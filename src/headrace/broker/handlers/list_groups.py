"""ListGroups (key 16), versions 0-5.

1     throttle time
3     flexible
4     each group's state, and only groups in the states asked for
5     each group's type, and only groups of the types asked for
Every broker lists the groups that it coordinates; a tool asks them all. Filters take no notice of upper and lower
case, and one that names nothing known matches no group. There are only groups of the classic type so far.
"""

from __future__ import annotations

from headrace.broker.context import Answer, RequestContext
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey

API_KEY = ApiKey.LIST_GROUPS
VERSIONS = range(6)

CLASSIC = "classic"

_STATES_FROM, _TYPES_FROM = 4, 5


def handle(ctx: RequestContext, request: m.ListGroupsRequest) -> Answer:
    """The groups here; with COORDINATOR_LOAD_IN_PROGRESS when there may be more in a moment."""
    error, overviews = ctx.broker.groups.overview()
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
