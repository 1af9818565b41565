"""LeaveGroup (key 13), versions 0-5.

1     throttle time
3     many members at once, an error for each; a static one by its instance id alone
4     flexible
5     a reason, for the log
"""

from __future__ import annotations

import logging

from headrace.broker.context import Answer, RequestContext
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey

log = logging.getLogger(__name__)

API_KEY = ApiKey.LEAVE_GROUP
VERSIONS = range(6)

_BATCHES_FROM = 3


def handle(ctx: RequestContext, request: m.LeaveGroupRequest) -> Answer:
    """Takes the members out; their partitions go to the others at the next rebalance."""
    if ctx.api_version < _BATCHES_FROM:
        left = ctx.broker.groups.leave(
            request.group_id, [m.LeaveGroupRequest.MemberIdentity(member_id=request.member_id)]
        )
        return m.LeaveGroupResponse(error_code=left.members[0] if left.error is ErrorCode.NONE else left.error)
    for each in request.members:
        if each.reason:
            who = each.member_id or each.group_instance_id
            log.info("a member leaves", extra={"group": request.group_id, "member": who, "reason": each.reason})
    left = ctx.broker.groups.leave(request.group_id, request.members)
    return m.LeaveGroupResponse(
        error_code=left.error,
        members=[
            m.LeaveGroupResponse.MemberResponse(
                member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=error
            )
            for each, error in zip(request.members, left.members, strict=False)  # none when the whole is refused
        ],
    )
