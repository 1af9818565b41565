"""Metadata (key 3), versions 0-13.

0     an empty list means all topics
1     null means all topics, an empty list none; controller, racks, internal topics
2     cluster id
4     whether the request may create topics (before: it may)
5     offline replicas
7     leader epochs
8     authorized operations, if requested
9     flexible
10    topic ids; version 11 drops the cluster operations (they are in DescribeCluster)
12    topics by id; if the request has a topic by id, topics by name are ignored
13    an error for the whole request
If a leader is suspected to have failed (`metadata.suspected_brokers`), the response waits for a moment.
A topic that the request creates exists when the response is sent, so the client need not ask again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from copy import copy
from typing import cast

from headrace.broker.handlers.create_topics import code_of
from headrace.broker.handlers.describe_cluster import DESCRIBED, cluster_operations
from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands, RefusalEffect, topic_by_id
from headrace.broker.request.sliced_requests import answer_parts, in_parts
from headrace.controller.decisions.topics import RequestedTopic, is_legal, validate_name
from headrace.errors import ErrorCode, InvalidRequest, KafkaError
from headrace.in_slices import in_slices
from headrace.limits import TOPICS_CREATED_PER_METADATA_MAX
from headrace.metadata.image import TopicMetadata
from headrace.metadata.model import NO_UUID
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType
from headrace.topics import INTERNAL_TOPICS
from headrace.types import BrokerId

API_KEY = ApiKey.METADATA
VERSIONS = range(14)
_DESCRIBED = Demand(Operation.DESCRIBE, ResourceType.TOPIC, by_handler=RefusalEffect.ENTRY)
_LISTED = Demand(Operation.DESCRIBE, ResourceType.TOPIC, by_handler=RefusalEffect.HIDDEN)
_CREATED = Demand(Operation.CREATE, ResourceType.TOPIC, or_on_cluster=Operation.CREATE, by_handler=RefusalEffect.ENTRY)
DEMANDS: Demands = (_DESCRIBED, _LISTED, _CREATED, DESCRIBED)

IDS_FROM = 12
_PATHS = ("topics",), ("topics",)
_TOPICS_PER_PART_WITH_RULES = 100
"""Topics that are answered at once where rules are asked, up to nine times for each."""


def handle(ctx: RequestContext, request: m.MetadataRequest) -> Answer:
    """Returns the brokers, with their addresses on the client's listener, and the topics."""
    if ctx.api_version < IDS_FROM and any(
        each.name is None or each.topic_id != NO_UUID for each in request.topics or ()
    ):
        raise InvalidRequest(f"topic ids require Metadata version {IDS_FROM} or later")
    if request.topics:
        topics = _each_once(request.topics)
        if len(topics) != len(request.topics):
            request = copy(request)
            request.topics = topics
    if ctx.services.admission.has_rules:
        return ctx.in_order(_admit_then_answer(ctx, request), lambda error: fail(request, code_of(error)))
    suspected_brokers = ctx.services.metadata.suspected_brokers.among(lambda: _leaders(ctx, request))
    if suspected_brokers:
        return ctx.in_order(_settle_then_answer(ctx, request, suspected_brokers), lambda _: _answer(ctx, request))
    missing = _to_be_made(ctx, request)
    if missing:
        return ctx.in_order(_make_then_answer(ctx, request, missing), lambda _: _answer(ctx, request))
    if not request.topics:
        return _answer(ctx, request)
    return in_parts(ctx, request, *_PATHS, lambda part: _answer(ctx, part), fail)


