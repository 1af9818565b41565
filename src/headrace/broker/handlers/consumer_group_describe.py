"""ConsumerGroupDescribe (key 69), versions 0-1.

0     groups of KIP-848: members, subscriptions, what they own and what they are to own
1     whether a member speaks the classic protocol
GROUP_ID_NOT_FOUND for a group of another kind. UNSUPPORTED_VERSION while the feature group.version is at level 0.
"""

from __future__ import annotations

from headrace.broker.cluster.features import GROUP_VERSION
from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands, Entries, RefusalEffect, RefusalPlace, itself
from headrace.broker.request.sliced_requests import PART_ELEMENTS, in_parts
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

API_KEY = ApiKey.CONSUMER_GROUP_DESCRIBE
VERSIONS = range(2)

_GROUPS = Entries("group_ids", "groups", itself, place=RefusalPlace.FIRST)
_ASSIGNED = Demand(Operation.DESCRIBE, ResourceType.TOPIC, by_handler=RefusalEffect.ENTRY)
_SUBSCRIBED = Demand(Operation.DESCRIBE, ResourceType.TOPIC, by_handler=RefusalEffect.HIDDEN)
DEMANDS: Demands = (Demand(Operation.DESCRIBE, ResourceType.GROUP, entries=_GROUPS), _ASSIGNED, _SUBSCRIBED)
_Described = m.ConsumerGroupDescribeResponse.DescribedGroup

GROUPS_PER_PART = 10
"""Groups whose topics are compared with the rules at once: each may have a thousand members."""

HIDDEN_TOPICS = "The group has described topic(s) that the client is not authorized to describe."
"""In Apache Kafka's words."""


def handle(ctx: RequestContext, request: m.ConsumerGroupDescribeRequest) -> Answer:
    """Describes each group, in the request's order. A group that is named twice is answered once."""
    if not ctx.services.features.level(GROUP_VERSION):
        return fail(request, ErrorCode.UNSUPPORTED_VERSION)
    request.group_ids = list(dict.fromkeys(request.group_ids))
    size = GROUPS_PER_PART if ctx.services.admission.has_rules else PART_ELEMENTS
    return in_parts(ctx, request, ("group_ids",), ("groups",), lambda part: _answer(ctx, part), fail, size)


def _answer(ctx: RequestContext, request: m.ConsumerGroupDescribeRequest) -> m.ConsumerGroupDescribeResponse:
    describe, admission = ctx.services.groups.coordinator.consumer.describe, ctx.services.admission
    groups = [describe(each) if each else _refused(each, ErrorCode.INVALID_GROUP_ID) for each in request.group_ids]
    for each in groups:
        if request.include_authorized_operations and each.error_code == ErrorCode.NONE:
            each.authorized_operations = admission.authorized_operations(ctx, ResourceType.GROUP, each.group_id)
    if admission.has_rules:
        groups = [_without_hidden(ctx, each) for each in groups]
    return m.ConsumerGroupDescribeResponse(groups=groups)


def _without_hidden(ctx: RequestContext, group: _Described) -> _Described:
    """The error of a group that has partitions of topics that the client may not see, as in Apache Kafka. Of what
    members subscribe to, such topics are left out; Apache Kafka tells them."""
    admission = ctx.services.admission
    assignments = (each for member in group.members for each in (member.assignment, member.target_assignment))
    assigned = {each.topic_name for assignment in assignments for each in assignment.topic_partitions}
    if not all(admission.permits(ctx, _ASSIGNED, name) for name in assigned):
        return _Described(
            group_id=group.group_id, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, error_message=HIDDEN_TOPICS
        )
    for member in group.members:
        names = member.subscribed_topic_names
        member.subscribed_topic_names = [name for name in names if admission.permits(ctx, _SUBSCRIBED, name)]
    return group


def fail(request: m.ConsumerGroupDescribeRequest, code: ErrorCode) -> m.ConsumerGroupDescribeResponse:
    """Returns the same error for every group."""
    return m.ConsumerGroupDescribeResponse(groups=[_refused(each, code) for each in request.group_ids])


def _refused(group_id: str, code: ErrorCode) -> m.ConsumerGroupDescribeResponse.DescribedGroup:
    return m.ConsumerGroupDescribeResponse.DescribedGroup(group_id=group_id, error_code=code)
