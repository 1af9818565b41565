"""JoinGroup (key 11), versions 0-9.

0     one time-out, for session and rebalance
1     a rebalance time-out of its own
2     throttle time
4     a new member is first given its id, and joins with it (KIP-394)
5     static members: an instance id that outlives the member id (KIP-345)
6     flexible
7     the protocol's type and name in the answer, the name null when there is none
8     a reason, for the log
9     a leader may be told that nothing is to be assigned (a static one that restarted)
The answer comes when the rebalance is complete.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, cast

from headrace.broker.context import LATER, Answer, RequestContext
from headrace.errors import ErrorCode
from headrace.groups.answers import join_refused
from headrace.groups.members import Join
from headrace.protocol.apis import ApiKey

if TYPE_CHECKING:
    from headrace.groups.actions import Response
    from headrace.protocol import messages as m

log = logging.getLogger(__name__)

API_KEY = ApiKey.JOIN_GROUP
VERSIONS = range(10)

_NULLABLE_NAME_FROM = 7


def handle(ctx: RequestContext, request: m.JoinGroupRequest) -> Answer:
    """Joins, and waits with the others."""
    if request.reason:
        who = request.member_id or ctx.client_id
        log.info("a member joins", extra={"group": request.group_id, "member": who, "reason": request.reason})
    event = Join.from_request(request, ctx.api_version, ctx.client_id or "", ctx.client_host)
    if ctx.api_version >= _NULLABLE_NAME_FROM:
        ctx.broker.groups.join(event, ctx.reply)
    else:
        ctx.broker.groups.join(event, lambda response: ctx.reply(_without_null_name(response)))
    return LATER


def fail(request: m.JoinGroupRequest, code: ErrorCode) -> m.JoinGroupResponse:
    """The refusal of this member, in a form that every version carries."""
    response = join_refused(request.member_id, code)
    response.protocol_name = ""
    return response


def _without_null_name(response: Response) -> Response:
    response = cast("m.JoinGroupResponse", response)
    if response.protocol_name is None:
        response.protocol_name = ""
    return response