async def _admit_then_answer(ctx: RequestContext, request: m.MetadataRequest) -> m.MetadataResponse:
    """Answers for the topics that the client may see, and with an error for the others. Of those, nobody learns
    whether they exist. If all topics are requested, the others are left out."""
    is_for_all = _is_for_all(ctx, request)
    refused: list[m.MetadataResponse.MetadataResponseTopic] = []
    named = [m.MetadataRequest.MetadataRequestTopic(name=name) for name in ctx.services.metadata.topics]
    wanted = named if is_for_all else request.topics or []
    permits, permitted = ctx.services.admission.permits, []
    async for each in in_slices(wanted, _TOPICS_PER_PART_WITH_RULES):
        name = topic_by_id(ctx, each)
        if name is None or permits(ctx, _LISTED if is_for_all else _DESCRIBED, name):
            permitted.append(each)
        elif not is_for_all:
            refused.append(_missing(each.name, each.topic_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    request = copy(request)
    request.topics = permitted
    created: set[str] = set()
    if not is_for_all:
        uncreated: set[str] = set()
        async for name in in_slices(_unknown(ctx, request), _TOPICS_PER_PART_WITH_RULES):
            (created if permits(ctx, _CREATED, name) else uncreated).add(name)
        request.topics = [each for each in permitted if each.name not in uncreated]
        refused[:0] = [_missing(name, NO_UUID, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for name in sorted(uncreated)]
    suspected_brokers = ctx.services.metadata.suspected_brokers.among(lambda: _leaders(ctx, request))
    if suspected_brokers:
        await asyncio.wait(suspected_brokers)
    if created:  # a topic that was deleted since then is not among them: the right to create it was not asked
        await _make(ctx, [name for name in _to_be_made(ctx, request) if name in created])
    answer = await answer_parts(
        request, *_PATHS, lambda part: _described(ctx, part, part.topics), _TOPICS_PER_PART_WITH_RULES
    )
    response = cast("m.MetadataResponse", answer)
    response.topics += refused
    return response


def fail(request: m.MetadataRequest, code: ErrorCode) -> m.MetadataResponse:
    """Returns the same error for the whole request and for each topic."""
    return m.MetadataResponse(
        error_code=code, topics=[_missing(each.name or "", each.topic_id, code) for each in request.topics or ()]
    )


def _each_once(topics: list[m.MetadataRequest.MetadataRequestTopic]) -> list[m.MetadataRequest.MetadataRequestTopic]:
    """Returns each topic once; only the topics by id, if there are any."""
    distinct = {(each.name, each.topic_id): each for each in topics}
    if any(topic_id != NO_UUID for _, topic_id in distinct):
        distinct = {(None, each.topic_id): each for each in topics if each.topic_id != NO_UUID}
    return list(distinct.values())


async def _make_then_answer(ctx: RequestContext, request: m.MetadataRequest, missing: list[str]) -> m.MetadataResponse:
    await _make(ctx, missing)
    if not request.topics:
        return _answer(ctx, request)
    answer = await answer_parts(request, *_PATHS, lambda part: _answer(ctx, part))
    return cast("m.MetadataResponse", answer)


async def _make(ctx: RequestContext, missing: list[str]) -> None:
    new_topics = [RequestedTopic(name) for name in missing if name not in INTERNAL_TOPICS]
    if new_topics:
        await ctx.services.topic_creation.make(new_topics)
    if ctx.services.groups.topic.name in missing:
        await ctx.services.groups.topic.ensure()


async def _settle_then_answer(
    ctx: RequestContext, request: m.MetadataRequest, suspected_brokers: list[asyncio.Future[None]]
) -> m.MetadataResponse:
    await asyncio.wait(suspected_brokers)
    return await _make_then_answer(ctx, request, _to_be_made(ctx, request))


def _leaders(ctx: RequestContext, request: m.MetadataRequest) -> set[BrokerId]:
    """Returns the leaders of the requested topics."""
    metadata = ctx.services.metadata
    found: Iterable[TopicMetadata | None] = metadata.topics.values()
    if request.topics:
        found = [
            metadata.topic(each.name) if each.name is not None else metadata.topic_by_id(each.topic_id)
            for each in request.topics
        ]
    return {each.leader for topic in found if topic is not None for each in topic.partitions.values()}


def _to_be_made(ctx: RequestContext, request: m.MetadataRequest) -> list[str]:
    """The topics that the request creates."""
    return _unknown(ctx, request)[:TOPICS_CREATED_PER_METADATA_MAX]


def _unknown(ctx: RequestContext, request: m.MetadataRequest) -> list[str]:
    """The topics that the request would create, however many."""
    may_make = ctx.services.config.auto_create_topics_enable and (
        ctx.api_version < 4 or request.allow_auto_topic_creation
    )
    if not may_make or not request.topics:
        return []
    names = [topic.name for topic in request.topics if topic.name and ctx.services.metadata.topic(topic.name) is None]
    return list(filter(is_legal, names))


def _answer(ctx: RequestContext, request: m.MetadataRequest) -> m.MetadataResponse:
    return _described(ctx, request, None if _is_for_all(ctx, request) else request.topics)


def _is_for_all(ctx: RequestContext, request: m.MetadataRequest) -> bool:
    return request.topics is None or (ctx.api_version == 0 and not request.topics)


def _described(
    ctx: RequestContext, request: m.MetadataRequest, wanted: list[m.MetadataRequest.MetadataRequestTopic] | None
) -> m.MetadataResponse:
    """The response about these topics; None means all."""
    metadata = ctx.services.metadata
    if wanted is None:
        topics = [_topic(topic) for topic in metadata.topics.values()]
    else:
        topics = [_requested(ctx, each) for each in wanted]
    operations = ctx.services.admission.authorized_operations
    for topic in topics:
        if request.include_topic_authorized_operations and topic.name is not None:
            topic.topic_authorized_operations = operations(ctx, ResourceType.TOPIC, topic.name)
    response = m.MetadataResponse(
        brokers=[
            m.MetadataResponse.MetadataResponseBroker(
                node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack
            )
            for broker in metadata.brokers.values()
            if (endpoint := metadata.endpoint(broker.id, ctx.listener)) is not None
        ],
        cluster_id=ctx.services.cluster_id,
        controller_id=metadata.controller_id,
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations(ctx)
    return response


def _requested(
    ctx: RequestContext, each: m.MetadataRequest.MetadataRequestTopic
) -> m.MetadataResponse.MetadataResponseTopic:
    metadata = ctx.services.metadata
    if each.topic_id != NO_UUID:
        found = metadata.topic_by_id(each.topic_id)
        return _topic(found) if found is not None else _missing(None, each.topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
    if each.name is None:
        return _missing("", NO_UUID, ErrorCode.INVALID_REQUEST)
    found = metadata.topic(each.name)
    if found is not None:
        return _topic(found)
    try:
        validate_name(each.name)
    except KafkaError as error:
        return _missing(each.name, NO_UUID, error.code)
    return _missing(each.name, NO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _missing(name: str | None, topic_id: bytes, code: ErrorCode) -> m.MetadataResponse.MetadataResponseTopic:
    return m.MetadataResponse.MetadataResponseTopic(name=name, topic_id=topic_id, error_code=code)


def _topic(topic: TopicMetadata) -> m.MetadataResponse.MetadataResponseTopic:
    return m.MetadataResponse.MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            m.MetadataResponse.MetadataResponsePartition(
                error_code=ErrorCode.NONE if each.leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=each.partition,
                leader_id=each.leader,
                leader_epoch=each.leader_epoch,
                replica_nodes=list(each.replicas),
                isr_nodes=list(each.isr),
                offline_replicas=list(each.offline_replicas),
            )
            for each in topic.partitions.values()
        ],
    )
