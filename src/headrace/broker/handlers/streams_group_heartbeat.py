"""StreamsGroupHeartbeat (key 88), version 0.

A member of a streams group (KIP-1071) joins, stays, or leaves; the answer has its tasks when they changed. Internal
topics of the application that do not exist are created (`broker.coordinator_host.streams_topics`); the heartbeat does
not wait for them. UNSUPPORTED_VERSION while the feature streams.version is at level 0: the group would be lost on a
broker of Apache Kafka. Left out, as in Kafka 4.3: static members, regular expressions, warm-up tasks, and task offsets.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.broker.cluster.features import STREAMS_VERSION
from headrace.broker.request.context import LATER, Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands, RefusalEffect, group
from headrace.controller.decisions.topics import is_legal
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType
from headrace.topics import INTERNAL_TOPICS

if TYPE_CHECKING:
    from headrace.coordinators.groups.streams.requests import StreamsBeat

API_KEY = ApiKey.STREAMS_GROUP_HEARTBEAT
VERSIONS = range(1)


def _topics(_ctx: RequestContext, request: m.StreamsGroupHeartbeatRequest) -> Iterable[str]:
    """Every topic of the topology."""
    for each in [] if request.topology is None else request.topology.subtopologies:
        yield from each.source_topics
        yield from each.repartition_sink_topics
        yield from _internal_topics(each)


def _described(ctx: RequestContext, request: m.StreamsGroupHeartbeatRequest) -> Iterable[str]:
    """The topics that the client must be permitted to see. A topology with an illegal topic is refused first."""
    names = list(_topics(ctx, request))
    return () if any(name in INTERNAL_TOPICS or not is_legal(name) for name in names) else names


def _internal_topics(subtopology: m.StreamsGroupHeartbeatRequest.Subtopology) -> Iterable[str]:
    return (each.name for each in (*subtopology.repartition_source_topics, *subtopology.state_changelog_topics))


_CREATED = Demand(Operation.CREATE, ResourceType.TOPIC, or_on_cluster=Operation.CREATE, by_handler=RefusalEffect.ENTRY)
DEMANDS: Demands = (
    Demand(Operation.READ, ResourceType.GROUP, group),
    Demand(Operation.DESCRIBE, ResourceType.TOPIC, _described),
    _CREATED,
)

_INTERNAL = "Use of Kafka internal topics {} in a Kafka Streams topology is prohibited."
_ILLEGAL = "Topic names {} are not valid topic names."


def handle(ctx: RequestContext, request: m.StreamsGroupHeartbeatRequest) -> Answer:
    """Answers when what the heartbeat changes is stored."""
    if not ctx.services.features.level(STREAMS_VERSION):
        return fail(request, ErrorCode.UNSUPPORTED_VERSION)
    names = list(dict.fromkeys(_topics(ctx, request)))
    for message, wrong in (
        (_INTERNAL, [name for name in names if name in INTERNAL_TOPICS]),
        (_ILLEGAL, [name for name in names if not is_legal(name)]),
    ):
        if wrong:
            return fail(request, ErrorCode.STREAMS_INVALID_TOPOLOGY, message.format(",".join(wrong)))
    client_id, client_host = ctx.client_id or "", ctx.client_host

    def reply(beat: StreamsBeat) -> None:
        if beat.to_create:
            _create(ctx, request.group_id, beat)
        ctx.reply(beat.response)

    ctx.services.groups.request(
        lambda coordinator, now_ms: coordinator.streams.heartbeat(request, client_id, client_host, reply, now_ms)
    )
    return LATER


def fail(
    request: m.StreamsGroupHeartbeatRequest, code: ErrorCode, message: str | None = None
) -> m.StreamsGroupHeartbeatResponse:
    """Returns the error."""
    return m.StreamsGroupHeartbeatResponse(error_code=code, error_message=message, status=[])


def _create(ctx: RequestContext, group_id: str, beat: StreamsBeat) -> None:
    """Begins to create the internal topics that are missing, and tells why it failed before."""
    from headrace.coordinators.groups.streams.configured_topology import Status  # imported with the first such group

    admission = ctx.services.admission
    refused = [each for each in (topic.name for topic in beat.to_create) if not admission.permits(ctx, _CREATED, each)]
    if refused:
        text = f"Unauthorized to CREATE on topics {', '.join(refused)}."
        missing = [each for each in beat.response.status or () if each.status_code == Status.MISSING_INTERNAL_TOPICS]
        if missing:
            missing[0].status_detail += f"; {text}"
        else:
            one = m.StreamsGroupHeartbeatResponse.Status(status_code=Status.MISSING_INTERNAL_TOPICS, status_detail=text)
            beat.response.status = [*(beat.response.status or ()), one]
        return
    interval_ms = ctx.services.group_configs.number(group_id, "streams.heartbeat.interval.ms")
    failures = ctx.services.streams_topics.create(beat.to_create, forget_after_ms=2 * interval_ms)
    for each in beat.response.status or ():
        if failures and each.status_code == Status.MISSING_INTERNAL_TOPICS:
            each.status_detail += f"; Creation failed: {failures}."
