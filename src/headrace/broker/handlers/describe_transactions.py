"""DescribeTransactions (key 65), version 0: the state of transactional ids that this broker coordinates."""

from __future__ import annotations

from headrace.broker.handlers.create_topics import code_of
from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands, Entries, RefusalEffect, RefusalPlace, itself
from headrace.errors import ErrorCode
from headrace.in_slices import Turns
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

API_KEY = ApiKey.DESCRIBE_TRANSACTIONS
VERSIONS = range(1)
_DESCRIBED = Demand(Operation.DESCRIBE, ResourceType.TOPIC, by_handler=RefusalEffect.HIDDEN)
DEMANDS: Demands = (
    Demand(
        Operation.DESCRIBE,
        ResourceType.TRANSACTIONAL_ID,
        entries=Entries("transactional_ids", "transaction_states", itself, place=RefusalPlace.ASKED),
    ),
    _DESCRIBED,
)

_COUNT_OF_DECISION = 5
"""A decision that is not kept takes as long as that many partitions."""
_State = m.DescribeTransactionsResponse.TransactionState


def handle(ctx: RequestContext, request: m.DescribeTransactionsRequest) -> Answer:
    """Describes each id once: some ids, or some topics of one, in each turn of the event loop."""
    return ctx.in_order(_describe_in_slices(ctx, request), lambda error: fail(request, code_of(error)))


async def _describe_in_slices(
    ctx: RequestContext, request: m.DescribeTransactionsRequest
) -> m.DescribeTransactionsResponse:
    turns = Turns()
    states = [await _describe(ctx, each, turns) for each in dict.fromkeys(request.transactional_ids)]
    return m.DescribeTransactionsResponse(transaction_states=states)


def fail(request: m.DescribeTransactionsRequest, code: ErrorCode) -> m.DescribeTransactionsResponse:
    """Returns the same error for every id."""
    return m.DescribeTransactionsResponse(
        transaction_states=[_State(error_code=code, transactional_id=each) for each in request.transactional_ids]
    )


async def _describe(ctx: RequestContext, transactional_id: str, turns: Turns) -> _State:
    error, transaction = ctx.services.transactions.describe(transactional_id)
    await turns.count()
    if transaction is None:
        return _State(error_code=error, transactional_id=transactional_id)
    state = _State(
        error_code=error,
        transactional_id=transactional_id,
        transaction_state=transaction.state.label,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.started_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
    )
    topics: dict[str, list[int]] = {}
    for partition in sorted(transaction.partitions):
        topics.setdefault(partition.topic, []).append(partition.partition)
    for name, numbers in topics.items():
        if ctx.services.admission.permits(ctx, _DESCRIBED, name):
            state.topics.append(m.DescribeTransactionsResponse.TopicData(topic=name, partitions=numbers))
        await turns.count(_COUNT_OF_DECISION + len(numbers))
    return state
