"""EndTxn (key 26), versions 0-5.

2     PRODUCER_FENCED for an old epoch, which is INVALID_PRODUCER_EPOCH before
3     flexible
4     TRANSACTION_ABORTABLE, which this API never answers
5     transaction.version 2: the answer has the producer id and epoch of the next transaction; a commit after the
      transaction timed out gets PRODUCER_FENCED, as before this version (Apache Kafka up to 4.3: INVALID_TXN_STATE)
The answer is sent when the outcome is stored, before the markers are written.
"""

from __future__ import annotations

from headrace.broker.handlers.create_topics import code_of
from headrace.broker.request.context import LATER, Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands, transaction
from headrace.coordinators.transactions.requests import Ended, TransactionProducer
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

API_KEY = ApiKey.END_TXN
VERSIONS = range(6)
DEMANDS: Demands = (Demand(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transaction),)

FENCED_FROM, EPOCH_BUMPED_FROM = 2, 5


def handle(ctx: RequestContext, request: m.EndTxnRequest) -> Answer:
    """Commits or aborts."""
    if ctx.api_version >= EPOCH_BUMPED_FROM and ctx.services.transactions.needs_producer_id(request.transactional_id):
        return ctx.in_order(_with_new_id(ctx, request), lambda error: m.EndTxnResponse(error_code=code_of(error)))
    return _end(ctx, request, None)


async def _with_new_id(ctx: RequestContext, request: m.EndTxnRequest) -> Answer:
    return _end(ctx, request, await ctx.services.transactions.new_producer_id())


def _end(ctx: RequestContext, request: m.EndTxnRequest, new_id: int | None) -> Answer:
    def reply(ended: Ended) -> None:
        code = ended.error
        if code is ErrorCode.PRODUCER_FENCED and ctx.api_version < FENCED_FROM:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        ctx.reply(m.EndTxnResponse(error_code=code, producer_id=ended.producer_id, producer_epoch=ended.producer_epoch))

    ctx.services.transactions.end(
        request.transactional_id,
        TransactionProducer(request.producer_id, request.producer_epoch),
        request.committed,
        2 if ctx.api_version >= EPOCH_BUMPED_FROM else 0,
        new_id,
        reply,
    )
    return LATER
