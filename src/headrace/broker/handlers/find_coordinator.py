"""FindCoordinator (key 10), versions 0-6.

0     the broker that coordinates a group
1     or a transactional id (`key_type`); error messages
3     flexible
4     many keys at once, a result for each
5     the error TRANSACTION_ABORTABLE, which this API never answers
6     or a share partition's state, by `group:topic id:partition`, for other brokers
The first request creates the internal topic of its type and is answered when the topic exists; Apache Kafka makes the
client ask again.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.broker.coordinator_host.internal_topic import InternalTopic
from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands, Entries, RefusalPlace, itself
from headrace.broker.request.refusal_answers import TEXTS
from headrace.broker.request.sliced_requests import answer_parts, in_parts
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.protocol.codec.message import Message
from headrace.security.access import CLUSTER_NAME, Operation, ResourceType

API_KEY = ApiKey.FIND_COORDINATOR
VERSIONS = range(7)
GROUP, TRANSACTION, SHARE = 0, 1, 2


def _group(ctx: RequestContext, request: m.FindCoordinatorRequest) -> list[str]:
    return [request.key] if request.key_type == GROUP and ctx.api_version < _BATCHES_FROM else []


def _transaction(ctx: RequestContext, request: m.FindCoordinatorRequest) -> list[str]:
    return [request.key] if request.key_type == TRANSACTION and ctx.api_version < _BATCHES_FROM else []


def _share_partitions(_ctx: RequestContext, request: m.FindCoordinatorRequest) -> list[str]:
    return [CLUSTER_NAME] if request.key_type == SHARE else []


def _many(key_type: int) -> Entries:
    """The keys of this type, from version 4 on."""
    return Entries(*_KEYS, itself, place=RefusalPlace.ASKED, concerns=lambda request: request.key_type == key_type)


_KEYS = "coordinator_keys", "coordinators"
DEMANDS: Demands = (
    Demand(Operation.DESCRIBE, ResourceType.GROUP, _group, entries=_many(GROUP)),
    Demand(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, _transaction, entries=_many(TRANSACTION)),
    Demand(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, _share_partitions, needs_rules=True),
)

_BATCHES_FROM = 4
_SHARE_FROM = 6


class Found(NamedTuple):
    """A coordinator's address, or an error."""

    error: ErrorCode
    message: str | None = None
    node_id: int = -1
    host: str = ""
    port: int = -1


_ARRAYS = ("coordinator_keys",), ("coordinators",)


def handle(ctx: RequestContext, request: m.FindCoordinatorRequest) -> Answer:
    """Returns the coordinator of each key: the leader of the key's partition."""
    if ctx.api_version >= _BATCHES_FROM and not request.coordinator_keys:
        return m.FindCoordinatorResponse()
    request.coordinator_keys = list(dict.fromkeys(request.coordinator_keys))
    topic = _topic(ctx, request.key_type)
    if topic is not None and not topic.exists:
        return ctx.in_order(
            _make_then_answer(ctx, request, topic), lambda _: fail(request, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        )
    return in_parts(ctx, request, *_ARRAYS, lambda part: _answer_all(ctx, part), fail)


def fail(request: m.FindCoordinatorRequest, code: ErrorCode) -> m.FindCoordinatorResponse:
    """Returns the same error for every key."""
    return _answer(request, {key: Found(code, "") for key in _keys(request)})


async def _make_then_answer(ctx: RequestContext, request: m.FindCoordinatorRequest, topic: InternalTopic) -> Message:
    await topic.ensure()
    return await answer_parts(request, *_ARRAYS, lambda part: _answer_all(ctx, part))


def _answer_all(ctx: RequestContext, request: m.FindCoordinatorRequest) -> m.FindCoordinatorResponse:
    return _answer(request, {key: _find(ctx, request.key_type, key) for key in _keys(request)})


def _keys(request: m.FindCoordinatorRequest) -> list[str]:
    return request.coordinator_keys or [request.key]


def _topic(ctx: RequestContext, key_type: int) -> InternalTopic | None:
    """Returns the internal topic for keys of this type; None if headrace does not coordinate this type."""
    if key_type == GROUP:
        return ctx.services.groups.topic
    if key_type == SHARE and ctx.api_version >= _SHARE_FROM:
        return ctx.services.share_state.topic
    return ctx.services.transactions.topic if key_type == TRANSACTION else None


def _find(ctx: RequestContext, key_type: int, key: str) -> Found:
    topic = _topic(ctx, key_type)
    if topic is None:
        return Found(ErrorCode.INVALID_REQUEST, f"There is no coordinator of type {key_type}.")
    if key_type == SHARE:
        from headrace.coordinators.share_state.keys import key_text, read_key_text

        try:
            key = key_text(read_key_text(key))
        except ValueError as error:
            return Found(ErrorCode.INVALID_REQUEST, f"The share coordinator key is invalid: {error}.")
    return _leader(ctx, topic.name, topic.partition_for(key))


def _leader(ctx: RequestContext, topic: str, number: int) -> Found:
    metadata = ctx.services.metadata
    partition = metadata.partition(topic, number)
    endpoint = None if partition is None else metadata.endpoint(partition.leader, ctx.listener)
    if partition is None or endpoint is None or metadata.suspected_brokers.among(lambda: {partition.leader}):
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
    message = only.message or TEXTS.get(only.error) or only.error.name  # "NONE", as Apache Kafka says in these versions
    return m.FindCoordinatorResponse(
        error_code=only.error, error_message=message, node_id=only.node_id, host=only.host, port=only.port
    )
