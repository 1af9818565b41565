"""ListPartitionReassignments (key 46), version 0.

Which partitions are being moved: all replicas, those that come, those that go. No topics (null) are all of them. A
broker that is not the controller answers NOT_CONTROLLER.
"""

from __future__ import annotations

from headrace.broker.context import Answer, RequestContext
from headrace.broker.handlers.create_topics import code_of
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.types import TopicPartition

API_KEY = ApiKey.LIST_PARTITION_REASSIGNMENTS
VERSIONS = range(1)


def handle(ctx: RequestContext, request: m.ListPartitionReassignmentsRequest) -> Answer:
    """What is under way."""
    return ctx.in_order(_list(ctx, request), lambda error: fail(request, code_of(error)))


def fail(request: m.ListPartitionReassignmentsRequest, code: ErrorCode) -> m.ListPartitionReassignmentsResponse:
    """A refusal."""
    return m.ListPartitionReassignmentsResponse(error_code=code, error_message=None)


async def _list(
    ctx: RequestContext, request: m.ListPartitionReassignmentsRequest
) -> m.ListPartitionReassignmentsResponse:
    wanted = (
        None
        if request.topics is None
        else [TopicPartition(topic.name, number) for topic in request.topics for number in topic.partition_indexes]
    )
    topics: dict[str, m.ListPartitionReassignmentsResponse.OngoingTopicReassignment] = {}
    for (topic, number), replicas in (await ctx.broker.controller.list_reassignments(wanted)).items():
        if topic not in topics:
            topics[topic] = m.ListPartitionReassignmentsResponse.OngoingTopicReassignment(name=topic, partitions=[])
        topics[topic].partitions.append(
            m.ListPartitionReassignmentsResponse.OngoingPartitionReassignment(
                partition_index=number,
                replicas=list(replicas.replicas),
                adding_replicas=list(replicas.adding),
                removing_replicas=list(replicas.removing),
            )
        )
    return m.ListPartitionReassignmentsResponse(error_message=None, topics=list(topics.values()))
