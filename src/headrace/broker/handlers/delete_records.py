"""DeleteRecords (key 21), versions 0-2.

2     flexible
When the response is sent, each partition's log starts at the requested offset, or at the high watermark (-1), at the
leader and at all live followers: otherwise the next leader would bring the records back. Followers learn of it with
their next fetch, after `replica.fetch.wait.max.ms` if nothing is appended. A partition whose followers have not moved
within the request's time gets REQUEST_TIMED_OUT, and the lowest log start offset of all.
Readers below it get OFFSET_OUT_OF_RANGE, also those that wait. Segments entirely below the log start offset are
removed; if there are many, in slices from the next second on. A log start offset that no segment's name has is written
to `log-start-offset-checkpoint` within a second; a crash before that may bring records back.
Source: Kafka's `DelayedDeleteRecords`, `Partition.lowWatermarkIfLeader`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from headrace.broker.partitions.partition import HIGH_WATERMARK, Partition
from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import TOPICS, Demand, Demands
from headrace.broker.request.sliced_requests import answer_parts
from headrace.errors import ErrorCode, KafkaError
from headrace.in_slices import in_slices
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType
from headrace.topics import INTERNAL_TOPICS
from headrace.types import TopicPartition

API_KEY = ApiKey.DELETE_RECORDS
VERSIONS = range(3)
DEMANDS: Demands = (Demand(Operation.DELETE, ResourceType.TOPIC, entries=TOPICS),)

_NO_WATERMARK = -1
_PATH = ("topics", "partitions")
_PAUSE_MIN_S, _PAUSE_MAX_S = 0.01, 0.1
"""The pause before the followers are looked at again: it doubles from the first to the second."""


class _Moving(NamedTuple):
    """A partition with live followers that may still have records below the offset."""

    partition: Partition
    offset: int
    result: m.DeleteRecordsResponse.DeleteRecordsPartitionResult


def handle(ctx: RequestContext, request: m.DeleteRecordsRequest) -> Answer:
    """Returns the log start offset of each partition. If a partition is named twice, its last entry counts."""

    def refused(error: Exception) -> m.DeleteRecordsResponse:
        return fail(request, error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR)

    return ctx.in_order(_delete_everywhere(ctx, request), refused)


async def _delete_everywhere(ctx: RequestContext, request: m.DeleteRecordsRequest) -> Answer:
    deadline = ctx.services.loop.time() + request.timeout_ms / 1000
    moving: list[_Moving] = []
    response = await answer_parts(request, _PATH, _PATH, partial(_delete_all, ctx, moving))
    pause_s = _PAUSE_MIN_S
    while moving := await _left(ctx, moving):
        left_s = deadline - ctx.services.loop.time()
        if left_s <= 0 or ctx.is_abandoned:
            break
        await asyncio.sleep(min(pause_s, left_s))
        pause_s = min(_PAUSE_MAX_S, 2 * pause_s)
    for each in moving:
        each.result.error_code = ErrorCode.REQUEST_TIMED_OUT
    return response


async def _left(ctx: RequestContext, moving: Iterable[_Moving]) -> list[_Moving]:
    """Those with a live follower below the offset. Notes the lowest log start offset of each in its result, and where
    this broker does not lead any more."""
    left = []
    async for each in in_slices(moving):
        if each.partition.is_dropped or not each.partition.is_leader:
            each.result.error_code, each.result.low_watermark = ErrorCode.NOT_LEADER_OR_FOLLOWER, _NO_WATERMARK
            continue
        each.result.low_watermark = _low_watermark(ctx, each.partition)
        if each.result.low_watermark < each.offset:
            left.append(each)
    return left


def _low_watermark(ctx: RequestContext, led: Partition) -> int:
    """The lowest log start offset of the leader and of its live followers, -1 if one has not told it."""
    live = ctx.services.metadata.brokers
    followers = (each.log_start_offset for broker, each in led.state.followers.items() if broker in live)
    return min((led.log.log_start_offset, *followers))


def _delete_all(ctx: RequestContext, moving: list[_Moving], request: m.DeleteRecordsRequest) -> m.DeleteRecordsResponse:
    response = m.DeleteRecordsResponse()
    for topic in request.topics:
        offsets = {each.partition_index: each.offset for each in topic.partitions}
        response.topics.append(
            m.DeleteRecordsResponse.DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    _delete(ctx, moving, TopicPartition(topic.name, number), at) for number, at in offsets.items()
                ],
            )
        )
    ctx.services.replicas.logs.checkpoint_log_starts_soon()
    return response


def fail(request: m.DeleteRecordsRequest, code: ErrorCode) -> m.DeleteRecordsResponse:
    """Returns the same error for every partition."""
    return m.DeleteRecordsResponse(
        topics=[
            m.DeleteRecordsResponse.DeleteRecordsTopicResult(
                name=topic.name, partitions=[_refusal(each.partition_index, code) for each in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _delete(
    ctx: RequestContext, moving: list[_Moving], key: TopicPartition, offset: int
) -> m.DeleteRecordsResponse.DeleteRecordsPartitionResult:
    if key.topic in INTERNAL_TOPICS:
        return _refusal(key.partition, ErrorCode.INVALID_TOPIC_EXCEPTION)
    try:
        led = ctx.services.replicas.leader(*key)
        start = led.delete_records(offset, ctx.services.now_ms())
    except KafkaError as error:
        return _refusal(key.partition, error.code)
    ctx.services.purgatory.touch(key)
    result = m.DeleteRecordsResponse.DeleteRecordsPartitionResult(partition_index=key.partition, low_watermark=start)
    if led.state.followers:
        moving.append(_Moving(led, start if offset == HIGH_WATERMARK else offset, result))
    return result


def _refusal(number: int, code: ErrorCode) -> m.DeleteRecordsResponse.DeleteRecordsPartitionResult:
    return m.DeleteRecordsResponse.DeleteRecordsPartitionResult(
        partition_index=number, low_watermark=_NO_WATERMARK, error_code=code
    )
