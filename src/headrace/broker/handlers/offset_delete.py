"""OffsetDelete (key 47), version 0.

Takes committed offsets away, of partitions that no member of the group subscribes to; those that are subscribed to
are GROUP_SUBSCRIBED_TO_TOPIC, those that do not exist UNKNOWN_TOPIC_OR_PARTITION. A group that has members and is not
one of consumers keeps everything: NON_EMPTY_GROUP. That a partition had no offset is no error.
"""

from __future__ import annotations

from headrace.broker.context import Answer, RequestContext
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.types import TopicPartition

API_KEY = ApiKey.OFFSET_DELETE
VERSIONS = range(1)


def handle(ctx: RequestContext, request: m.OffsetDeleteRequest) -> Answer:
    """Forgets what may be forgotten, with an answer for each partition."""
    asked = [TopicPartition(topic.name, each.partition_index) for topic in request.topics for each in topic.partitions]
    known = [each for each in asked if ctx.broker.metadata.partition(*each) is not None]
    error, results = ctx.broker.groups.delete_offsets(request.group_id, known)
    if error is not ErrorCode.NONE:
        return m.OffsetDeleteResponse(error_code=error)
    by_topic: dict[str, list[m.OffsetDeleteResponse.OffsetDeleteResponsePartition]] = {}
    for topic, number in dict.fromkeys(asked):
        code = results.get(TopicPartition(topic, number), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        part = m.OffsetDeleteResponse.OffsetDeleteResponsePartition(partition_index=number, error_code=code)
        by_topic.setdefault(topic, []).append(part)
    return m.OffsetDeleteResponse(
        topics=[
            m.OffsetDeleteResponse.OffsetDeleteResponseTopic(name=name, partitions=parts)
            for name, parts in by_topic.items()
        ]
    )
