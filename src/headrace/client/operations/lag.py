"""Finds the timestamp of the first record that a group has not consumed, for its lag in seconds.

A broker returns offsets by time, but not the time of an offset, so the record's batch is fetched. If the record at a
committed offset was deleted or compacted away, the first record after it counts.
"""

from __future__ import annotations

from headrace.client.consumer.fetched_batches import ReadOptions, columns_of
from headrace.client.consumer.fetching import (
    READ_UNCOMMITTED,
    Fetched,
    FetchSizes,
    Position,
    answers_by_partition,
    fetch_request,
    fetched,
    following_offset,
)
from headrace.client.core.cluster import Cluster
from headrace.errors import KafkaError
from headrace.protocol import messages as m
from headrace.types import NO_EPOCH, Offset, TopicPartition

_ONE_BATCH = FetchSizes(max_wait_ms=0, min_bytes=0, max_bytes=1, partition_max_bytes=1)
_TIMES_ONLY = ReadOptions(keys=False, values=False, sizes=_ONE_BATCH)


def first_record_ms(cluster: Cluster, partition: TopicPartition, start: Offset, end: Offset) -> int | None:
    """The timestamp of the first record with an offset in [start, end), in ms; None when there is none."""
    position = start
    while position < end:
        answer = _fetch_one_batch(cluster, partition, position)
        for columns in columns_of(answer, position, end, _TIMES_ONLY):
            return columns.timestamps_ms[0]
        following = following_offset(answer.records, position)
        if following <= position:
            return None
        position = following
    return None


def _fetch_one_batch(cluster: Cluster, partition: TopicPartition, position: Offset) -> Fetched:
    deadline = cluster.deadline()
    request = fetch_request({partition: Position(position, NO_EPOCH)}, _ONE_BATCH, READ_UNCOMMITTED)

    def attempt() -> Fetched:
        answer = cluster.call(cluster.leader(partition, deadline), request, m.FetchResponse, deadline)
        part = answers_by_partition(answer).get(partition)
        if part is None:
            raise KafkaError(f"{partition} is missing from the broker's response")
        return fetched(partition, position, part)

    return cluster.retry(attempt, deadline)
