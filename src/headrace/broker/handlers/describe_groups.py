"""DescribeGroups (key 15), versions 0-6.

1     throttle time
3     what the asker may do with the group
4     static members' instance ids
5     flexible
6     GROUP_ID_NOT_FOUND for a group that does not exist, with a message; before, it is Dead and that is no error
What members subscribed to and were assigned is told of a stable group only: in between there is no agreement on it.
"""

from __future__ import annotations

from headrace.broker.context import Answer, RequestContext
from headrace.errors import ErrorCode
from headrace.groups.describing import GroupDescription, MemberDescription
from headrace.groups.group import State
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey

API_KEY = ApiKey.DESCRIBE_GROUPS
VERSIONS = range(7)

_MISSING_IS_AN_ERROR_FROM = 6
# Each bit is an AclOperation: read, delete, describe, describe and alter configs.
_GROUP_OPERATIONS = sum(1 << operation for operation in (3, 6, 8, 10, 11))


def handle(ctx: RequestContext, request: m.DescribeGroupsRequest) -> Answer:
    """Each group as it is, in the request's order."""
    groups = []
    for group_id in request.groups:
        described = _described(group_id, ctx.broker.groups.describe(group_id))
        if ctx.api_version >= _MISSING_IS_AN_ERROR_FROM and described.group_state == State.DEAD.value:
            described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            described.error_message = f"Group {group_id} not found."
        elif request.include_authorized_operations and described.error_code == ErrorCode.NONE:
            described.authorized_operations = _GROUP_OPERATIONS
        groups.append(described)
    return m.DescribeGroupsResponse(groups=groups)


def fail(request: m.DescribeGroupsRequest, code: ErrorCode) -> m.DescribeGroupsResponse:
    """The same refusal for every group."""
    return m.DescribeGroupsResponse(
        groups=[_described(group_id, GroupDescription(code, "")) for group_id in request.groups]
    )


def _described(group_id: str, group: GroupDescription) -> m.DescribeGroupsResponse.DescribedGroup:
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
