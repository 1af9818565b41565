"""DescribeTransactions (key 65), version 0: the state of transactional ids that this broker coordinates."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.broker.request.admission import Demand, Demands
from headrace.broker.request.context import Answer, RequestContext
from headrace.errors import ErrorCode
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
    """Describes each id once."""
    return m.DescribeTransactionsResponse(
        transaction_states=[_describe(ctx, each) for each in dict.fromkeys(request.transactional_ids)]
    )


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
