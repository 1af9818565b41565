"""DeleteGroups (key 42), versions 0-2.

1     as 0
2     flexible
A group with members is not deleted: NON_EMPTY_GROUP. The committed offsets are deleted together with their group, the
state of a share group before it.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.broker.handlers.create_topics import code_of
from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands, Entries, itself
from headrace.broker.request.sliced_requests import in_parts
from headrace.coordinators.groups.group import GroupKind
from headrace.errors import ErrorCode
from headrace.in_slices import in_slices
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

API_KEY = ApiKey.DELETE_GROUPS
VERSIONS = range(3)
DEMANDS: Demands = (Demand(Operation.DELETE, ResourceType.GROUP, entries=Entries("groups_names", "results", itself)),)


def handle(ctx: RequestContext, request: m.DeleteGroupsRequest) -> Answer:
    """Deletes the groups without members. A group that is named twice is answered once."""
    groups = ctx.services.groups
    request.groups_names = list(dict.fromkeys(request.groups_names))

    if _has_share_groups(ctx, request):
        return ctx.in_order(_delete_all(ctx, request), lambda error: fail(request, code_of(error)))

    def delete(part: m.DeleteGroupsRequest) -> m.DeleteGroupsResponse:
        return _answer({group_id: groups.delete_group(group_id) for group_id in part.groups_names})

    return in_parts(ctx, request, ("groups_names",), ("results",), delete, fail)


def fail(request: m.DeleteGroupsRequest, code: ErrorCode) -> m.DeleteGroupsResponse:
    """Returns the same error for every group."""
    return _answer(dict.fromkeys(request.groups_names, code))


def _has_share_groups(ctx: RequestContext, request: m.DeleteGroupsRequest) -> bool:
    """Whether a share group is among the groups, whose state share coordinators have to remove first."""
    kind_of = ctx.services.groups.coordinator.kind_of
    return any(kind_of(group_id) is GroupKind.SHARE for group_id in request.groups_names)


async def _delete_all(ctx: RequestContext, request: m.DeleteGroupsRequest) -> m.DeleteGroupsResponse:
    from headrace.broker.share import group_states

    groups, results = ctx.services.groups, {}
    async for group_id in in_slices(request.groups_names):
        if groups.coordinator.kind_of(group_id) is GroupKind.SHARE:
            results[group_id] = await group_states.delete_group(ctx.services, group_id)
        else:
            results[group_id] = groups.delete_group(group_id)
    return _answer(results)


def _answer(results: Mapping[str, ErrorCode]) -> m.DeleteGroupsResponse:
    return m.DeleteGroupsResponse(
        results=[
            m.DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=error)
            for group_id, error in results.items()
        ]
    )
