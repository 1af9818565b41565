"""OffsetDelete (key 47), version 0.

Deletes committed offsets of partitions that no member of the group subscribes to. A subscribed partition gets
GROUP_SUBSCRIBED_TO_TOPIC, a partition that does not exist UNKNOWN_TOPIC_OR_PARTITION. A group that has members and is
not a consumer group keeps all offsets: NON_EMPTY_GROUP. A partition without a committed offset is not an error.
"""

from __future__ import annotations

from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import TOPICS, Demand, Demands, group
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType
from headrace.types import TopicPartition

API_KEY = ApiKey.OFFSET_DELETE
VERSIONS = range(1)
DEMANDS: Demands = (
    Demand(Operation.DELETE, ResourceType.GROUP, group),
    Demand(Operation.READ, ResourceType.TOPIC, entries=TOPICS._replace(refuse=lambda *refused: _refuse(*refused))),
)


def _refuse(_ctx: RequestContext, request: m.OffsetDeleteRequest, code: ErrorCode) -> m.OffsetDeleteResponse:
    """Returns the same error for every partition."""
    partition = m.OffsetDeleteResponse.OffsetDeleteResponsePartition
    return m.OffsetDeleteResponse(
        topics=[
            m.OffsetDeleteResponse.OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    partition(partition_index=each.partition_index, error_code=code) for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def handle(ctx: RequestContext, request: m.OffsetDeleteRequest) -> Answer:
    """Deletes the offsets that may be deleted; returns an error code for each partition."""
    requested = [
        TopicPartition(topic.name, each.partition_index) for topic in request.topics for each in topic.partitions
    ]
    known = [each for each in requested if ctx.services.metadata.partition(*each) is not None]
    if not request.group_id:
        return m.OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    error, results = ctx.services.groups.delete_offsets(request.group_id, known)
    if error is not ErrorCode.NONE:
        return m.OffsetDeleteResponse(error_code=error)
    by_topic: dict[str, list[m.OffsetDeleteResponse.OffsetDeleteResponsePartition]] = {}
    for topic, number in dict.fromkeys(requested):
        code = results.get(TopicPartition(topic, number), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        part = m.OffsetDeleteResponse.OffsetDeleteResponsePartition(partition_index=number, error_code=code)
        by_topic.setdefault(topic, []).append(part)
    return m.OffsetDeleteResponse(
        topics=[
            m.OffsetDeleteResponse.OffsetDeleteResponseTopic(name=name, partitions=parts)
            for name, parts in by_topic.items()
        ]
    )
