"""Offsets of Kafka 0.7: positions of segments last written by a time, newest first, or the end or the start.

It is version 0 of ListOffsets, with positions in place of offsets.
"""

from __future__ import annotations

from headrace.broker.handlers.list_offsets import DEMANDS, fail, segment_offsets_before
from headrace.broker.kafka07.partition_positions import PartitionPositions
from headrace.broker.request.context import Answer, RequestContext
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey

__all__ = ["API_KEY", "DEMANDS", "VERSIONS", "fail", "handle"]

API_KEY = ApiKey.LIST_OFFSETS
VERSIONS = range(1)


def handle(ctx: RequestContext, request: m.ListOffsetsRequest) -> Answer:
    """Returns the positions of the one partition."""
    (topic,) = request.topics
    (wanted,) = topic.partitions
    positions = ctx.services.kafka07().leader(topic.name, wanted.partition_index)

    def failed(error: Exception) -> m.ListOffsetsResponse:
        return fail(request, error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR)

    return ctx.in_order(_look_up(ctx, positions, topic.name, wanted), failed)


async def _look_up(
    ctx: RequestContext,
    positions: PartitionPositions,
    topic: str,
    wanted: m.ListOffsetsRequest.ListOffsetsPartition,
) -> m.ListOffsetsResponse:
    offsets = segment_offsets_before(positions.partition, wanted.timestamp, ctx.services.now_ms())
    found = [await positions.position_of(each) for each in offsets[: max(0, wanted.max_num_offsets)]]
    answer = m.ListOffsetsResponse.ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index, old_style_offsets=found
    )
    return m.ListOffsetsResponse(
        topics=[m.ListOffsetsResponse.ListOffsetsTopicResponse(name=topic, partitions=[answer])]
    )
