"""AddOffsetsToTxn (key 25), versions 0-4.

2     PRODUCER_FENCED for an old epoch, which is INVALID_PRODUCER_EPOCH before
3     flexible
4     TRANSACTION_ABORTABLE, which this API never answers
Adds the group's partition of `__consumer_offsets` to the transaction, before TxnOffsetCommit. Clients of
transaction.version 2 do not send it: there TxnOffsetCommit adds the partition.
"""

from __future__ import annotations

from headrace.broker.request.context import LATER, Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands, group, transaction
from headrace.coordinators.transactions.requests import TransactionProducer
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType
from headrace.types import TopicPartition

API_KEY = ApiKey.ADD_OFFSETS_TO_TXN
VERSIONS = range(5)
DEMANDS: Demands = (
    Demand(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transaction),
    Demand(Operation.READ, ResourceType.GROUP, group),
)

FENCED_FROM = 2


def handle(ctx: RequestContext, request: m.AddOffsetsToTxnRequest) -> Answer:
    """Adds the group's partition."""

    def reply(code: ErrorCode) -> None:
        if code is ErrorCode.PRODUCER_FENCED and ctx.api_version < FENCED_FROM:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        ctx.reply(m.AddOffsetsToTxnResponse(error_code=code))

    offsets = ctx.services.groups.topic
    ctx.services.transactions.add_partitions(
        request.transactional_id,
        TransactionProducer(request.producer_id, request.producer_epoch),
        [TopicPartition(offsets.name, offsets.partition_for(request.group_id))],
        0,
        reply,
    )
    return LATER
