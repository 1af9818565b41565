"""ShareGroupDescribe (key 77), version 1 (KIP-932).

The groups with their members, subscriptions and partitions. Version 0 was an early access.
"""

from __future__ import annotations

from headrace.broker.handlers.consumer_group_describe import HIDDEN_TOPICS
from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands, Entries, RefusalEffect, RefusalPlace, itself
from headrace.broker.request.sliced_requests import in_parts
from headrace.broker.share.availability import are_share_groups_enabled
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

API_KEY = ApiKey.SHARE_GROUP_DESCRIBE
VERSIONS = range(1, 2)
_GROUPS = Entries("group_ids", "groups", itself, place=RefusalPlace.FIRST)
_ASSIGNED = Demand(Operation.DESCRIBE, ResourceType.TOPIC, by_handler=RefusalEffect.ENTRY)
_SUBSCRIBED = Demand(Operation.DESCRIBE, ResourceType.TOPIC, by_handler=RefusalEffect.HIDDEN)
DEMANDS: Demands = (Demand(Operation.DESCRIBE, ResourceType.GROUP, entries=_GROUPS), _ASSIGNED, _SUBSCRIBED)
_Described = m.ShareGroupDescribeResponse.DescribedGroup

GROUPS_PER_PART = 10
"""Groups that are described at once: each may have a thousand members."""


def handle(ctx: RequestContext, request: m.ShareGroupDescribeRequest) -> Answer:
    """Describes each group. A group that is named twice is described once."""
    if not are_share_groups_enabled(ctx):
        return fail(request, ErrorCode.UNSUPPORTED_VERSION)
    request.group_ids = list(dict.fromkeys(request.group_ids))
    paths = ("group_ids",), ("groups",)
    return in_parts(ctx, request, *paths, lambda part: _describe(ctx, part), fail, GROUPS_PER_PART)


def fail(request: m.ShareGroupDescribeRequest, code: ErrorCode) -> m.ShareGroupDescribeResponse:
    """Returns the same error for every group."""
    return m.ShareGroupDescribeResponse(
        groups=[
            m.ShareGroupDescribeResponse.DescribedGroup(group_id=each, error_code=code) for each in request.group_ids
        ]
    )


def _describe(ctx: RequestContext, request: m.ShareGroupDescribeRequest) -> m.ShareGroupDescribeResponse:
    share, admission = ctx.services.groups.coordinator.share, ctx.services.admission
    groups = [share.describe(each) for each in request.group_ids]
    if request.include_authorized_operations:
        for each in groups:
            if each.error_code == ErrorCode.NONE:
                each.authorized_operations = admission.authorized_operations(ctx, ResourceType.GROUP, each.group_id)
    if admission.has_rules:
        groups = [_without_hidden(ctx, each) for each in groups]
    return m.ShareGroupDescribeResponse(groups=groups)


def _without_hidden(ctx: RequestContext, group: _Described) -> _Described:
    """As for consumer groups."""
    admission = ctx.services.admission
    assigned = {each.topic_name for member in group.members for each in member.assignment.topic_partitions}
    if not all(admission.permits(ctx, _ASSIGNED, name) for name in assigned):
        return _Described(
            group_id=group.group_id, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, error_message=HIDDEN_TOPICS
        )
    for member in group.members:
        names = member.subscribed_topic_names
        member.subscribed_topic_names = [name for name in names if admission.permits(ctx, _SUBSCRIBED, name)]
    return group
