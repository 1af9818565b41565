"""OffsetForLeaderEpoch (key 23), versions 0-4.

1     the epoch that the offset is of
2     the asker's leader epoch, fenced when it is old
3     consumers may ask too (KIP-320); before, followers alone
4     flexible
Where did the leader of that epoch stop writing? Whoever has more than that of the epoch has what was never committed,
and cuts it off (a follower, KIP-101) or knows that it read it (a consumer). -1 and -1: the epoch is not known here.
"""

from __future__ import annotations

from headrace.broker.context import RequestContext
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.types import NO_EPOCH

API_KEY = ApiKey.OFFSET_FOR_LEADER_EPOCH
VERSIONS = range(5)


def handle(ctx: RequestContext, request: m.OffsetForLeaderEpochRequest) -> m.OffsetForLeaderEpochResponse:
    """One end per partition."""
    return m.OffsetForLeaderEpochResponse(
        topics=[
            m.OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=[_look_up(ctx, topic.topic, each) for each in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def fail(request: m.OffsetForLeaderEpochRequest, code: ErrorCode) -> m.OffsetForLeaderEpochResponse:
    """The same refusal for every partition."""
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
    ctx: RequestContext, topic: str, asked: m.OffsetForLeaderEpochRequest.OffsetForLeaderPartition
) -> m.OffsetForLeaderEpochResponse.EpochEndOffset:
    answer = m.OffsetForLeaderEpochResponse.EpochEndOffset(partition=asked.partition)
    try:
        partition = ctx.broker.replicas.leader(topic, asked.partition)
        if asked.current_leader_epoch != NO_EPOCH:
            partition.check_leader_epoch(asked.current_leader_epoch)
        answer.leader_epoch, answer.end_offset = partition.end_of_epoch(asked.leader_epoch)
    except KafkaError as error:
        answer.error_code = error.code
    return answer
