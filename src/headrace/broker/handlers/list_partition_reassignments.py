"""ListPartitionReassignments (key 46), version 0.

Returns the partitions that are being moved, each with all its replicas, the adding ones and the removing ones. Null
topics mean all topics. A broker that is not the controller answers NOT_CONTROLLER.
"""

from __future__ import annotations

from headrace.broker.handlers.create_topics import code_of
from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType
from headrace.types import TopicPartition

API_KEY = ApiKey.LIST_PARTITION_REASSIGNMENTS
VERSIONS = range(1)
DEMANDS: Demands = (Demand(Operation.DESCRIBE, ResourceType.CLUSTER),)


def handle(ctx: RequestContext, request: m.ListPartitionReassignmentsRequest) -> Answer:
    """Returns the moves in progress."""
    return ctx.in_order(_list(ctx, request), lambda error: fail(request, code_of(error)))


def fail(request: m.ListPartitionReassignmentsRequest, code: ErrorCode) -> m.ListPartitionReassignmentsResponse:
    """Returns a response with an error."""
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
    for (topic, number), replicas in (await ctx.services.controller.list_reassignments(wanted)).items():
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
