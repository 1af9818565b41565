"""DeleteGroups (key 42), versions 0-2.

1     as 0
2     flexible
A group with members is not deleted: NON_EMPTY_GROUP. The committed offsets are deleted together with their group.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.broker.request.admission import Demand, Demands
from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.sliced_requests import in_parts
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

API_KEY = ApiKey.DELETE_GROUPS
VERSIONS = range(3)
DEMANDS: Demands = (Demand(Operation.DELETE, ResourceType.GROUP, lambda _, request: request.groups_names),)


def handle(ctx: RequestContext, request: m.DeleteGroupsRequest) -> Answer:
    """Deletes the groups without members. A group that is named twice is answered once."""
    groups = ctx.services.groups
    request.groups_names = list(dict.fromkeys(request.groups_names))

    def delete(part: m.DeleteGroupsRequest) -> m.DeleteGroupsResponse:
        return _answer({group_id: groups.delete_group(group_id) for group_id in part.groups_names})

    return in_parts(ctx, request, ("groups_names",), ("results",), delete, fail)


def fail(request: m.DeleteGroupsRequest, code: ErrorCode) -> m.DeleteGroupsResponse:
    """Returns the same error for every group."""
    return _answer(dict.fromkeys(request.groups_names, code))


def _answer(results: Mapping[str, ErrorCode]) -> m.DeleteGroupsResponse:
    return m.DeleteGroupsResponse(
        results=[
            m.DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=error)
            for group_id, error in results.items()
        ]
    )
