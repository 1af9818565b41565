"""DeleteTopics (key 20), versions 0-6.

1     throttle time
4     flexible
5     error messages
6     topics by id as well as by name
When the response is sent, the topics are gone from the metadata. Their files are removed after `file.delete.delay.ms`.
If a replica cannot be deleted yet (its broker is down, its data directory failed, or the disk reports an error), the
response is the same, as in Apache Kafka: the topic is marked for deletion, clients cannot use it, and its name is not
free. The deletion is tried again when brokers come, when other topics are deleted, and by the next controller.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.broker.handlers.create_topics import code_of
from headrace.broker.request.admission import Demand, Demands, topic_names
from headrace.broker.request.context import Answer, RequestContext
from headrace.errors import ErrorCode, KafkaError
from headrace.in_slices import counted, in_slices
from headrace.metadata.model import NO_UUID
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

API_KEY = ApiKey.DELETE_TOPICS
VERSIONS = range(7)


def _named(ctx: RequestContext, request: m.DeleteTopicsRequest) -> list[str]:
    return [*request.topic_names, *topic_names(ctx, request.topics)]


DEMANDS: Demands = (
    Demand(
        Operation.DELETE,
        ResourceType.TOPIC,
        _named,
    ),
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
            result.error_message = f"No topic has the id {topic_id.hex()}."
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
