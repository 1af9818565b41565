"""DeleteGroups (key 42), versions 0-2.

1     as 0
2     flexible
A group that has members is NON_EMPTY_GROUP. The offsets go with their group.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.broker.context import Answer, RequestContext
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey

API_KEY = ApiKey.DELETE_GROUPS
VERSIONS = range(3)


def handle(ctx: RequestContext, request: m.DeleteGroupsRequest) -> Answer:
    """Deletes each that may be; one that is named twice is answered once."""
    groups = ctx.broker.groups
    return _answer({group_id: groups.delete_group(group_id) for group_id in dict.fromkeys(request.groups_names)})


def fail(request: m.DeleteGroupsRequest, code: ErrorCode) -> m.DeleteGroupsResponse:
    """The same refusal for every group."""
    return _answer(dict.fromkeys(request.groups_names, code))


def _answer(results: Mapping[str, ErrorCode]) -> m.DeleteGroupsResponse:
    return m.DeleteGroupsResponse(
        results=[
            m.DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=error)
            for group_id, error in results.items()
        ]
    )
