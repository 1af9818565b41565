"""LeaveGroup (key 13), versions 0-5.

1     throttle time
3     many members at once, an error for each; a static member by its instance id alone
4     flexible
5     a reason, for the log
"""

from __future__ import annotations

import logging

from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands, group
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

log = logging.getLogger(__name__)

API_KEY = ApiKey.LEAVE_GROUP
VERSIONS = range(6)
DEMANDS: Demands = (Demand(Operation.READ, ResourceType.GROUP, group),)

_BATCHES_FROM = 3
_REASONS_LOGGED_MAX = 10


def handle(ctx: RequestContext, request: m.LeaveGroupRequest) -> Answer:
    """Removes the members; the next rebalance assigns their partitions to other members."""
    if ctx.api_version < _BATCHES_FROM:
        left = ctx.services.groups.leave(
            request.group_id, [m.LeaveGroupRequest.MemberIdentity(member_id=request.member_id)]
        )
        return m.LeaveGroupResponse(error_code=left.members[0] if left.error is ErrorCode.NONE else left.error)
    reasons = [each for each in request.members if each.reason]
    for each in reasons[:_REASONS_LOGGED_MAX]:
        member = each.member_id or each.group_instance_id
        log.info("a member leaves", extra={"group": request.group_id, "member": member, "reason": each.reason})
    if len(reasons) > _REASONS_LOGGED_MAX:
        left_out = len(reasons) - _REASONS_LOGGED_MAX
        log.info("the reasons of other members are not logged", extra={"group": request.group_id, "members": left_out})
    left = ctx.services.groups.leave(request.group_id, request.members)
    return m.LeaveGroupResponse(
        error_code=left.error,
        members=[
            m.LeaveGroupResponse.MemberResponse(
                member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=error
            )
            for each, error in zip(request.members, left.members, strict=False)  # empty if the whole request failed
        ],
    )
