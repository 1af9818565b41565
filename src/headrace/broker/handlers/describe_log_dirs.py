"""DescribeLogDirs (key 35), versions 0-5.

2     flexible
3     an error of the request as a whole
4     the size of the disk, and what is left of it
5     whether a directory takes no new partitions (KIP-1066; ours always do)
A directory that failed is there with KAFKA_STORAGE_ERROR and nothing in it.
For each data directory, the partitions asked for that are in it, with the bytes of their segments; null asks for all.
A partition that is in none is left out. One that is being moved is in two: in the new directory as a future replica,
with how many offsets it is behind.
"""

from __future__ import annotations

from pathlib import Path

from headrace.broker.context import RequestContext
from headrace.broker.replica_manager import Partition
from headrace.errors import ErrorCode
from headrace.log.data_directory import DataDirectory
from headrace.protocol import messages as m
from headrace.protocol.apis import ApiKey

API_KEY = ApiKey.DESCRIBE_LOG_DIRS
VERSIONS = range(6)


def handle(ctx: RequestContext, request: m.DescribeLogDirsRequest) -> m.DescribeLogDirsResponse:
    """Every data directory."""
    held: dict[Path, dict[str, list[Partition]]] = {}
    for partition in _asked_for(ctx, request):
        topics = held.setdefault(partition.log.directory.parent, {})
        topics.setdefault(partition.key.topic, []).append(partition)
    logs = ctx.broker.replicas.logs
    return m.DescribeLogDirsResponse(
        results=[
            *(_describe(each, held.get(each.path, {}), _futures(ctx, request, each)) for each in logs.directories),
            *(_failed(path) for path in logs.offline),
        ]
    )


def _failed(path: Path) -> m.DescribeLogDirsResponse.DescribeLogDirsResult:
    return m.DescribeLogDirsResponse.DescribeLogDirsResult(
        error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=str(path.absolute())
    )


def _asked_for(ctx: RequestContext, request: m.DescribeLogDirsRequest) -> list[Partition]:
    if request.topics is None:
        return list(ctx.broker.replicas)
    wanted = {(topic.topic, number) for topic in request.topics for number in topic.partitions}
    return [each for each in ctx.broker.replicas if each.key in wanted]


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
        for move in ctx.broker.moves.to(directory.path)
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
