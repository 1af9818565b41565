"""ConsumerGroupHeartbeat (key 68), versions 0-1.

0     a member of a consumer group joins, heartbeats, or leaves (KIP-848)
1     subscription by regular expression; the client makes its member id
UNSUPPORTED_VERSION while the feature group.version is at level 0: members would be lost on a broker of Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.broker.cluster.features import GROUP_VERSION
from headrace.broker.handlers.create_topics import code_of
from headrace.broker.request.context import LATER, Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands, RefusalEffect, group
from headrace.errors import ErrorCode
from headrace.limits import ELEMENTS_PER_SLICE, SUBSCRIBED_TOPICS_MAX
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

API_KEY = ApiKey.CONSUMER_GROUP_HEARTBEAT
VERSIONS = range(2)
_MATCHED = Demand(Operation.DESCRIBE, ResourceType.TOPIC, by_handler=RefusalEffect.HIDDEN)
DEMANDS: Demands = (
    Demand(Operation.READ, ResourceType.GROUP, group),
    Demand(Operation.DESCRIBE, ResourceType.TOPIC, lambda _, request: request.subscribed_topic_names or ()),
    _MATCHED,
)


def handle(ctx: RequestContext, request: m.ConsumerGroupHeartbeatRequest) -> Answer:
    """Hears the member; the response waits until what has changed is stored."""
    if not ctx.services.features.level(GROUP_VERSION):
        return fail(request, ErrorCode.UNSUPPORTED_VERSION)
    names = request.subscribed_topic_names
    if names is not None and ELEMENTS_PER_SLICE < len(names) <= SUBSCRIBED_TOPICS_MAX:
        return ctx.in_order(_look_up_and_hear(ctx, request, names), lambda error: fail(request, code_of(error)))
    return _hear(ctx, request)


async def _look_up_and_hear(
    ctx: RequestContext, request: m.ConsumerGroupHeartbeatRequest, names: Iterable[str]
) -> Answer:
    await ctx.services.groups.look_up(names)
    return _hear(ctx, request)


def _hear(ctx: RequestContext, request: m.ConsumerGroupHeartbeatRequest) -> Answer:
    from headrace.coordinators.groups.consumer.heartbeat import RequestClient  # with the first consumer group

    admission = ctx.services.admission
    client = RequestClient(ctx.client_id or "", ctx.client_host, lambda topic: admission.permits(ctx, _MATCHED, topic))
    ctx.services.groups.request(
        lambda coordinator, now_ms: coordinator.consumer.heartbeat(request, ctx.api_version, client, ctx.reply, now_ms)
    )
    return LATER


def fail(request: m.ConsumerGroupHeartbeatRequest, code: ErrorCode) -> m.ConsumerGroupHeartbeatResponse:
    """Returns the error."""
    return m.ConsumerGroupHeartbeatResponse(error_code=code)
