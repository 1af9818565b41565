"""AlterReplicaLogDirs (key 34), versions 0-2.

1     quotas are applied before the response is sent
2     flexible
Moves each replica to another data directory of this broker, while the replica is written and read. The response says
only that the moves have begun; DescribeLogDirs shows their progress. A request for the replica's current directory
cancels its move.

    LOG_DIR_NOT_FOUND                the directory is not in log.dirs, or its path is not absolute
    KAFKA_STORAGE_ERROR              a directory is offline: the requested one, the replica's, or, for a new move, any
    REPLICA_NOT_AVAILABLE            no replica here; a replica that comes later is created in that directory
    UNKNOWN_TOPIC_OR_PARTITION       the partition does not exist
"""

from __future__ import annotations

from headrace.broker.handlers.create_topics import code_of
from headrace.broker.request.context import Answer, RequestContext
from headrace.broker.request.demands import Demand, Demands
from headrace.errors import ErrorCode
from headrace.in_slices import in_slices
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType
from headrace.types import TopicPartition

API_KEY = ApiKey.ALTER_REPLICA_LOG_DIRS
VERSIONS = range(3)
DEMANDS: Demands = (Demand(Operation.ALTER, ResourceType.CLUSTER),)


def handle(ctx: RequestContext, request: m.AlterReplicaLogDirsRequest) -> Answer:
    """Returns the outcome for each partition. If a partition is named twice, its last entry counts."""
    return ctx.in_order(_alter(ctx, request), lambda error: fail(request, code_of(error)))


async def _alter(ctx: RequestContext, request: m.AlterReplicaLogDirsRequest) -> m.AlterReplicaLogDirsResponse:
    requested = {
        TopicPartition(topic.name, number): directory.path
        for directory in request.dirs
        for topic in directory.topics
        for number in topic.partitions
    }
    return _response({key: ctx.services.moves.request(key, path) async for key, path in in_slices(requested.items())})


def fail(request: m.AlterReplicaLogDirsRequest, code: ErrorCode) -> m.AlterReplicaLogDirsResponse:
    """Returns the same error for every partition."""
    return _response(
        {
            TopicPartition(topic.name, number): code
            for directory in request.dirs
            for topic in directory.topics
            for number in topic.partitions
        }
    )


def _response(codes: dict[TopicPartition, ErrorCode]) -> m.AlterReplicaLogDirsResponse:
    results: dict[str, m.AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult] = {}
    for (name, number), code in codes.items():
        if name not in results:
            results[name] = m.AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult(topic_name=name, partitions=[])
        results[name].partitions.append(
            m.AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult(partition_index=number, error_code=code)
        )
    return m.AlterReplicaLogDirsResponse(results=list(results.values()))
