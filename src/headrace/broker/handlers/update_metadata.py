"""UpdateMetadata (key 6), versions 5-8.

5     partitions grouped by topic; the broker epoch of the receiver
6     flexible
7     topic ids
8     whether the controller is a KRaft controller
The controller sends the cluster's metadata to every broker; the brokers answer clients from it. Left out: versions 0 to
4, which only Apache Kafka before 2.2 sends.
"""

from __future__ import annotations

from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

API_KEY = ApiKey.UPDATE_METADATA
VERSIONS = range(5, 9)
DEMANDS: Demands = (Demand(Operation.CLUSTER_ACTION, ResourceType.CLUSTER),)


def handle(ctx: RequestContext, request: m.UpdateMetadataRequest) -> Answer:
    """Applies the metadata; returns an error for a request that is out of date."""
    return ctx.in_order(ctx.services.control.handle(request), lambda _: fail(request, ErrorCode.UNKNOWN_SERVER_ERROR))


def fail(request: m.UpdateMetadataRequest, code: ErrorCode) -> m.UpdateMetadataResponse:
    """Returns a response with an error."""
    return m.UpdateMetadataResponse(error_code=code)
