"""ShareGroupHeartbeat (key 76), version 1 (KIP-932).

A member of a share group says that it is alive, and what it subscribes to, and is told its partitions. Epoch 0 joins,
epoch -1 leaves. Version 0 was an early access, which Apache Kafka 4.3 does not serve either.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.broker.handlers.create_topics import code_of
from headrace.broker.request.context import LATER, Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands, group
from headrace.broker.share.availability import are_share_groups_enabled
from headrace.errors import ErrorCode
from headrace.limits import ELEMENTS_PER_SLICE, SUBSCRIBED_TOPICS_MAX
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

API_KEY = ApiKey.SHARE_GROUP_HEARTBEAT
VERSIONS = range(1, 2)
DEMANDS: Demands = (
    Demand(Operation.READ, ResourceType.GROUP, group),
    Demand(Operation.DESCRIBE, ResourceType.TOPIC, lambda _, request: request.subscribed_topic_names or ()),
)

MEMBER_ID_CHARS_MAX = 36


def handle(ctx: RequestContext, request: m.ShareGroupHeartbeatRequest) -> Answer:
    """Answers when what the heartbeat changes is stored."""
    if not are_share_groups_enabled(ctx):
        return fail(request, ErrorCode.UNSUPPORTED_VERSION)
    if not 0 < len(request.member_id) <= MEMBER_ID_CHARS_MAX:
        return m.ShareGroupHeartbeatResponse(
            error_code=ErrorCode.INVALID_REQUEST, error_message="Invalid member id in the request."
        )
    names = request.subscribed_topic_names
    if names is not None and ELEMENTS_PER_SLICE < len(names) <= SUBSCRIBED_TOPICS_MAX:
        return ctx.in_order(_look_up_and_hear(ctx, request, names), lambda error: fail(request, code_of(error)))
    return _hear(ctx, request)


async def _look_up_and_hear(ctx: RequestContext, request: m.ShareGroupHeartbeatRequest, names: Iterable[str]) -> Answer:
    await ctx.services.groups.look_up(names)
    return _hear(ctx, request)


def _hear(ctx: RequestContext, request: m.ShareGroupHeartbeatRequest) -> Answer:
    from headrace.broker.share import group_states

    ctx.keep_place()
    group_states.heartbeat(ctx.services, request, ctx.client_id or "", ctx.client_host, ctx.reply)
    return LATER


def fail(request: m.ShareGroupHeartbeatRequest, code: ErrorCode) -> m.ShareGroupHeartbeatResponse:
    """Returns an error."""
    return m.ShareGroupHeartbeatResponse(error_code=code)
