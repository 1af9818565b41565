"""DescribeTopicPartitions (key 75), version 0.

Metadata in pages, for clusters with more partitions than one response should hold. Topics are in the order of their
names, partitions in the order of their numbers. A page has at most `response_partition_limit` partitions, and at most
`max.request.partition.size.limit`; `next_cursor` says where the next page begins. A request without topics means all
topics.
Eligible leader replicas (KIP-966) are read from the metadata store, for partitions whose ISR is too small. They are
null while the store is out of reach. `last_known_elr` is always empty: a partition without a leader keeps its ISR.
Flexible from the start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from functools import partial

from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands, RefusalEffect
from headrace.controller.decisions.topics import validate_name
from headrace.errors import ErrorCode, InvalidRequest, KafkaError
from headrace.in_slices import in_slices
from headrace.limits import ELEMENTS_PER_SLICE
from headrace.metadata import znodes
from headrace.metadata.image import PartitionMetadata, TopicMetadata
from headrace.metadata.left_out_nodes import decode_or_leave_out
from headrace.metastore.store import MetadataStore, StoreError
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType
from headrace.topics import INTERNAL_TOPICS
from headrace.types import TopicPartition

API_KEY = ApiKey.DESCRIBE_TOPIC_PARTITIONS
VERSIONS = range(1)
_DESCRIBED = Demand(Operation.DESCRIBE, ResourceType.TOPIC, by_handler=RefusalEffect.ENTRY)
_LISTED = Demand(Operation.DESCRIBE, ResourceType.TOPIC, by_handler=RefusalEffect.HIDDEN)
DEMANDS: Demands = (_DESCRIBED, _LISTED)

PartitionAnswer = m.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition
_STORE_PATIENCE_S = 1.0
_DECIDED_PER_SLICE = 100
"""Topics about which rules are asked in one turn of the event loop, up to nine times for each."""


def handle(ctx: RequestContext, request: m.DescribeTopicPartitionsRequest) -> Answer:
    """Returns one page."""

    def failed(error: Exception) -> m.DescribeTopicPartitionsResponse:
        return fail(request, error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR)

    return ctx.in_order(_page(ctx, request, _requested(ctx, request)), failed)


async def _page(
    ctx: RequestContext, request: m.DescribeTopicPartitionsRequest, requested: Iterable[tuple[str, int]]
) -> m.DescribeTopicPartitionsResponse:
    refused: list[str] = []
    admission = ctx.services.admission
    if admission.has_rules:
        requested, refused = await _admitted(ctx, requested, is_for_all=not request.topics)
    limit = max(1, min(request.response_partition_limit, ctx.services.config.max_request_partition_size_limit))
    response = m.DescribeTopicPartitionsResponse()
    room = limit
    shrunk: dict[TopicPartition, PartitionAnswer] = {}
    async for name, first in in_slices(requested):
        if room == 0:
            response.next_cursor = m.DescribeTopicPartitionsResponse.Cursor(topic_name=name, partition_index=first)
            break
        topic = ctx.services.metadata.topic(name)
        if topic is None:
            response.topics.append(_missing(name))
            continue
        rest = [number for number in topic.partitions if number >= first]
        response.topics.append(_topic(topic, [topic.partitions[number] for number in rest[:room]]))
        min_isr = ctx.services.replicas.configs.get(name).min_insync_replicas
        for each in response.topics[-1].partitions:
            if len(each.isr_nodes) < min(min_isr, len(each.replica_nodes)):
                shrunk[TopicPartition(name, each.partition_index)] = each
        if len(rest) > room:
            response.next_cursor = m.DescribeTopicPartitionsResponse.Cursor(topic_name=name, partition_index=rest[room])
            break
        room -= len(rest)
    async for described in in_slices(
        response.topics, _DECIDED_PER_SLICE if admission.has_rules else ELEMENTS_PER_SLICE
    ):
        described.topic_authorized_operations = admission.authorized_operations(
            ctx, ResourceType.TOPIC, described.name or ""
        )
    response.topics += [_error(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for name in refused]
    if shrunk:
        await _add_eligible_replicas(ctx.services.entities.store, shrunk)
    return response


async def _admitted(
    ctx: RequestContext, requested: Iterable[tuple[str, int]], *, is_for_all: bool
) -> tuple[list[tuple[str, int]], list[str]]:
    """The topics that the client may see, and the names of the others. If all topics are requested, the others are
    left out."""
    admission, permitted, refused = ctx.services.admission, [], []
    async for each in in_slices(requested, _DECIDED_PER_SLICE):
        if admission.permits(ctx, _LISTED if is_for_all else _DESCRIBED, each[0]):
            permitted.append(each)
        elif not is_for_all:
            refused.append(each[0])
    return permitted, refused


async def _add_eligible_replicas(store: MetadataStore, shrunk: dict[TopicPartition, PartitionAnswer]) -> None:
    for each in shrunk.values():
        each.eligible_leader_replicas = None
    try:
        async with asyncio.timeout(_STORE_PATIENCE_S):
            nodes = await store.get_many([znodes.partition_state(*key) for key in shrunk])
    except (StoreError, TimeoutError):
        return
    for (key, answer), node in zip(shrunk.items(), nodes, strict=True):
        if node is not None:
            read = partial(znodes.decode_leadership, node.data, node.version, node.mzxid)
            state = decode_or_leave_out(znodes.partition_state(*key), read)
            answer.eligible_leader_replicas = None if state is None else list(state.eligible)


def fail(request: m.DescribeTopicPartitionsRequest, code: ErrorCode) -> m.DescribeTopicPartitionsResponse:
    """Returns the same error for every topic."""
    return m.DescribeTopicPartitionsResponse(topics=[_error(each.name, code) for each in request.topics])


def _error(name: str, code: ErrorCode) -> m.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic:
    return m.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic(name=name, error_code=code)


def _requested(ctx: RequestContext, request: m.DescribeTopicPartitionsRequest) -> Iterator[tuple[str, int]]:
    """Returns the names of the topics from the cursor on, each with its first partition on this page.

    Raises `InvalidRequest` for a cursor on a topic that was not requested, or with a negative partition.
    """
    wanted = {each.name for each in request.topics}
    first_topic, first_partition = "", 0
    if request.cursor is not None:
        first_topic, first_partition = request.cursor.topic_name, request.cursor.partition_index
        if wanted and first_topic not in wanted:
            raise InvalidRequest(f"the topic list should contain the cursor topic: {first_topic}")
        if first_partition < 0:
            raise InvalidRequest(f"the cursor partition must be valid: {first_partition}")
    names = sorted(name for name in wanted or ctx.services.metadata.topics if name >= first_topic)
    return ((name, first_partition if name == first_topic else 0) for name in names)


def _missing(name: str) -> m.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        validate_name(name)
    except KafkaError as error:
        code = error.code
    return _error(name, code)


def _topic(
    topic: TopicMetadata, partitions: list[PartitionMetadata]
) -> m.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic:
    return m.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            m.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition(
                error_code=ErrorCode.NONE if each.leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=each.partition,
                leader_id=each.leader,
                leader_epoch=each.leader_epoch,
                replica_nodes=list(each.replicas),
                isr_nodes=list(each.isr),
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=list(each.offline_replicas),
            )
            for each in partitions
        ],
    )
