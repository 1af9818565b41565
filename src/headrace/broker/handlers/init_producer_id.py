"""InitProducerId (key 22), versions 0-5.

2     flexible
3     the producer's id and epoch, to be bumped after an error
4     PRODUCER_FENCED for an old epoch
5     for transactions of KIP-890; nothing new without one
An idempotent producer gets an id that no other has or had. Left out: transactional ids, which are refused with
TRANSACTIONAL_ID_AUTHORIZATION_FAILED, the one code that makes every client stop instead of asking again.
"""

from __future__ import annotations

from headrace.broker.context import Answer, RequestContext
from headrace.broker.handlers.create_topics import code_of
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey

API_KEY = ApiKey.INIT_PRODUCER_ID
VERSIONS = range(6)


def handle(ctx: RequestContext, request: m.InitProducerIdRequest) -> Answer:
    """A new producer id with epoch 0."""
    if request.transactional_id is not None:
        code = (
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED if request.transactional_id else ErrorCode.INVALID_REQUEST
        )
        return m.InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    return ctx.in_order(_allocate(ctx), lambda error: m.InitProducerIdResponse(error_code=code_of(error)))


async def _allocate(ctx: RequestContext) -> m.InitProducerIdResponse:
    return m.InitProducerIdResponse(producer_id=await ctx.broker.producer_ids.next(), producer_epoch=0)
