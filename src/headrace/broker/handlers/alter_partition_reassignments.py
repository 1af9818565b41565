"""AlterPartitionReassignments (key 45), versions 0-1.

1     the number of replicas may be forbidden to change
Partitions move while they are served; no replicas (null) cancel. The answer leaves when the new replicas are told to
copy; ListPartitionReassignments says what is under way. `leader.replication.throttled.rate` and its kin bound what
copying takes. A broker that is not the controller answers NOT_CONTROLLER.
"""

from __future__ import annotations

from headrace.broker.context import Answer, RequestContext
from headrace.broker.handlers.create_topics import code_of
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.types import BrokerId, TopicPartition

API_KEY = ApiKey.ALTER_PARTITION_REASSIGNMENTS
VERSIONS = range(2)


def handle(ctx: RequestContext, request: m.AlterPartitionReassignmentsRequest) -> Answer:
    """What became of each partition's wish."""
    return ctx.in_order(_alter(ctx, request), lambda error: fail(request, code_of(error)))


def fail(request: m.AlterPartitionReassignmentsRequest, code: ErrorCode) -> m.AlterPartitionReassignmentsResponse:
    """One refusal for all."""
    return m.AlterPartitionReassignmentsResponse(error_code=code, error_message=None)


async def _alter(
    ctx: RequestContext, request: m.AlterPartitionReassignmentsRequest
) -> m.AlterPartitionReassignmentsResponse:
    targets = {
        TopicPartition(topic.name, each.partition_index): (
            None if each.replicas is None else tuple(BrokerId(replica) for replica in each.replicas)
        )
        for topic in request.topics
        for each in topic.partitions
    }
    outcomes = await ctx.broker.controller.alter_reassignments(
        targets, keep_factor=not request.allow_replication_factor_change
    )
    return m.AlterPartitionReassignmentsResponse(
        error_message=None,
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=[
            m.AlterPartitionReassignmentsResponse.ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    _result(each.partition_index, outcomes[TopicPartition(topic.name, each.partition_index)])
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ],
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
