"""CreatePartitions (key 37), versions 0-3.

2     flexible
3     THROTTLING_QUOTA_EXCEEDED if the quota of controller mutations is exceeded; before, the client has to wait
The new partitions have leaders that serve them when the response is sent. Groups see the partitions at their next
metadata refresh.
"""

from __future__ import annotations

from headrace.broker.handlers.create_topics import code_of, quota_exceeded
from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands, Entries, RefusalPlace, its_topic
from headrace.broker.request.forwarded import carried_out
from headrace.controller.decisions.add_partitions import NewPartitions
from headrace.errors import ErrorCode, InvalidRequest, KafkaError
from headrace.in_slices import in_slices
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType
from headrace.types import BrokerId

API_KEY = ApiKey.CREATE_PARTITIONS
VERSIONS = range(4)
DEMANDS: Demands = (
    Demand(
        Operation.ALTER, ResourceType.TOPIC, entries=Entries("topics", "results", its_topic, place=RefusalPlace.FIRST)
    ),
)

_STRICT_FROM = 3  # the version that has THROTTLING_QUOTA_EXCEEDED


def handle(ctx: RequestContext, request: m.CreatePartitionsRequest) -> Answer:
    """Adds the partitions; later requests of the connection wait."""
    return ctx.in_order(_create(ctx, request), lambda error: fail(request, code_of(error)))


def fail(request: m.CreatePartitionsRequest, code: ErrorCode) -> m.CreatePartitionsResponse:
    """Returns the same error for every topic."""
    return m.CreatePartitionsResponse(
        results=[
            m.CreatePartitionsResponse.CreatePartitionsTopicResult(name=topic.name, error_code=code)
            for topic in request.topics
        ]
    )


async def _create(ctx: RequestContext, request: m.CreatePartitionsRequest) -> m.CreatePartitionsResponse:
    with carried_out(ctx):
        return await _create_all(ctx, request)


async def _create_all(ctx: RequestContext, request: m.CreatePartitionsRequest) -> m.CreatePartitionsResponse:
    requested: dict[str, NewPartitions] = {}
    outcomes: dict[str, KafkaError | None] = {}
    async for topic in in_slices(request.topics):
        if topic.name in requested:
            outcomes[topic.name] = InvalidRequest("Duplicate topic name.")
        requested[topic.name] = _new_partitions(topic)
    wanted = [new_partitions for name, new_partitions in requested.items() if name not in outcomes]
    if not request.validate_only:
        over_quota = await _over_quota(ctx, wanted, request.timeout_ms)
        outcomes |= over_quota
        wanted = [each for each in wanted if each.name not in over_quota]
    outcomes |= await ctx.services.controller.create_partitions(
        wanted, validate_only=request.validate_only, timeout_ms=request.timeout_ms
    )
    return m.CreatePartitionsResponse(results=[_result(name, outcomes[name]) async for name in in_slices(requested)])


async def _over_quota(ctx: RequestContext, wanted: list[NewPartitions], timeout_ms: int) -> dict[str, KafkaError]:
    """The topics that the quota of controller mutations refuses. It counts the added partitions of valid requests."""
    throttling = ctx.services.throttling
    quota = throttling.mutation_quota(ctx, strict_from=_STRICT_FROM)
    if quota is None:
        return {}
    would_make = await ctx.services.controller.create_partitions(wanted, validate_only=True, timeout_ms=timeout_ms)
    topics = ctx.services.metadata.topics
    refused: dict[str, KafkaError] = {}
    async for each in in_slices(wanted):
        known = topics.get(each.name)
        if would_make[each.name] is None and known is not None:
            added = max(0, each.num_partitions - len(known.partitions))
            if not quota.allows(added, throttling.now()):
                refused[each.name] = quota_exceeded()
    return refused


def _new_partitions(topic: m.CreatePartitionsRequest.CreatePartitionsTopic) -> NewPartitions:
    assignments = (
        None
        if topic.assignments is None
        else [tuple(BrokerId(broker) for broker in each.broker_ids) for each in topic.assignments]
    )
    return NewPartitions(topic.name, topic.count, assignments)


def _result(name: str, error: KafkaError | None) -> m.CreatePartitionsResponse.CreatePartitionsTopicResult:
    result = m.CreatePartitionsResponse.CreatePartitionsTopicResult(name=name)
    if error is not None:
        result.error_code, result.error_message = error.code, error.message or None
    return result
