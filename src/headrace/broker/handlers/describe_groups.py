"""DescribeGroups (key 15), versions 0-6.

1     throttle time
3     the operations that the client may perform on the group
4     instance ids of static members
5     flexible
6     GROUP_ID_NOT_FOUND, with a message, if there is no classic group of the id; before, it is Dead without an error
Subscriptions are returned only for a stable group: during a rebalance the members have not agreed on a protocol yet.
"""

from __future__ import annotations

from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands, Entries, RefusalPlace, itself
from headrace.broker.request.sliced_requests import in_parts
from headrace.coordinators.groups.classic.describing import ClassicGroupDescription, MemberDescription
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

API_KEY = ApiKey.DESCRIBE_GROUPS
VERSIONS = range(7)
_GROUPS = Entries("groups", "groups", itself, place=RefusalPlace.FIRST)
DEMANDS: Demands = (Demand(Operation.DESCRIBE, ResourceType.GROUP, entries=_GROUPS),)

_MISSING_IS_AN_ERROR_FROM = 6


def handle(ctx: RequestContext, request: m.DescribeGroupsRequest) -> Answer:
    """Describes each group, in the request's order. A group that is named twice is answered once."""
    request.groups = list(dict.fromkeys(request.groups))
    return in_parts(ctx, request, ("groups",), ("groups",), lambda part: _answer(ctx, part), fail)


def _answer(ctx: RequestContext, request: m.DescribeGroupsRequest) -> m.DescribeGroupsResponse:
    groups, operations = [], ctx.services.admission.authorized_operations
    for group_id in request.groups:
        description = ctx.services.groups.describe(group_id)
        described = _described(group_id, description)
        if ctx.api_version >= _MISSING_IS_AN_ERROR_FROM and description.missing is not None:
            described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            described.error_message = description.missing
        elif request.include_authorized_operations and described.error_code == ErrorCode.NONE:
            described.authorized_operations = operations(ctx, ResourceType.GROUP, group_id)
        groups.append(described)
    return m.DescribeGroupsResponse(groups=groups)


def fail(request: m.DescribeGroupsRequest, code: ErrorCode) -> m.DescribeGroupsResponse:
    """Returns the same error for every group."""
    return m.DescribeGroupsResponse(
        groups=[_described(group_id, ClassicGroupDescription(code, "")) for group_id in request.groups]
    )


def _described(group_id: str, group: ClassicGroupDescription) -> m.DescribeGroupsResponse.DescribedGroup:
    return m.DescribeGroupsResponse.DescribedGroup(
        error_code=group.error,
        group_id=group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol,
        members=[_member(each) for each in group.members],
    )


def _member(member: MemberDescription) -> m.DescribeGroupsResponse.DescribedGroupMember:
    return m.DescribeGroupsResponse.DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata,
        member_assignment=member.assignment,
    )
