"""AllocateProducerIds (key 67), version 0.

A broker of Apache Kafka requests a block of producer ids from the controller. headrace brokers take their blocks from
the metadata store. A broker that is not the controller answers NOT_CONTROLLER.
"""

from __future__ import annotations

from headrace.broker.handlers.create_topics import code_of
from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType
from headrace.types import BrokerId

API_KEY = ApiKey.ALLOCATE_PRODUCER_IDS
VERSIONS = range(1)
DEMANDS: Demands = (Demand(Operation.CLUSTER_ACTION, ResourceType.CLUSTER),)


def handle(ctx: RequestContext, request: m.AllocateProducerIdsRequest) -> Answer:
    """Returns the first id of a new block and the number of its ids."""
    return ctx.in_order(_allocate(ctx, request), lambda error: fail(request, code_of(error)))


def fail(request: m.AllocateProducerIdsRequest, code: ErrorCode) -> m.AllocateProducerIdsResponse:
    """Returns a response with an error."""
    return m.AllocateProducerIdsResponse(error_code=code)


async def _allocate(ctx: RequestContext, request: m.AllocateProducerIdsRequest) -> m.AllocateProducerIdsResponse:
    block = await ctx.services.controller.allocate_producer_ids(BrokerId(request.broker_id), request.broker_epoch)
    return m.AllocateProducerIdsResponse(producer_id_start=block.first, producer_id_len=block.last - block.first + 1)
