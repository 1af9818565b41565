"""ListTransactions (key 66), versions 0-2: the transactional ids that this broker coordinates.

0     filters by state and by producer id; states that are not known are named in the answer
1     a filter by duration: ids whose last transaction began earlier, or that have had none; 0 and less: no filter
2     a filter by a regular expression, which has to match the whole id
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headrace.broker.handlers.create_topics import code_of
from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands, RefusalEffect
from headrace.coordinators.transactions.transaction import BY_LABEL, Transaction
from headrace.errors import ErrorCode, KafkaError
from headrace.in_slices import in_slices
from headrace.limits import INLINE_RESPONSE_ELEMENTS_MAX
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

API_KEY = ApiKey.LIST_TRANSACTIONS
VERSIONS = range(3)
_LISTED = Demand(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, by_handler=RefusalEffect.HIDDEN)
DEMANDS: Demands = (_LISTED,)


def handle(ctx: RequestContext, request: m.ListTransactionsRequest) -> Answer:
    """Lists the ids that pass every filter."""
    try:
        matches = _matcher(request.transactional_id_pattern)
    except KafkaError as error:
        return m.ListTransactionsResponse(error_code=error.code)
    error_code, transactions = ctx.services.transactions.overview(ctx.prefix)
    states = {BY_LABEL[each] for each in request.state_filters if each in BY_LABEL}
    producer_ids = frozenset(request.producer_id_filters)
    oldest_ms = None if request.duration_filter <= 0 else ctx.services.now_ms() - request.duration_filter

    permits = ctx.services.admission.permits

    def is_wanted(each: Transaction) -> bool:
        return (
            (not request.state_filters or each.state in states)
            and (not producer_ids or each.producer_id in producer_ids)
            and (oldest_ms is None or (each.started_ms < oldest_ms))
            and matches(each.transactional_id)
            and permits(ctx, _LISTED, each.transactional_id)
        )

    response = m.ListTransactionsResponse(
        error_code=error_code,
        unknown_state_filters=[each for each in dict.fromkeys(request.state_filters) if each not in BY_LABEL],
    )
    if ctx.services.admission.has_rules or len(transactions) > INLINE_RESPONSE_ELEMENTS_MAX:
        listing = _list_in_slices(response, transactions, is_wanted)
        return ctx.in_order(listing, lambda error: m.ListTransactionsResponse(error_code=code_of(error)))
    response.transaction_states = [_listed(each) for each in transactions if is_wanted(each)]
    return response


async def _list_in_slices(
    response: m.ListTransactionsResponse, transactions: Iterable[Transaction], is_wanted: Callable[[Transaction], bool]
) -> m.ListTransactionsResponse:
    response.transaction_states = [_listed(each) async for each in in_slices(transactions) if is_wanted(each)]
    return response


def _listed(transaction: Transaction) -> m.ListTransactionsResponse.TransactionState:
    return m.ListTransactionsResponse.TransactionState(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        transaction_state=transaction.state.label,
    )


def _matcher(pattern: str | None) -> Callable[[str], bool]:
    """Whether an id matches, as a function. Raises INVALID_REGULAR_EXPRESSION.

    RE2 matches in linear time, unlike Python's `re`, and is what Apache Kafka uses.
    """
    if not pattern:
        return lambda _: True
    import re2  # a library of its own, which few requests need

    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        raise KafkaError(
            f"{pattern!r} is not a regular expression: {error}", ErrorCode.INVALID_REGULAR_EXPRESSION
        ) from None
    return lambda text: compiled.fullmatch(text) is not None
