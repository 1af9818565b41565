"""FindCoordinator (key 10), versions 0-6.

0     the broker that coordinates a group
1     or a transactional id (`key_type`); error messages
3     flexible
4     many keys at once, an answer for each
5     TRANSACTION_ABORTABLE may be answered; it never is here
6     share groups; INVALID_REQUEST here
The first question makes __consumer_offsets and is answered when it is there, where Apache Kafka has the client ask
again. Left out: to coordinate transactions, which is refused with the code that makes every client stop instead of
asking again. Beside brokers of Apache Kafka, the one that leads an id's partition of __transaction_state is named.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.broker.context import Answer, RequestContext
from headrace.broker.group_shell import OFFSETS_TOPIC
from headrace.errors import ErrorCode
from headrace.groups.partitioning import partition_for
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey

API_KEY = ApiKey.FIND_COORDINATOR
VERSIONS = range(7)

GROUP, TRANSACTION = 0, 1
TRANSACTIONS_TOPIC = "__transaction_state"

_BATCHES_FROM = 4


class Found(NamedTuple):
    """Where a coordinator is, or why that cannot be said."""

    error: ErrorCode
    message: str | None = None
    node_id: int = -1
    host: str = ""
    port: int = -1


def handle(ctx: RequestContext, request: m.FindCoordinatorRequest) -> Answer:
    """The leader of the partition that each key lives in."""
    if ctx.api_version >= _BATCHES_FROM and not request.coordinator_keys:
        return m.FindCoordinatorResponse()
    if request.key_type == GROUP and ctx.broker.metadata.topic(OFFSETS_TOPIC) is None:
        return ctx.in_order(
            _make_topic_then_answer(ctx, request), lambda _: fail(request, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        )
    return _answer(request, {key: _find(ctx, request.key_type, key) for key in _keys(request)})


def fail(request: m.FindCoordinatorRequest, code: ErrorCode) -> m.FindCoordinatorResponse:
    """The same refusal for every key."""
    return _answer(request, {key: Found(code) for key in _keys(request)})


async def _make_topic_then_answer(ctx: RequestContext, request: m.FindCoordinatorRequest) -> m.FindCoordinatorResponse:
    await ctx.broker.groups.ensure_offsets_topic()
    return _answer(request, {key: _find(ctx, request.key_type, key) for key in _keys(request)})


def _keys(request: m.FindCoordinatorRequest) -> list[str]:
    return request.coordinator_keys or [request.key]


def _find(ctx: RequestContext, key_type: int, key: str) -> Found:
    if key_type == GROUP:
        return _leader(ctx, OFFSETS_TOPIC, ctx.broker.groups.partition_for(key))
    if key_type != TRANSACTION:
        return Found(ErrorCode.INVALID_REQUEST, f"There is no coordinator of type {key_type}.")
    topic = ctx.broker.metadata.topic(TRANSACTIONS_TOPIC)
    if topic is not None and topic.partitions:
        found = _leader(ctx, TRANSACTIONS_TOPIC, partition_for(key, len(topic.partitions)))
        if found.node_id != ctx.broker.config.broker_id:
            return found
    return Found(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "Transactions are not served yet.")


def _leader(ctx: RequestContext, topic: str, number: int) -> Found:
    metadata = ctx.broker.metadata
    partition = metadata.partition(topic, number)
    endpoint = None if partition is None else metadata.endpoint(partition.leader, ctx.listener)
    if partition is None or endpoint is None or metadata.doubts.among(lambda: {partition.leader}):
        return Found(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available.")
    return Found(ErrorCode.NONE, None, partition.leader, endpoint.host, endpoint.port)


def _answer(request: m.FindCoordinatorRequest, found: dict[str, Found]) -> m.FindCoordinatorResponse:
    if request.coordinator_keys:
        return m.FindCoordinatorResponse(
            coordinators=[
                m.FindCoordinatorResponse.Coordinator(
                    key=key,
                    node_id=each.node_id,
                    host=each.host,
                    port=each.port,
                    error_code=each.error,
                    error_message=each.message,
                )
                for key, each in found.items()
            ]
        )
    only = found[request.key]
    return m.FindCoordinatorResponse(
        error_code=only.error, error_message=only.message, node_id=only.node_id, host=only.host, port=only.port
    )
