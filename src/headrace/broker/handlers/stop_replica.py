"""StopReplica (key 5), versions 1-4.

1     topics grouped; the broker epoch that it is meant for
2     flexible
3     a leader epoch for each partition, and whether that one is deleted (before: all of a request, or none)
4     from a KRaft controller, or not
From the controller alone, to brokers that are to let go of replicas. Left out: version 0, of Apache Kafka before 2.2.
"""

from __future__ import annotations

from headrace.broker.cluster_action import must_be_a_broker
from headrace.broker.context import Answer, RequestContext
from headrace.coordination.requests import EPOCH_DURING_DELETE
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey

API_KEY = ApiKey.STOP_REPLICA
VERSIONS = range(1, 5)

_EACH_FROM = 3


def handle(ctx: RequestContext, request: m.StopReplicaRequest) -> Answer:
    """An error for each partition; one for all when it is out of date."""
    must_be_a_broker(ctx)
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
    return ctx.in_order(ctx.broker.control.handle(request), lambda _: fail(request, ErrorCode.UNKNOWN_SERVER_ERROR))


def fail(request: m.StopReplicaRequest, code: ErrorCode) -> m.StopReplicaResponse:
    """One refusal for all."""
    return m.StopReplicaResponse(error_code=code)
