"""The records in a ShareFetch answer that were acquired for this member. Does no IO.

The bytes are whole batches of the log. Which of their records are this member's, and how often each was delivered,
stands beside them as ranges of offsets.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from headrace.client.consumer.fetched_batches import ChunkRecords, ConsumerRecord
from headrace.client.consumer.fetching import READ_UNCOMMITTED, Fetched
from headrace.protocol import messages as m
from headrace.records.format2.batch import Headers
from headrace.types import Offset, TopicPartition

_TAKEN = 1_000
_UNKNOWN = Offset(-1)


class ShareRecord(NamedTuple):
    """One record with its place, and how often it was delivered, this time included."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    delivery_count: int


class Acquired(NamedTuple):
    """The acquired records of one partition, and the acquired offsets that have none."""

    partition: TopicPartition
    records: list[ShareRecord]
    gaps: list[int]


def acquired_records(partition: TopicPartition, part: m.ShareFetchResponse.PartitionData) -> Acquired:
    """The records of a partition's answer. Raises CorruptMessage."""
    counts = {
        offset: each.delivery_count
        for each in part.acquired_records
        for offset in range(each.first_offset, each.last_offset + 1)
    }
    records = [
        ShareRecord(*record, counts.pop(record.offset))
        for record in (_records_of(partition, part) if counts else ())
        if record.offset in counts
    ]
    return Acquired(partition, records, sorted(counts))


def _records_of(partition: TopicPartition, part: m.ShareFetchResponse.PartitionData) -> Iterator[ConsumerRecord]:
    data = memoryview(part.records if part.records is not None else b"")
    answer = Fetched(data, _UNKNOWN, _UNKNOWN, _UNKNOWN, ())  # aborted transactions were not acquired
    chunk = ChunkRecords(partition, answer, Offset(0), READ_UNCOMMITTED)
    while not chunk.is_done:
        yield from chunk.take(_TAKEN)
