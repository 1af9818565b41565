"""DescribeLogDirs (key 35), versions 0-5.

2     flexible
3     an error for the whole request
4     the size of the disk and its free space
5     whether a directory accepts no new partitions (KIP-1066; here all of them accept new partitions)
The response has each data directory with the requested partitions in it and the size of their segments in bytes; null
requests all partitions. A partition that is in no directory is omitted. A partition that is moving is in two
directories: in the new one as a future replica, with the number of offsets that it is behind.
A failed directory has KAFKA_STORAGE_ERROR and no partitions.
"""

from __future__ import annotations

from pathlib import Path

from headrace.broker.partitions.replica_manager import Partition
from headrace.broker.request.context import RequestContext
from headrace.broker.request.demands import Demand, Demands
from headrace.errors import ErrorCode
from headrace.log.directories.data_directory import DataDirectory
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey
from headrace.security.access import Operation, ResourceType

API_KEY = ApiKey.DESCRIBE_LOG_DIRS
VERSIONS = range(6)
DEMANDS: Demands = (Demand(Operation.DESCRIBE, ResourceType.CLUSTER),)


def handle(ctx: RequestContext, request: m.DescribeLogDirsRequest) -> m.DescribeLogDirsResponse:
    """Describes every data directory."""
    held: dict[Path, dict[str, list[Partition]]] = {}
    for partition in _requested(ctx, request):
        topics = held.setdefault(partition.log.directory.parent, {})
        topics.setdefault(partition.key.topic, []).append(partition)
    logs = ctx.services.replicas.logs
    return m.DescribeLogDirsResponse(
        results=[
            *(
                _describe(each, held.get(each.path, {}), _futures(ctx, request, each))
                for each in logs.directories.in_use
            ),
            *(_failed(path) for path in logs.directories.offline),
        ]
    )


def _failed(path: Path) -> m.DescribeLogDirsResponse.DescribeLogDirsResult:
    return m.DescribeLogDirsResponse.DescribeLogDirsResult(
        error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=str(path.absolute())
    )


def _requested(ctx: RequestContext, request: m.DescribeLogDirsRequest) -> list[Partition]:
    replicas = ctx.services.replicas
    if request.topics is not None:
        wanted = {(topic.topic, number) for topic in request.topics for number in topic.partitions}
    elif ctx.prefix:
        topics = ctx.services.metadata.topics
        wanted = {(name, number) for name, topic in topics.items() for number in topic.partitions}
    else:
        return list(replicas)
    return [found for each in wanted if (found := replicas.find(each)) is not None]


def _futures(
    ctx: RequestContext, request: m.DescribeLogDirsRequest, directory: DataDirectory
) -> list[m.DescribeLogDirsResponse.DescribeLogDirsTopic]:
    wanted = None if request.topics is None else {(t.topic, n) for t in request.topics for n in t.partitions}
    return [
        m.DescribeLogDirsResponse.DescribeLogDirsTopic(
            name=move.log.partition.topic,
            partitions=[
                m.DescribeLogDirsResponse.DescribeLogDirsPartition(
                    partition_index=move.log.partition.partition,
                    partition_size=move.size_bytes,
                    offset_lag=move.log.log_end_offset - move.end_offset,
                    is_future_key=True,
                )
            ],
        )
        for move in ctx.services.moves.to(directory.path)
        if wanted is None or move.log.partition in wanted
    ]


def _describe(
    directory: DataDirectory,
    topics: dict[str, list[Partition]],
    futures: list[m.DescribeLogDirsResponse.DescribeLogDirsTopic],
) -> m.DescribeLogDirsResponse.DescribeLogDirsResult:
    result = m.DescribeLogDirsResponse.DescribeLogDirsResult(
        log_dir=str(directory.path.absolute()),
        topics=[
            m.DescribeLogDirsResponse.DescribeLogDirsTopic(
                name=name,
                partitions=[
                    m.DescribeLogDirsResponse.DescribeLogDirsPartition(
                        partition_index=each.key.partition,
                        partition_size=each.log.size_bytes,
                        offset_lag=max(0, each.high_watermark - each.log.log_end_offset),
                    )
                    for each in partitions
                ],
            )
            for name, partitions in topics.items()
        ]
        + futures,
    )
    try:
        result.total_bytes, result.usable_bytes = directory.space()
    except OSError:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    return result
