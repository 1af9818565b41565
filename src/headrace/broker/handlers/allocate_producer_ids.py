"""AllocateProducerIds (key 67), version 0.

From a broker of Apache Kafka, to the controller: a block of producer ids that it may hand out. Our brokers take theirs
from the tree. A broker that is not the controller answers NOT_CONTROLLER.
"""

from __future__ import annotations

from headrace.broker.cluster_action import must_be_a_broker
from headrace.broker.context import Answer, RequestContext
from headrace.broker.handlers.create_topics import code_of
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.types import BrokerId

API_KEY = ApiKey.ALLOCATE_PRODUCER_IDS
VERSIONS = range(1)


def handle(ctx: RequestContext, request: m.AllocateProducerIdsRequest) -> Answer:
    """The first id of the block, and how many they are."""
    must_be_a_broker(ctx)
    return ctx.in_order(_allocate(ctx, request), lambda error: fail(request, code_of(error)))


def fail(request: m.AllocateProducerIdsRequest, code: ErrorCode) -> m.AllocateProducerIdsResponse:
    """A refusal."""
    return m.AllocateProducerIdsResponse(error_code=code)


async def _allocate(ctx: RequestContext, request: m.AllocateProducerIdsRequest) -> m.AllocateProducerIdsResponse:
    block = await ctx.broker.controller.allocate_producer_ids(BrokerId(request.broker_id), request.broker_epoch)
    return m.AllocateProducerIdsResponse(producer_id_start=block.first, producer_id_len=block.last - block.first + 1)
