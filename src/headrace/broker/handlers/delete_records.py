"""DeleteRecords (key 21), versions 0-2.

2     flexible
A partition's log begins at the offset given, or at the high watermark (-1), when the answer leaves; readers below get
OFFSET_OUT_OF_RANGE, waiting ones too. Segments that lie below as a whole are removed; the start inside a segment is
written to `log-start-offset-checkpoint` within a second (a crash before that may bring records back).
Left out: waiting until the followers have moved their starts too.
"""

from __future__ import annotations

from headrace.broker.context import RequestContext
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.types import TopicPartition

API_KEY = ApiKey.DELETE_RECORDS
VERSIONS = range(3)

_NO_WATERMARK = -1


def handle(ctx: RequestContext, request: m.DeleteRecordsRequest) -> m.DeleteRecordsResponse:
    """The log start offset of each partition; one that is named twice is done as it is named last."""
    response = m.DeleteRecordsResponse()
    for topic in request.topics:
        offsets = {each.partition_index: each.offset for each in topic.partitions}
        response.topics.append(
            m.DeleteRecordsResponse.DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[_delete(ctx, TopicPartition(topic.name, number), at) for number, at in offsets.items()],
            )
        )
    ctx.broker.replicas.logs.checkpoint_log_starts_soon()
    return response


def fail(request: m.DeleteRecordsRequest, code: ErrorCode) -> m.DeleteRecordsResponse:
    """The same refusal for every partition."""
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
    try:
        start = ctx.broker.replicas.leader(*key).delete_records(offset, ctx.broker.now_ms())
    except KafkaError as error:
        return _refusal(key.partition, error.code)
    ctx.broker.purgatory.touch(key)
    return m.DeleteRecordsResponse.DeleteRecordsPartitionResult(partition_index=key.partition, low_watermark=start)


def _refusal(number: int, code: ErrorCode) -> m.DeleteRecordsResponse.DeleteRecordsPartitionResult:
    return m.DeleteRecordsResponse.DeleteRecordsPartitionResult(
        partition_index=number, low_watermark=_NO_WATERMARK, error_code=code
    )
