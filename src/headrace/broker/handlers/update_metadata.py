"""UpdateMetadata (key 6), versions 0-8.

0     a broker's host and port; partitions in one list, each with its topic's name
1     a broker's endpoints by security protocol
2     a broker's rack
3     names of listeners
4     offline replicas
5     partitions grouped by topic; the broker epoch of the receiver
6     flexible
7     topic ids
8     whether the controller is a KRaft controller
The controller sends the cluster's metadata to every broker; the brokers answer clients from it. Apache Kafka
sends versions 0 to 4 while inter.broker.protocol.version is below 2.2 (`broker.cluster.old_control_requests`).
"""

from __future__ import annotations

from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

API_KEY = ApiKey.UPDATE_METADATA
VERSIONS = range(9)
DEMANDS: Demands = (Demand(Operation.CLUSTER_ACTION, ResourceType.CLUSTER),)

_GROUPED_FROM = 5


def handle(ctx: RequestContext, request: m.UpdateMetadataRequest) -> Answer:
    """Applies the metadata; returns an error for a request that is out of date."""
    if ctx.api_version < _GROUPED_FROM:
        from headrace.broker.cluster.old_control_requests import group_update_metadata

        group_update_metadata(request, ctx.api_version)
    return ctx.in_order(ctx.services.control.handle(request), lambda _: fail(request, ErrorCode.UNKNOWN_SERVER_ERROR))


def fail(request: m.UpdateMetadataRequest, code: ErrorCode) -> m.UpdateMetadataResponse:
    """Returns a response with an error."""
    return m.UpdateMetadataResponse(error_code=code)
