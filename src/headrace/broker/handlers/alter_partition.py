"""AlterPartition (key 56), versions 0-3.

1     whether the leader still recovers from an unclean election
2     topics by id; INELIGIBLE_REPLICA where it was OPERATION_NOT_ATTEMPTED
3     the ISR with the epochs of the brokers' registrations (KIP-903)
From leaders, to the controller: another ISR. A broker that is not the controller answers NOT_CONTROLLER.
"""

from __future__ import annotations

from headrace.broker.cluster_action import must_be_a_broker
from headrace.broker.context import Answer, RequestContext
from headrace.broker.handlers.create_topics import code_of
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey

API_KEY = ApiKey.ALTER_PARTITION
VERSIONS = range(4)

_KNOWS_INELIGIBLE_FROM = 2


def handle(ctx: RequestContext, request: m.AlterPartitionRequest) -> Answer:
    """The states as they are afterwards, or an error, for each partition."""
    must_be_a_broker(ctx)
    return ctx.in_order(_alter(ctx, request), lambda error: fail(request, code_of(error)))


def fail(request: m.AlterPartitionRequest, code: ErrorCode) -> m.AlterPartitionResponse:
    """One refusal for all."""
    return m.AlterPartitionResponse(error_code=code)


async def _alter(ctx: RequestContext, request: m.AlterPartitionRequest) -> m.AlterPartitionResponse:
    answer = await ctx.broker.controller.alter_partition(request)
    if ctx.api_version < _KNOWS_INELIGIBLE_FROM:
        for partition in (each for topic in answer.topics for each in topic.partitions):
            if partition.error_code == ErrorCode.INELIGIBLE_REPLICA:
                partition.error_code = ErrorCode.OPERATION_NOT_ATTEMPTED
    return answer
