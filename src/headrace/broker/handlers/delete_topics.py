"""DeleteTopics (key 20), versions 0-6.

1     throttle time
4     flexible
5     error messages
6     topics by id as well as by name
The topics are gone from metadata when the answer leaves; their files go after `file.delete.delay.ms`. Where a replica
cannot be deleted yet (its broker is down, its data directory failed, the disk refuses) the answer is the same, as
Apache Kafka's is: the topic is marked for deletion, nobody can use it, its name is not free, and the deletion is tried
again when brokers come, when other topics are deleted, and by the next controller.
"""

from __future__ import annotations

from headrace.broker.context import Answer, RequestContext
from headrace.broker.handlers.create_topics import code_of
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.types import TopicPartition

API_KEY = ApiKey.DELETE_TOPICS
VERSIONS = range(7)


def handle(ctx: RequestContext, request: m.DeleteTopicsRequest) -> Answer:
    """Deletes the topics, in the order of the connection."""
    return ctx.in_order(_delete(ctx, request), lambda error: _fail_all(ctx, request, code_of(error)))


async def _delete(ctx: RequestContext, request: m.DeleteTopicsRequest) -> m.DeleteTopicsResponse:
    results = []
    wanted: dict[str, m.DeleteTopicsResponse.DeletableTopicResult] = {}
    for name, topic_id in _asked_for(ctx, request):
        if name is None:
            found = ctx.broker.metadata.topic_by_id(topic_id)
            if found is None:
                results.append(
                    m.DeleteTopicsResponse.DeletableTopicResult(
                        name=None, topic_id=topic_id, error_code=ErrorCode.UNKNOWN_TOPIC_ID
                    )
                )
                continue
            name = found.name
        wanted[name] = m.DeleteTopicsResponse.DeletableTopicResult(name=name, topic_id=topic_id)
        results.append(wanted[name])
    partitions = {name: _partitions(ctx, name) for name in wanted}
    outcomes = await ctx.broker.controller.delete_topics(list(wanted), timeout_ms=request.timeout_ms)
    for name, outcome in outcomes.items():
        if isinstance(outcome, KafkaError):
            wanted[name].error_code = outcome.code
            wanted[name].error_message = outcome.message or None
        else:
            ctx.broker.groups.forget_partitions(partitions[name])
    return m.DeleteTopicsResponse(responses=results)


def _partitions(ctx: RequestContext, name: str) -> list[TopicPartition]:
    topic = ctx.broker.metadata.topic(name)
    return [] if topic is None else [TopicPartition(name, number) for number in topic.partitions]


def _asked_for(ctx: RequestContext, request: m.DeleteTopicsRequest) -> list[tuple[str | None, bytes]]:
    if ctx.api_version >= 6:
        return [(each.name, each.topic_id) for each in request.topics]
    return [(name, bytes(16)) for name in request.topic_names]


def _fail_all(ctx: RequestContext, request: m.DeleteTopicsRequest, code: ErrorCode) -> m.DeleteTopicsResponse:
    return m.DeleteTopicsResponse(
        responses=[
            m.DeleteTopicsResponse.DeletableTopicResult(name=name, topic_id=topic_id, error_code=code)
            for name, topic_id in _asked_for(ctx, request)
        ]
    )
