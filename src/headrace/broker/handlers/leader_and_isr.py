"""LeaderAndIsr (key 4), versions 0-7.

0     partitions in one list, each with its topic's name
1     whether a partition is new
2     partitions grouped by topic; the broker epoch of the receiver
3     adding and removing replicas of a reassignment
4     flexible
5     topic ids; whether the request has all partitions of the broker or a part
6     whether a leader elected out of the ISR is recovering
7     whether the controller is a KRaft controller
The controller sends the request to the replicas of a partition to change its leader or ISR. Apache Kafka
sends versions 0 and 1 while inter.broker.protocol.version is below 2.2 (`broker.cluster.old_control_requests`).
"""

from __future__ import annotations

from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

API_KEY = ApiKey.LEADER_AND_ISR
VERSIONS = range(8)
DEMANDS: Demands = (Demand(Operation.CLUSTER_ACTION, ResourceType.CLUSTER),)

_GROUPED_FROM = 2
_GROUPED_ANSWER_FROM = 5


def handle(ctx: RequestContext, request: m.LeaderAndIsrRequest) -> Answer:
    """Returns an error code for each partition, or one for a request that is out of date."""
    if ctx.api_version < _GROUPED_FROM:
        from headrace.broker.cluster.old_control_requests import group_leader_and_isr

        group_leader_and_isr(request)
    if ctx.api_version < _GROUPED_ANSWER_FROM:
        return ctx.in_order(_handle_flat(ctx, request), lambda _: fail(request, ErrorCode.UNKNOWN_SERVER_ERROR))
    return ctx.in_order(ctx.services.control.handle(request), lambda _: fail(request, ErrorCode.UNKNOWN_SERVER_ERROR))


def fail(request: m.LeaderAndIsrRequest, code: ErrorCode) -> m.LeaderAndIsrResponse:
    """Returns one error for the whole request."""
    return m.LeaderAndIsrResponse(error_code=code)


async def _handle_flat(ctx: RequestContext, request: m.LeaderAndIsrRequest) -> m.LeaderAndIsrResponse:
    """Answers a version without topic ids, whose response has all partitions in one list."""
    answer = await ctx.services.control.handle(request)
    assert isinstance(answer, m.LeaderAndIsrResponse)
    answer.partition_errors = [each for topic in answer.topics for each in topic.partition_errors]
    answer.topics = []
    return answer
