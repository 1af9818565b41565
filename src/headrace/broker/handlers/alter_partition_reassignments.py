"""AlterPartitionReassignments (key 45), versions 0-1.

1     the request may forbid changes of the replication factor
Partitions are served while they move. Null replicas cancel a move. The response is sent when the new replicas have been
asked to copy; ListPartitionReassignments shows the moves in progress. `leader.replication.throttled.rate` and
related settings limit the traffic. A broker that is not the controller answers NOT_CONTROLLER.
"""

from __future__ import annotations

import asyncio

from headrace.broker.handlers.create_topics import code_of
from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands
from headrace.errors import ErrorCode, KafkaError
from headrace.in_slices import in_slices
from headrace.limits import ELEMENTS_PER_SLICE
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType
from headrace.types import BrokerId, TopicPartition

API_KEY = ApiKey.ALTER_PARTITION_REASSIGNMENTS
VERSIONS = range(2)
DEMANDS: Demands = (Demand(Operation.ALTER, ResourceType.CLUSTER),)


def handle(ctx: RequestContext, request: m.AlterPartitionReassignmentsRequest) -> Answer:
    """Returns the outcome for each partition."""
    return ctx.in_order(_alter(ctx, request), lambda error: fail(request, code_of(error)))


def fail(request: m.AlterPartitionReassignmentsRequest, code: ErrorCode) -> m.AlterPartitionReassignmentsResponse:
    """Returns the same error for the whole request, and for every partition."""
    error = KafkaError(code=code)
    return m.AlterPartitionReassignmentsResponse(
        error_code=code,
        error_message=None,
        responses=[
            m.AlterPartitionReassignmentsResponse.ReassignableTopicResponse(
                name=topic.name, partitions=[_result(each.partition_index, error) for each in topic.partitions]
            )
            for topic in request.topics
        ],
    )


async def _alter(
    ctx: RequestContext, request: m.AlterPartitionReassignmentsRequest
) -> m.AlterPartitionReassignmentsResponse:
    targets: dict[TopicPartition, tuple[BrokerId, ...] | None] = {}
    parts = ((topic.name, each) for topic in request.topics for each in topic.partitions)
    async for name, each in in_slices(parts):
        replicas = None if each.replicas is None else tuple(BrokerId(replica) for replica in each.replicas)
        targets[TopicPartition(name, each.partition_index)] = replicas
    outcomes = await ctx.services.controller.alter_reassignments(
        targets, keep_factor=not request.allow_replication_factor_change
    )
    responses = []
    for topic in request.topics:
        partitions = [
            _result(each.partition_index, outcomes[TopicPartition(topic.name, each.partition_index)])
            async for each in in_slices(topic.partitions)
        ]
        responses.append(
            m.AlterPartitionReassignmentsResponse.ReassignableTopicResponse(name=topic.name, partitions=partitions)
        )
        if len(responses) % ELEMENTS_PER_SLICE == 0:
            await asyncio.sleep(0)
    return m.AlterPartitionReassignmentsResponse(
        error_message=None,
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=responses,
    )


def _result(
    number: int, error: KafkaError | None
) -> m.AlterPartitionReassignmentsResponse.ReassignablePartitionResponse:
    result = m.AlterPartitionReassignmentsResponse.ReassignablePartitionResponse(
        partition_index=number, error_message=None
    )
    if error is not None:
        result.error_code, result.error_message = error.code, error.message or None
    return result
