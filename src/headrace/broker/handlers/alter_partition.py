"""AlterPartition (key 56), versions 0-3.

1     whether the leader is still recovering from an unclean election
2     topics by id; INELIGIBLE_REPLICA instead of OPERATION_NOT_ATTEMPTED
3     the ISR with the broker epoch of each replica (KIP-903)
A leader asks the controller to change an ISR. A broker that is not the controller answers NOT_CONTROLLER.
"""

from __future__ import annotations

from headrace.broker.handlers.create_topics import code_of
from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

API_KEY = ApiKey.ALTER_PARTITION
VERSIONS = range(4)
DEMANDS: Demands = (Demand(Operation.CLUSTER_ACTION, ResourceType.CLUSTER),)

_KNOWS_INELIGIBLE_FROM = 2


def handle(ctx: RequestContext, request: m.AlterPartitionRequest) -> Answer:
    """Returns the resulting state or an error for each partition."""
    return ctx.in_order(_alter(ctx, request), lambda error: fail(request, code_of(error)))


def fail(request: m.AlterPartitionRequest, code: ErrorCode) -> m.AlterPartitionResponse:
    """Returns one error for the whole request."""
    return m.AlterPartitionResponse(error_code=code)


async def _alter(ctx: RequestContext, request: m.AlterPartitionRequest) -> m.AlterPartitionResponse:
    answer = await ctx.services.controller.alter_partition(request)
    if ctx.api_version < _KNOWS_INELIGIBLE_FROM:
        for partition in (each for topic in answer.topics for each in topic.partitions):
            if partition.error_code == ErrorCode.INELIGIBLE_REPLICA:
                partition.error_code = ErrorCode.OPERATION_NOT_ATTEMPTED
    return answer
