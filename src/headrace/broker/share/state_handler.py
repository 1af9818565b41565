"""The part that the handlers of the five requests about share state have in common.

As in Apache Kafka, a request without a group id, or without partitions, gets an empty answer; and the state may be
asked for whatever the level of share.version. Brokers alone ask (CLUSTER_ACTION).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from headrace.broker.handlers.create_topics import code_of
from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.share.state_messages import (
    DELETE,
    INITIALIZE,
    READ,
    SUMMARY,
    WRITE,
    StateApi,
    read_request,
    write_response,
)
from headrace.coordinators.share_state.persister import TopicIdPartition
from headrace.errors import ErrorCode
from headrace.protocol.codec.message import Message

__all__ = ["DELETE", "INITIALIZE", "READ", "SUMMARY", "WRITE", "answer", "fail"]

Ask = Callable[[str, Mapping[TopicIdPartition, Any]], Awaitable[Mapping[TopicIdPartition, Any]]]


def answer(ctx: RequestContext, api: StateApi, request: Any, ask: Ask) -> Answer:
    """Answers with the results of `ask(group id, items)`, when there is one for each partition."""
    return ctx.in_order(_answer(api, request, ask), lambda error: fail(api, request, code_of(error)))


def fail(api: StateApi, request: Any, code: ErrorCode) -> Any:
    """Returns the same error for every partition."""
    return api.response(
        results=[
            api.topic_result(
                topic_id=topic.topic_id,
                partitions=[
                    api.partition_result(partition=each.partition, error_code=code) for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


async def _answer(api: StateApi, request: Any, ask: Ask) -> Message:
    empty: Message = api.response()
    if not request.group_id or any(not topic.partitions for topic in request.topics):
        return empty
    results = await ask(request.group_id, items := await read_request(api, request))
    return await write_response(api, {key: results[key] for key in items})
