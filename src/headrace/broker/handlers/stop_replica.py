"""StopReplica (key 5), versions 0-4.

0     partitions in one list, each with its topic's name
1     partitions grouped by topic; the broker epoch of the receiver
2     flexible
3     a leader epoch for each partition, and whether that partition is deleted (before: one flag for the whole request)
4     whether the controller is a KRaft controller
The controller sends the request to brokers that must drop replicas. Apache Kafka sends version 0 while
inter.broker.protocol.version is below 2.2.
"""

from __future__ import annotations

from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

API_KEY = ApiKey.STOP_REPLICA
VERSIONS = range(5)
DEMANDS: Demands = (Demand(Operation.CLUSTER_ACTION, ResourceType.CLUSTER),)

_EACH_FROM = 3


def handle(ctx: RequestContext, request: m.StopReplicaRequest) -> Answer:
    """Returns an error code for each partition, or one for a request that is out of date."""
    if ctx.api_version < _EACH_FROM:
        from headrace.broker.cluster.old_control_requests import group_stop_replica

        group_stop_replica(request, ctx.api_version)
    return ctx.in_order(ctx.services.control.handle(request), lambda _: fail(request, ErrorCode.UNKNOWN_SERVER_ERROR))


def fail(request: m.StopReplicaRequest, code: ErrorCode) -> m.StopReplicaResponse:
    """Returns one error for the whole request."""
    return m.StopReplicaResponse(error_code=code)
