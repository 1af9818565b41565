"""Builds Fetch requests and interprets their answers. Does no IO.

A Fetch requests the bytes from an offset on. The answer may begin before that offset (in the middle of a batch) and end
in a truncated batch; `records.any_format.scan_any` handles both. An error of a partition is either retriable (refresh
metadata, try again), OFFSET_OUT_OF_RANGE (the caller decides), or final.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import NamedTuple

from headrace.client.core.failures import error_for
from headrace.errors import ErrorCode
from headrace.protocol import messages as m
from headrace.records.any_format import read_any_header
from headrace.records.format2.header import LOG_OVERHEAD_BYTES
from headrace.types import LeaderEpoch, Offset, TopicPartition

READ_UNCOMMITTED = 0
READ_COMMITTED = 1
_CONSUMER_REPLICA = -1
_OFFSET_AND_LENGTH = Struct(">qi")
_FULL_FETCH_EPOCH = -1  # no incremental fetch session


class FetchSizes(NamedTuple):
    """The size limits of a Fetch, and the maximum time that the broker waits for data."""

    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 50 << 20
    partition_max_bytes: int = 2 << 20


FETCH_SIZES = FetchSizes()


class Position(NamedTuple):
    """The offset to fetch from. A known epoch lets the leader notice that the client is behind or ahead."""

    offset: Offset
    leader_epoch: LeaderEpoch


class Fetched(NamedTuple):
    """One partition's answer without an error."""

    records: memoryview
    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset
    aborted: tuple[tuple[int, int], ...]
    """(producer id, first offset) of each aborted transaction in reach, as the broker sent them."""


def fetch_request(
    positions: Mapping[TopicPartition, Position], sizes: FetchSizes, isolation_level: int, rack: str = ""
) -> m.FetchRequest:
    """The request to one broker for all `positions`, in their order (the first is served first)."""
    topics: dict[str, list[m.FetchRequest.FetchPartition]] = {}
    for (topic, partition), position in positions.items():
        asked = m.FetchRequest.FetchPartition(
            partition=partition,
            current_leader_epoch=position.leader_epoch,
            fetch_offset=position.offset,
            partition_max_bytes=sizes.partition_max_bytes,
        )
        topics.setdefault(topic, []).append(asked)
    return m.FetchRequest(
        replica_id=_CONSUMER_REPLICA,
        max_wait_ms=sizes.max_wait_ms,
        min_bytes=sizes.min_bytes,
        max_bytes=sizes.max_bytes,
        isolation_level=isolation_level,
        session_id=0,
        session_epoch=_FULL_FETCH_EPOCH,
        rack_id=rack,
        topics=[m.FetchRequest.FetchTopic(topic=topic, partitions=asked) for topic, asked in topics.items()],
    )


def answers_by_partition(
    answer: m.FetchResponse,
) -> dict[TopicPartition, m.FetchResponse.PartitionData]:
    """The answer's partitions. Raises KafkaError if the whole request failed."""
    if answer.error_code:
        raise error_for(answer.error_code, "the fetch was refused")
    return {
        TopicPartition(topic.topic, part.partition_index): part
        for topic in answer.responses
        for part in topic.partitions
    }


def fetched(partition: TopicPartition, offset: Offset, part: m.FetchResponse.PartitionData) -> Fetched:
    """One partition's answer. Raises OffsetOutOfRange or another KafkaError that names the partition."""
    if part.error_code:
        detail = ""
        if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            start = part.log_start_offset
            detail = (
                f"; its log starts at {start}" if start >= 0 else "; it was deleted by retention, or does not exist yet"
            )
        raise error_for(part.error_code, f"{partition} at offset {offset}{detail}")
    aborted = part.aborted_transactions or []
    return Fetched(
        records=memoryview(part.records if part.records is not None else b""),
        high_watermark=Offset(part.high_watermark),
        last_stable_offset=Offset(part.last_stable_offset),
        log_start_offset=Offset(part.log_start_offset),
        aborted=tuple((entry.producer_id, entry.first_offset) for entry in aborted),
    )


def following_offset(records: memoryview, offset: Offset) -> Offset:
    """The offset to fetch after `records`: after their last complete batch, or `offset` if there is none.

    Reads two numbers per batch, so that the next request is sent before this answer is decoded.
    """
    pos = last = 0
    end = len(records)
    while pos + _OFFSET_AND_LENGTH.size <= end:
        _, length = _OFFSET_AND_LENGTH.unpack_from(records, pos)
        if length <= 0 or pos + LOG_OVERHEAD_BYTES + length > end:
            break
        last, pos = pos, pos + LOG_OVERHEAD_BYTES + length
    if pos == 0:
        return offset
    return Offset(max(offset, read_any_header(records, last).next_offset))
