"""StopReplica (key 5), versions 1-4.

1     partitions grouped by topic; the broker epoch of the receiver
2     flexible
3     a leader epoch for each partition, and whether that partition is deleted (before: one flag for the whole request)
4     whether the controller is a KRaft controller
The controller sends the request to brokers that must drop replicas. Left out: version 0, which only Apache Kafka before
2.2 sends.
"""

from __future__ import annotations

from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands
from headrace.controller.decisions.control_requests import EPOCH_DURING_DELETE
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

API_KEY = ApiKey.STOP_REPLICA
VERSIONS = range(1, 5)
DEMANDS: Demands = (Demand(Operation.CLUSTER_ACTION, ResourceType.CLUSTER),)

_EACH_FROM = 3


def handle(ctx: RequestContext, request: m.StopReplicaRequest) -> Answer:
    """Returns an error code for each partition, or one for a request that is out of date."""
    if ctx.api_version < _EACH_FROM:
        request.topic_states = [
            m.StopReplicaRequest.StopReplicaTopicState(
                topic_name=topic.name,
                partition_states=[
                    m.StopReplicaRequest.StopReplicaPartitionState(
                        partition_index=number,
                        leader_epoch=EPOCH_DURING_DELETE,
                        delete_partition=request.delete_partitions,
                    )
                    for number in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    return ctx.in_order(ctx.services.control.handle(request), lambda _: fail(request, ErrorCode.UNKNOWN_SERVER_ERROR))


def fail(request: m.StopReplicaRequest, code: ErrorCode) -> m.StopReplicaResponse:
    """Returns one error for the whole request."""
    return m.StopReplicaResponse(error_code=code)
