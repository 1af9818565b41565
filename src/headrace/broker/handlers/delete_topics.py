"""DeleteTopics (key 20), versions 0-6.

1     throttle time
4     flexible
5     error messages; THROTTLING_QUOTA_EXCEEDED if the quota of controller mutations is exceeded
6     topics by id as well as by name
When the response is sent, the topics are gone from the metadata. Their files are removed after `file.delete.delay.ms`.
If a replica cannot be deleted yet (its broker is down, its data directory failed, or the disk reports an error), the
response is the same, as in Apache Kafka: the topic is marked for deletion, clients cannot use it, and its name is not
free. The deletion is tried again when brokers come, when other topics are deleted, and by the next controller.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.broker.handlers.create_topics import code_of, quota_exceeded
from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands, Entries, RefusalEffect, itself, topic_by_id
from headrace.broker.request.forwarded import carried_out
from headrace.errors import ErrorCode, KafkaError
from headrace.in_slices import counted, in_slices
from headrace.metadata.model import NO_UUID
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

API_KEY = ApiKey.DELETE_TOPICS
VERSIONS = range(7)
_STRICT_FROM = 5  # the version that has THROTTLING_QUOTA_EXCEEDED


def _refuse(ctx: RequestContext, request: m.DeleteTopicsRequest, code: ErrorCode) -> m.DeleteTopicsResponse:
    """The same error for every topic. One that is given by its id has a name only for a client that may see it."""
    response = fail(request, code)
    for each in response.responses:
        if each.name is None:
            name = ctx.services.metadata.snapshot.names_by_id.get(each.topic_id)
            if name is not None and ctx.services.admission.permits(ctx, _DESCRIBED, name):
                each.name = name
    return response


_DELETED = Demand(Operation.DELETE, ResourceType.TOPIC)
_DESCRIBED = Demand(Operation.DESCRIBE, ResourceType.TOPIC, by_handler=RefusalEffect.HIDDEN)
DEMANDS: Demands = (
    _DELETED._replace(entries=Entries("topic_names", "responses", itself)),
    _DELETED._replace(entries=Entries("topics", "responses", topic_by_id, _refuse)),
    _DESCRIBED,
)


def handle(ctx: RequestContext, request: m.DeleteTopicsRequest) -> Answer:
    """Deletes the topics; later requests of the connection wait."""
    return ctx.in_order(_delete(ctx, request), lambda error: fail(request, code_of(error)))


def fail(request: m.DeleteTopicsRequest, code: ErrorCode) -> m.DeleteTopicsResponse:
    """Returns the same error for every topic."""
    result = m.DeleteTopicsResponse.DeletableTopicResult
    by_name = [result(name=name, error_code=code) for name in request.topic_names]
    by_id = [result(name=each.name, topic_id=each.topic_id, error_code=code) for each in request.topics]
    return m.DeleteTopicsResponse(responses=by_name + by_id)


async def _delete(ctx: RequestContext, request: m.DeleteTopicsRequest) -> m.DeleteTopicsResponse:
    with carried_out(ctx):
        return await _delete_all(ctx, request)


async def _delete_all(ctx: RequestContext, request: m.DeleteTopicsRequest) -> m.DeleteTopicsResponse:
    results = []
    wanted: dict[str, m.DeleteTopicsResponse.DeletableTopicResult] = {}
    doubled = set()
    times = await counted(_requested(ctx, request))
    async for topic in in_slices(times):
        name, topic_id = topic
        result = m.DeleteTopicsResponse.DeletableTopicResult(name=name, topic_id=topic_id)
        results.append(result)
        if (name is None) == (topic_id == NO_UUID):
            result.error_code = ErrorCode.INVALID_REQUEST
            result.error_message = "A topic is named either by its name or by its id."
            continue
        if name is None:
            name = ctx.services.metadata.snapshot.names_by_id.get(topic_id)
        if times[topic] > 1:
            result.error_code, result.error_message = ErrorCode.INVALID_REQUEST, "Duplicate topic name or id."
        elif name is None:
            result.error_code = ErrorCode.UNKNOWN_TOPIC_ID
            result.error_message = "No topic has this id."
        elif name in wanted:  # by its name and by its id: one answer, and nothing is deleted
            results.pop()
            doubled.add(name)
        else:
            result.name = name
            known = ctx.services.metadata.topics.get(name)
            result.topic_id = NO_UUID if known is None else known.id
            wanted[name] = result
    async for name in in_slices(doubled):
        result = wanted.pop(name)
        result.error_code, result.error_message = ErrorCode.INVALID_REQUEST, f"Topic {name} is named by name and by id."
    throttling = ctx.services.throttling
    quota = throttling.mutation_quota(ctx, strict_from=_STRICT_FROM)
    if quota is not None:
        async for name in in_slices(list(wanted)):
            known = ctx.services.metadata.topics.get(name)
            if known is not None and not quota.allows(len(known.partitions), throttling.now()):
                error, result = quota_exceeded(), wanted.pop(name)
                result.error_code, result.error_message = error.code, error.message
    outcomes = await ctx.services.controller.delete_topics(list(wanted), timeout_ms=request.timeout_ms)
    async for name, outcome in in_slices(outcomes.items()):
        if isinstance(outcome, KafkaError):
            wanted[name].error_code = outcome.code
            wanted[name].error_message = outcome.message or None
    return m.DeleteTopicsResponse(responses=results)


def _requested(ctx: RequestContext, request: m.DeleteTopicsRequest) -> Iterator[tuple[str | None, bytes]]:
    if ctx.api_version >= 6:
        return ((each.name, each.topic_id) for each in request.topics)
    return ((name, NO_UUID) for name in request.topic_names)
