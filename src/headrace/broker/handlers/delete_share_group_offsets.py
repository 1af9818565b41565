"""DeleteShareGroupOffsets (key 92), version 0 (KIP-932).

Removes the share state of topics from a share group without members.
"""

from __future__ import annotations

from headrace.broker.handlers.create_topics import code_of
from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands, Entries, group
from headrace.broker.share.availability import are_share_groups_enabled
from headrace.broker.share.error_texts import NO_SUCH_TOPIC, error_text
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

API_KEY = ApiKey.DELETE_SHARE_GROUP_OFFSETS
VERSIONS = range(1)
DEMANDS: Demands = (
    Demand(Operation.DELETE, ResourceType.GROUP, group),
    Demand(
        Operation.READ,
        ResourceType.TOPIC,
        entries=Entries("topics", "responses", lambda _, each: each.topic_name, lambda *refused: _refuse(*refused)),
    ),
)
_Topic = m.DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic


def _refuse(
    _ctx: RequestContext, request: m.DeleteShareGroupOffsetsRequest, code: ErrorCode
) -> m.DeleteShareGroupOffsetsResponse:
    """The same error for every topic."""
    return m.DeleteShareGroupOffsetsResponse(
        responses=[
            _Topic(topic_name=each.topic_name, error_code=code, error_message=error_text(code))
            for each in request.topics
        ]
    )


def handle(ctx: RequestContext, request: m.DeleteShareGroupOffsetsRequest) -> Answer:
    """Answers when the state is removed."""
    if not are_share_groups_enabled(ctx):
        return fail(request, ErrorCode.UNSUPPORTED_VERSION)
    return ctx.in_order(_delete(ctx, request), lambda error: fail(request, code_of(error)))


def fail(request: m.DeleteShareGroupOffsetsRequest, code: ErrorCode) -> m.DeleteShareGroupOffsetsResponse:
    """Returns an error for the whole request."""
    text = f"Group {request.group_id} not found." if code is ErrorCode.GROUP_ID_NOT_FOUND else error_text(code)
    return m.DeleteShareGroupOffsetsResponse(error_code=code, error_message=text)


async def _delete(ctx: RequestContext, request: m.DeleteShareGroupOffsetsRequest) -> m.DeleteShareGroupOffsetsResponse:
    from headrace.broker.share import group_states

    names = list(dict.fromkeys(each.topic_name for each in request.topics))
    error, outcomes = await group_states.delete_offsets(ctx.services, request.group_id, names)
    if error is not ErrorCode.NONE:
        return fail(request, error)
    response = m.DeleteShareGroupOffsetsResponse()
    for name, outcome in outcomes.items():
        known = ctx.services.metadata.topic(name)
        if known is None and outcome.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            outcome = NO_SUCH_TOPIC
        topic_id = known.id if known is not None and outcome.error is ErrorCode.NONE else bytes(16)
        response.responses.append(
            _Topic(topic_name=name, topic_id=topic_id, error_code=outcome.error, error_message=outcome.message)
        )
    return response
