"""DeleteRecords (key 21), versions 0-2.

2     flexible
When the response is sent, each partition's log starts at the requested offset, or at the high watermark (-1). Readers
below it get OFFSET_OUT_OF_RANGE, also those that wait. Segments entirely below the log start offset are removed; if
there are many, in slices from the next second on. A log start offset that no segment's name has is written to
`log-start-offset-checkpoint` within a second; a crash before that may bring records back.
Left out: waiting until the followers have moved their log start offsets too.
"""

from __future__ import annotations

from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import TOPICS, Demand, Demands
from headrace.broker.request.sliced_requests import in_parts
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType
from headrace.topics import INTERNAL_TOPICS
from headrace.types import TopicPartition

API_KEY = ApiKey.DELETE_RECORDS
VERSIONS = range(3)
DEMANDS: Demands = (Demand(Operation.DELETE, ResourceType.TOPIC, entries=TOPICS),)

_NO_WATERMARK = -1


def handle(ctx: RequestContext, request: m.DeleteRecordsRequest) -> Answer:
    """Returns the log start offset of each partition. If a partition is named twice, its last entry counts."""
    path = ("topics", "partitions")
    return in_parts(ctx, request, path, path, lambda part: _delete_all(ctx, part), fail)


def _delete_all(ctx: RequestContext, request: m.DeleteRecordsRequest) -> m.DeleteRecordsResponse:
    response = m.DeleteRecordsResponse()
    for topic in request.topics:
        offsets = {each.partition_index: each.offset for each in topic.partitions}
        response.topics.append(
            m.DeleteRecordsResponse.DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[_delete(ctx, TopicPartition(topic.name, number), at) for number, at in offsets.items()],
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
    ctx: RequestContext, key: TopicPartition, offset: int
) -> m.DeleteRecordsResponse.DeleteRecordsPartitionResult:
    if key.topic in INTERNAL_TOPICS:
        return _refusal(key.partition, ErrorCode.INVALID_TOPIC_EXCEPTION)
    try:
        start = ctx.services.replicas.leader(*key).delete_records(offset, ctx.services.now_ms())
    except KafkaError as error:
        return _refusal(key.partition, error.code)
    ctx.services.purgatory.touch(key)
    return m.DeleteRecordsResponse.DeleteRecordsPartitionResult(partition_index=key.partition, low_watermark=start)


def _refusal(number: int, code: ErrorCode) -> m.DeleteRecordsResponse.DeleteRecordsPartitionResult:
    return m.DeleteRecordsResponse.DeleteRecordsPartitionResult(
        partition_index=number, low_watermark=_NO_WATERMARK, error_code=code
    )
