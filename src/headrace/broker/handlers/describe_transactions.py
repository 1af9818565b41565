"""DescribeTransactions (key 65), version 0: the state of transactional ids that this broker coordinates."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.broker.handlers.create_topics import code_of
from headrace.broker.request.admission import Demand, Demands
from headrace.broker.request.context import Answer, RequestContext
from headrace.errors import ErrorCode
from headrace.in_slices import Turns
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

API_KEY = ApiKey.DESCRIBE_TRANSACTIONS
VERSIONS = range(1)


def _transactional_ids(_ctx: RequestContext, request: m.DescribeTransactionsRequest) -> Iterable[str]:
    return request.transactional_ids


DEMANDS: Demands = (Demand(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, _transactional_ids),)

_State = m.DescribeTransactionsResponse.TransactionState


def handle(ctx: RequestContext, request: m.DescribeTransactionsRequest) -> Answer:
    """Describes each id once: some ids, or one with thousands of partitions, in each turn of the event loop."""
    return ctx.in_order(_describe_in_slices(ctx, request), lambda error: fail(request, code_of(error)))


async def _describe_in_slices(
    ctx: RequestContext, request: m.DescribeTransactionsRequest
) -> m.DescribeTransactionsResponse:
    turns, states = Turns(), []
    for each in dict.fromkeys(request.transactional_ids):
        state = _describe(ctx, each)
        states.append(state)
        await turns.count(1 + sum(len(topic.partitions) for topic in state.topics))
    return m.DescribeTransactionsResponse(transaction_states=states)


def fail(request: m.DescribeTransactionsRequest, code: ErrorCode) -> m.DescribeTransactionsResponse:
    """Returns the same error for every id."""
    return m.DescribeTransactionsResponse(
        transaction_states=[_State(error_code=code, transactional_id=each) for each in request.transactional_ids]
    )


def _describe(ctx: RequestContext, transactional_id: str) -> _State:
    error, transaction = ctx.services.transactions.describe(transactional_id)
    if transaction is None:
        return _State(error_code=error, transactional_id=transactional_id)
    topics: dict[str, list[int]] = {}
    for partition in sorted(transaction.partitions):
        topics.setdefault(partition.topic, []).append(partition.partition)
    return _State(
        error_code=error,
        transactional_id=transactional_id,
        transaction_state=transaction.state.label,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.started_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[m.DescribeTransactionsResponse.TopicData(topic=name, partitions=each) for name, each in topics.items()],
    )
