"""CreatePartitions (key 37), versions 0-3.

2     flexible
3     a quota may refuse with THROTTLING_QUOTA_EXCEEDED (there are none)
The partitions have leaders that serve when the answer leaves. Groups see them at their next metadata refresh.
"""

from __future__ import annotations

from headrace.broker.context import Answer, RequestContext
from headrace.broker.handlers.create_topics import code_of
from headrace.coordination.growth import MorePartitions
from headrace.errors import ErrorCode, InvalidRequest, KafkaError
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.types import BrokerId

API_KEY = ApiKey.CREATE_PARTITIONS
VERSIONS = range(4)


def handle(ctx: RequestContext, request: m.CreatePartitionsRequest) -> Answer:
    """Adds the partitions, in the order of the connection."""
    return ctx.in_order(_create(ctx, request), lambda error: fail(request, code_of(error)))


def fail(request: m.CreatePartitionsRequest, code: ErrorCode) -> m.CreatePartitionsResponse:
    """The same refusal for every topic."""
    return m.CreatePartitionsResponse(
        results=[
            m.CreatePartitionsResponse.CreatePartitionsTopicResult(name=topic.name, error_code=code)
            for topic in request.topics
        ]
    )


async def _create(ctx: RequestContext, request: m.CreatePartitionsRequest) -> m.CreatePartitionsResponse:
    wishes: dict[str, MorePartitions] = {}
    outcomes: dict[str, KafkaError | None] = {}
    for topic in request.topics:
        if topic.name in wishes:
            outcomes[topic.name] = InvalidRequest("Duplicate topic name.")
        wishes[topic.name] = _wish(topic)
    wanted = [wish for name, wish in wishes.items() if name not in outcomes]
    outcomes |= await ctx.broker.controller.create_partitions(
        wanted, validate_only=request.validate_only, timeout_ms=request.timeout_ms
    )
    return m.CreatePartitionsResponse(results=[_result(name, outcomes[name]) for name in wishes])


def _wish(topic: m.CreatePartitionsRequest.CreatePartitionsTopic) -> MorePartitions:
    assignments = (
        None
        if topic.assignments is None
        else [tuple(BrokerId(broker) for broker in each.broker_ids) for each in topic.assignments]
    )
    return MorePartitions(topic.name, topic.count, assignments)


def _result(name: str, error: KafkaError | None) -> m.CreatePartitionsResponse.CreatePartitionsTopicResult:
    result = m.CreatePartitionsResponse.CreatePartitionsTopicResult(name=name)
    if error is not None:
        result.error_code, result.error_message = error.code, error.message or None
    return result
