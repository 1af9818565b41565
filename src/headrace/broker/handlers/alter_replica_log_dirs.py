"""AlterReplicaLogDirs (key 34), versions 0-2.

1     quotas are kept before the answer leaves
2     flexible
Each replica is moved to another data directory of this broker while it is written to and read; the answer says only
that this has begun. DescribeLogDirs shows how far it is. Naming the directory in which a replica is cancels its move.

    LOG_DIR_NOT_FOUND                a directory that is not in log.dirs, or no absolute path
    KAFKA_STORAGE_ERROR              a directory that failed, a replica in one, or a move while one is offline
    REPLICA_NOT_AVAILABLE            not here; when it comes it is made in that directory
    UNKNOWN_TOPIC_OR_PARTITION       nowhere
"""

from __future__ import annotations

from headrace.broker.context import RequestContext
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.types import TopicPartition

API_KEY = ApiKey.ALTER_REPLICA_LOG_DIRS
VERSIONS = range(3)


def handle(ctx: RequestContext, request: m.AlterReplicaLogDirsRequest) -> m.AlterReplicaLogDirsResponse:
    """What became of each wish; of a partition that is named twice, of the last."""
    wishes = {
        TopicPartition(topic.name, number): directory.path
        for directory in request.dirs
        for topic in directory.topics
        for number in topic.partitions
    }
    return _response({key: ctx.broker.moves.ask(key, path) for key, path in wishes.items()})


def fail(request: m.AlterReplicaLogDirsRequest, code: ErrorCode) -> m.AlterReplicaLogDirsResponse:
    """The same refusal for every partition."""
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
