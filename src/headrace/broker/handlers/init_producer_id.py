"""InitProducerId (key 22), versions 0-6.

2     flexible
3     the producer's id and epoch, to be bumped after an error
4     PRODUCER_FENCED for an old epoch, which is INVALID_PRODUCER_EPOCH before
5     TRANSACTION_ABORTABLE, which this API never answers
6     two-phase commit (`transaction.two.phase.commit.enable`); keeping a prepared transaction is refused, as by
      Apache Kafka 4.3
An idempotent producer gets an id that no other producer has or had. A transactional producer gets the next epoch of its
transactional id once that is stored, from the coordinator of the id. A transaction that its predecessor left open is
aborted first; meanwhile the answer is CONCURRENT_TRANSACTIONS.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.broker.handlers.create_topics import code_of
from headrace.broker.request.context import LATER, Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands, transaction
from headrace.coordinators.transactions.requests import Initial, InitProducer, TransactionProducer
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import CLUSTER_NAME, Operation, ResourceType
from headrace.types import NO_PRODUCER

API_KEY = ApiKey.INIT_PRODUCER_ID
VERSIONS = range(7)

FENCED_FROM = 4
_NO_EPOCH = -1


def _without_transaction(_ctx: RequestContext, request: m.InitProducerIdRequest) -> Iterable[str]:
    return () if request.transactional_id else (CLUSTER_NAME,)


def _of_two_phases(ctx: RequestContext, request: m.InitProducerIdRequest) -> Iterable[str]:
    return transaction(ctx, request) if request.enable2_pc else ()


DEMANDS: Demands = (
    Demand(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transaction),
    Demand(Operation.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID, _of_two_phases),
    Demand(
        Operation.IDEMPOTENT_WRITE,
        ResourceType.CLUSTER,
        _without_transaction,
        or_on_any=(Operation.WRITE, ResourceType.TOPIC),
    ),
)


def handle(ctx: RequestContext, request: m.InitProducerIdRequest) -> Answer:
    """Returns a producer id and epoch."""
    if (request.producer_id == NO_PRODUCER) != (request.producer_epoch == _NO_EPOCH):
        return fail(request, ErrorCode.INVALID_REQUEST)
    if request.transactional_id is None:
        return ctx.in_order(_allocate(ctx), lambda error: fail(request, code_of(error)))
    if ctx.services.transactions.needs_producer_id(request.transactional_id):
        return ctx.in_order(_with_new_id(ctx, request), lambda error: fail(request, code_of(error)))
    return _init(ctx, request, None)


def fail(_request: m.InitProducerIdRequest, code: ErrorCode) -> m.InitProducerIdResponse:
    """Returns an error, without a producer id."""
    return m.InitProducerIdResponse(error_code=code, producer_id=NO_PRODUCER, producer_epoch=_NO_EPOCH)


async def _allocate(ctx: RequestContext) -> m.InitProducerIdResponse:
    return m.InitProducerIdResponse(producer_id=await ctx.services.producer_ids.next(), producer_epoch=0)


async def _with_new_id(ctx: RequestContext, request: m.InitProducerIdRequest) -> Answer:
    return _init(ctx, request, await ctx.services.transactions.new_producer_id())


def _init(ctx: RequestContext, request: m.InitProducerIdRequest, new_id: int | None) -> Answer:
    expected = None
    if request.producer_id != NO_PRODUCER:
        expected = TransactionProducer(request.producer_id, request.producer_epoch)
    event = InitProducer(
        request.transactional_id or "",
        request.transaction_timeout_ms,
        expected,
        request.enable2_pc,
        request.keep_prepared_txn,
    )

    def reply(initial: Initial) -> None:
        code = initial.error
        if code is ErrorCode.PRODUCER_FENCED and ctx.api_version < FENCED_FROM:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        producer_id, epoch = initial.producer
        ctx.reply(m.InitProducerIdResponse(error_code=code, producer_id=producer_id, producer_epoch=epoch))

    ctx.services.transactions.init_producer(event, new_id, reply)
    return LATER
