"""JoinGroup (key 11), versions 0-9.

0     one time-out for session and rebalance
1     a separate rebalance time-out
2     throttle time
4     a new member first gets its member id, and joins with it (KIP-394)
5     static members: an instance id that outlives the member id (KIP-345)
6     flexible
7     the protocol's type and name in the response; the name is null if there is no protocol
8     a reason, for the log
9     a leader may be told to skip the assignment (a static leader that restarted)
The response is sent when the rebalance is complete.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from headrace.broker.request.context import LATER, Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands, group
from headrace.coordinators.groups.classic.answers import join_refused
from headrace.coordinators.groups.classic.members import Join
from headrace.errors import ErrorCode
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

if TYPE_CHECKING:
    from headrace.protocol import messages as m

log = logging.getLogger(__name__)

API_KEY = ApiKey.JOIN_GROUP
VERSIONS = range(10)
DEMANDS: Demands = (Demand(Operation.READ, ResourceType.GROUP, group),)

_NULLABLE_NAME_FROM = 7


def handle(ctx: RequestContext, request: m.JoinGroupRequest) -> Answer:
    """Adds the member to the group; the response waits for the rebalance."""
    if request.reason:
        member = request.member_id or ctx.client_id
        log.info("a member joins", extra={"group": request.group_id, "member": member, "reason": request.reason})
    event = Join.from_request(request, ctx.api_version, ctx.client_id or "", ctx.client_host)
    if ctx.api_version >= _NULLABLE_NAME_FROM:
        ctx.services.groups.join(event, ctx.reply)
    else:
        ctx.services.groups.join(event, lambda response: ctx.reply(_without_null_name(response)))
    return LATER


def fail(request: m.JoinGroupRequest, code: ErrorCode) -> m.JoinGroupResponse:
    """Returns an error in a form that every version can encode."""
    response = join_refused(request.member_id, code)
    response.protocol_name = ""
    return response


def _without_null_name(response: m.JoinGroupResponse) -> m.JoinGroupResponse:
    if response.protocol_name is None:
        response.protocol_name = ""
    return response
