"""StreamsGroupDescribe (key 89), version 0.

Describes streams groups: state, epochs, topology, and members with their present and target tasks.
"""

from __future__ import annotations

from headrace.broker.cluster.features import STREAMS_VERSION
from headrace.broker.handlers.consumer_group_describe import GROUPS_PER_PART
from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands, Entries, RefusalEffect, RefusalPlace, itself
from headrace.broker.request.sliced_requests import PART_ELEMENTS, in_parts
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

API_KEY = ApiKey.STREAMS_GROUP_DESCRIBE
VERSIONS = range(1)
_GROUPS = Entries("group_ids", "groups", itself, place=RefusalPlace.FIRST)
_READ = Demand(Operation.DESCRIBE, ResourceType.TOPIC, by_handler=RefusalEffect.ENTRY)
DEMANDS: Demands = (Demand(Operation.DESCRIBE, ResourceType.GROUP, entries=_GROUPS), _READ)
_Described = m.StreamsGroupDescribeResponse.DescribedGroup


def handle(ctx: RequestContext, request: m.StreamsGroupDescribeRequest) -> Answer:
    """Describes each group, in the request's order. A group that is named twice is answered once."""
    if not ctx.services.features.level(STREAMS_VERSION):
        return fail(request, ErrorCode.UNSUPPORTED_VERSION)
    request.group_ids = list(dict.fromkeys(request.group_ids))
    size = GROUPS_PER_PART if ctx.services.admission.has_rules else PART_ELEMENTS
    return in_parts(ctx, request, ("group_ids",), ("groups",), lambda part: _answer(ctx, part), fail, size)


def _answer(ctx: RequestContext, request: m.StreamsGroupDescribeRequest) -> m.StreamsGroupDescribeResponse:
    groups = [ctx.services.groups.coordinator.streams.describe(each) for each in request.group_ids]
    admission = ctx.services.admission
    for each in groups:
        if request.include_authorized_operations and each.error_code == ErrorCode.NONE:
            each.authorized_operations = admission.authorized_operations(ctx, ResourceType.GROUP, each.group_id)
    if admission.has_rules:
        groups = [each if _may_see(ctx, each) else _hidden(each.group_id) for each in groups]
    return m.StreamsGroupDescribeResponse(groups=groups)


def fail(request: m.StreamsGroupDescribeRequest, code: ErrorCode) -> m.StreamsGroupDescribeResponse:
    """Returns the same error for every group."""
    return m.StreamsGroupDescribeResponse(
        groups=[
            m.StreamsGroupDescribeResponse.DescribedGroup(group_id=each, error_code=code) for each in request.group_ids
        ]
    )


def _may_see(ctx: RequestContext, group: _Described) -> bool:
    """Whether the client may describe every topic of the group's topology."""
    admission = ctx.services.admission
    for each in () if group.topology is None else group.topology.subtopologies or ():
        internal = (topic.name for topic in (*each.repartition_source_topics, *each.state_changelog_topics))
        names = {*(each.source_topics or ()), *(each.repartition_sink_topics or ()), *internal}
        if not all(admission.permits(ctx, _READ, name) for name in names):
            return False
    return True


def _hidden(group_id: str) -> _Described:
    return _Described(
        group_id=group_id,
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        error_message="The described group uses topics that the client is not authorized to describe.",
        topology=None,
    )
