"""DescribeTopicPartitions (key 75), version 0.

Metadata in pages, for clusters with more partitions than one response should hold. Topics are in the order of their
names, partitions in the order of their numbers. A page has at most `response_partition_limit` partitions, and at most
`max.request.partition.size.limit`; `next_cursor` says where the next page begins. A request without topics means all
topics.
Flexible from the start. Left out: eligible leader replicas (KIP-966); the response always has none.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.broker.handlers.metadata import TOPIC_OPERATIONS
from headrace.broker.request.admission import Demand, Demands, topics
from headrace.broker.request.context import Answer, RequestContext
from headrace.controller.decisions.topics import validate_name
from headrace.errors import ErrorCode, InvalidRequest, KafkaError
from headrace.in_slices import in_slices
from headrace.metadata.image import PartitionMetadata, TopicMetadata
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType
from headrace.topics import INTERNAL_TOPICS

API_KEY = ApiKey.DESCRIBE_TOPIC_PARTITIONS
VERSIONS = range(1)
DEMANDS: Demands = (Demand(Operation.DESCRIBE, ResourceType.TOPIC, topics),)


def handle(ctx: RequestContext, request: m.DescribeTopicPartitionsRequest) -> Answer:
    """Returns one page."""

    def failed(error: Exception) -> m.DescribeTopicPartitionsResponse:
        return fail(request, error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR)

    return ctx.in_order(_page(ctx, request, _requested(ctx, request)), failed)


async def _page(
    ctx: RequestContext, request: m.DescribeTopicPartitionsRequest, requested: Iterator[tuple[str, int]]
) -> m.DescribeTopicPartitionsResponse:
    limit = max(1, min(request.response_partition_limit, ctx.services.config.max_request_partition_size_limit))
    response = m.DescribeTopicPartitionsResponse()
    room = limit
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
        if len(rest) > room:
            response.next_cursor = m.DescribeTopicPartitionsResponse.Cursor(topic_name=name, partition_index=rest[room])
            break
        room -= len(rest)
    return response


def fail(request: m.DescribeTopicPartitionsRequest, code: ErrorCode) -> m.DescribeTopicPartitionsResponse:
    """Returns the same error for every topic."""
    topic = m.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
    return m.DescribeTopicPartitionsResponse(topics=[topic(name=each.name, error_code=code) for each in request.topics])


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
    return m.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic(
        name=name, error_code=code, topic_authorized_operations=TOPIC_OPERATIONS
    )


def _topic(
    topic: TopicMetadata, partitions: list[PartitionMetadata]
) -> m.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic:
    return m.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        topic_authorized_operations=TOPIC_OPERATIONS,
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
