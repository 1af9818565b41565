"""OffsetForLeaderEpoch (key 23), versions 0-4.

1     the leader epoch of the end offset in the response
2     the current leader epoch in the request; an older one gets FENCED_LEADER_EPOCH
3     consumers may ask too (KIP-320); before, only followers
4     flexible
Returns the end offset of a leader epoch. A log with more records of that epoch has records that were never committed: a
follower truncates them (KIP-101), a consumer detects that it read them. The result for an unknown epoch is (-1, -1).
"""

from __future__ import annotations

from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands, Entries
from headrace.broker.request.sliced_requests import in_parts
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.records.format2.header import MAGIC
from headrace.security.access import Operation, ResourceType
from headrace.types import NO_EPOCH

API_KEY = ApiKey.OFFSET_FOR_LEADER_EPOCH
VERSIONS = range(5)
DEMANDS: Demands = (
    Demand(
        Operation.DESCRIBE,
        ResourceType.TOPIC,
        or_on_cluster=Operation.CLUSTER_ACTION,
        entries=Entries("topics", "topics", lambda _, each: each.topic),
    ),
)


def handle(ctx: RequestContext, request: m.OffsetForLeaderEpochRequest) -> Answer:
    """Returns one end offset per partition."""
    path = ("topics", "partitions")
    return in_parts(ctx, request, path, path, lambda part: _answer(ctx, part), fail)


def _answer(ctx: RequestContext, request: m.OffsetForLeaderEpochRequest) -> m.OffsetForLeaderEpochResponse:
    return m.OffsetForLeaderEpochResponse(
        topics=[
            m.OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=[_look_up(ctx, topic.topic, each) for each in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def fail(request: m.OffsetForLeaderEpochRequest, code: ErrorCode) -> m.OffsetForLeaderEpochResponse:
    """Returns the same error for every partition."""
    end = m.OffsetForLeaderEpochResponse.EpochEndOffset
    return m.OffsetForLeaderEpochResponse(
        topics=[
            m.OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[end(partition=each.partition, error_code=code) for each in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _look_up(
    ctx: RequestContext, topic: str, requested: m.OffsetForLeaderEpochRequest.OffsetForLeaderPartition
) -> m.OffsetForLeaderEpochResponse.EpochEndOffset:
    answer = m.OffsetForLeaderEpochResponse.EpochEndOffset(partition=requested.partition)
    try:
        partition = ctx.services.replicas.leader(topic, requested.partition)
        if requested.current_leader_epoch != NO_EPOCH:
            partition.check_leader_epoch(requested.current_leader_epoch)
        if partition.log.config.magic >= MAGIC:  # messages of older formats carry no epoch
            answer.leader_epoch, answer.end_offset = partition.end_of_epoch(requested.leader_epoch)
    except KafkaError as error:
        answer.error_code = error.code
    return answer
