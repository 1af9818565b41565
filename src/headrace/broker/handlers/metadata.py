"""Metadata (key 3), versions 0-13.

0     an empty list asks for every topic
1     null does, an empty list for none; controller, racks, internal topics
2     cluster id
4     whether a topic may be made by asking for it (before: it may)
5     offline replicas
7     leader epochs
8     authorized operations, when asked for
9     flexible
10    topic ids; cluster operations go with 11 (they are in DescribeCluster)
12    topics by id; where any is, names do not count
13    an error for the whole
A leader of which nobody knows whether it lives (`broker.doubts`) has the answer wait for a moment.
A topic that is made by asking for it is there when the answer leaves, so nobody has to ask again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from headrace.broker.context import Answer, RequestContext
from headrace.broker.metadata_cache import TopicMetadata
from headrace.broker.topic_wishes import make_topics
from headrace.coordination.model import INTERNAL_TOPICS, NO_UUID
from headrace.coordination.topics import NewTopic, validate_name
from headrace.errors import ErrorCode, InvalidRequest, InvalidTopic, KafkaError
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.types import BrokerId

API_KEY = ApiKey.METADATA
VERSIONS = range(14)

IDS_FROM = 12

# Each bit is an AclOperation: without access control everybody may do all that the resource knows.
TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))


def handle(ctx: RequestContext, request: m.MetadataRequest) -> Answer:
    """Brokers and topics, as this listener's clients should see them."""
    if ctx.api_version < IDS_FROM and any(
        each.name is None or each.topic_id != NO_UUID for each in request.topics or ()
    ):
        raise InvalidRequest(f"topics are asked for by id from version {IDS_FROM} on")
    doubts = ctx.broker.metadata.doubts.among(lambda: _leaders(ctx, request))
    if doubts:
        return ctx.in_order(_settle_then_answer(ctx, request, doubts), lambda _: _answer(ctx, request))
    missing = _to_be_made(ctx, request)
    if missing:
        return ctx.in_order(_make_then_answer(ctx, request, missing), lambda _: _answer(ctx, request))
    return _answer(ctx, request)


def fail(request: m.MetadataRequest, code: ErrorCode) -> m.MetadataResponse:
    """The same refusal for the whole and for each topic."""
    return m.MetadataResponse(
        error_code=code, topics=[_missing(each.name or "", each.topic_id, code) for each in request.topics or ()]
    )


async def _make_then_answer(ctx: RequestContext, request: m.MetadataRequest, missing: list[str]) -> m.MetadataResponse:
    wishes = [NewTopic(name) for name in missing if name not in INTERNAL_TOPICS]
    if wishes:
        await make_topics(ctx.broker, wishes)
    if any(name in INTERNAL_TOPICS for name in missing):
        await ctx.broker.groups.ensure_offsets_topic()
    return _answer(ctx, request)


async def _settle_then_answer(
    ctx: RequestContext, request: m.MetadataRequest, doubts: list[asyncio.Future[None]]
) -> m.MetadataResponse:
    await asyncio.wait(doubts)
    return await _make_then_answer(ctx, request, _to_be_made(ctx, request))


def _leaders(ctx: RequestContext, request: m.MetadataRequest) -> set[BrokerId]:
    """Who leads what is asked for."""
    metadata = ctx.broker.metadata
    found: Iterable[TopicMetadata | None] = metadata.topics.values()
    if request.topics:
        found = [
            metadata.topic(each.name) if each.name is not None else metadata.topic_by_id(each.topic_id)
            for each in request.topics
        ]
    return {each.leader for topic in found if topic is not None for each in topic.partitions.values()}


def _to_be_made(ctx: RequestContext, request: m.MetadataRequest) -> list[str]:
    may_make = ctx.broker.config.auto_create_topics_enable and (
        ctx.api_version < 4 or request.allow_auto_topic_creation
    )
    if not may_make or not request.topics:
        return []
    names = [topic.name for topic in request.topics if topic.name and ctx.broker.metadata.topic(topic.name) is None]
    return [name for name in dict.fromkeys(names) if _is_legal(name)]


def _is_legal(name: str) -> bool:
    try:
        validate_name(name)
    except InvalidTopic:
        return False
    return True


def _answer(ctx: RequestContext, request: m.MetadataRequest) -> m.MetadataResponse:
    metadata = ctx.broker.metadata
    version = ctx.api_version
    asks_for_all = request.topics is None or (version == 0 and not request.topics)
    if asks_for_all:
        topics = [_topic(topic) for topic in metadata.topics.values()]
    else:
        asked_once = {(each.name, each.topic_id): each for each in request.topics or ()}
        if any(topic_id != NO_UUID for _, topic_id in asked_once):
            asked_once = {(None, each.topic_id): each for each in asked_once.values() if each.topic_id != NO_UUID}
        topics = [_asked_for(ctx, each) for each in asked_once.values()]
    for topic in topics:
        if request.include_topic_authorized_operations and topic.name is not None:
            topic.topic_authorized_operations = TOPIC_OPERATIONS
    response = m.MetadataResponse(
        brokers=[
            m.MetadataResponse.MetadataResponseBroker(
                node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack
            )
            for broker in metadata.brokers.values()
            if (endpoint := metadata.endpoint(broker.id, ctx.listener)) is not None
        ],
        cluster_id=ctx.broker.cluster_id,
        controller_id=metadata.controller_id,
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response


def _asked_for(
    ctx: RequestContext, each: m.MetadataRequest.MetadataRequestTopic
) -> m.MetadataResponse.MetadataResponseTopic:
    metadata = ctx.broker.metadata
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
