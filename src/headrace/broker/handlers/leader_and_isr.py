"""LeaderAndIsr (key 4), versions 2-7.

2     topics grouped; the broker epoch that it is meant for
3     replicas that come and go in a reassignment
4     flexible
5     topic ids; whether this is all that the broker has, or a part
6     whether a leader elected out of the ISR is recovering
7     from a KRaft controller, or not
From the controller alone, to the replicas of a partition: who leads it. Left out: versions 0 and 1, of Apache Kafka
before 2.2.
"""

from __future__ import annotations

from headrace.broker.cluster_action import must_be_a_broker
from headrace.broker.context import Answer, RequestContext
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey

API_KEY = ApiKey.LEADER_AND_ISR
VERSIONS = range(2, 8)

_GROUPED_ANSWER_FROM = 5


def handle(ctx: RequestContext, request: m.LeaderAndIsrRequest) -> Answer:
    """An error for each partition; one for all when it is out of date."""
    must_be_a_broker(ctx)
    if ctx.api_version < _GROUPED_ANSWER_FROM:
        return ctx.in_order(_handle_flat(ctx, request), lambda _: fail(request, ErrorCode.UNKNOWN_SERVER_ERROR))
    return ctx.in_order(ctx.broker.control.handle(request), lambda _: fail(request, ErrorCode.UNKNOWN_SERVER_ERROR))


def fail(request: m.LeaderAndIsrRequest, code: ErrorCode) -> m.LeaderAndIsrResponse:
    """One refusal for all."""
    return m.LeaderAndIsrResponse(error_code=code)


async def _handle_flat(ctx: RequestContext, request: m.LeaderAndIsrRequest) -> m.LeaderAndIsrResponse:
    """Before topic ids, partitions are answered in one list."""
    answer = await ctx.broker.control.handle(request)
    assert isinstance(answer, m.LeaderAndIsrResponse)
    answer.partition_errors = [each for topic in answer.topics for each in topic.partition_errors]
    answer.topics = []
    return answer
