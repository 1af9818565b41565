"""The lag of consumer groups, in records and in seconds.

    records   high watermark - committed offset, and last stable offset - committed offset
    seconds   the time since the first unconsumed record was produced; 0 without such a record. The lag of a group that
              keeps up stays near 0; that of a stopped group grows by one per second, with or without new records

A commit does not tell the isolation level of the group's consumers, so records are counted to both ends: consumers with
read_committed cannot read beyond the last stable offset.

The batch's first timestamp (its append time with LogAppendTime) replaces the record's own timestamp, whose reading
could require decompressing a batch for each number. A broker measures only partitions that it leads.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import NamedTuple

from headrace.broker.partitions.partition import Partition
from headrace.broker.partitions.replica_manager import ReplicaManager
from headrace.coordinators.groups.group import GroupPosition
from headrace.errors import KafkaError
from headrace.records.format2.header import HEADER_BYTES, read_header
from headrace.types import TopicPartition

_LOOKS_PER_TURN = 64


class Lag(NamedTuple):
    """The lag of one group on one partition; `seconds` is None if the time cannot be read."""

    position: GroupPosition
    records: int
    stable_records: int
    """The records up to the last stable offset."""
    seconds: float | None


class GroupLag:
    """Measures all groups, and caches the timestamps it read for the next measurement."""

    def __init__(self) -> None:
        self._times_ms: dict[tuple[TopicPartition, int], int] = {}

    async def measure(
        self, positions: Iterable[GroupPosition], replicas: ReplicaManager, now_ms: int
    ) -> AsyncIterator[Lag]:
        """Yields the lag of each position on a partition that this broker leads. Other work gets its turn between."""
        seen: dict[tuple[TopicPartition, int], int] = {}
        for position in positions:
            partition = replicas.find(position.partition)
            if partition is None or not partition.is_leader:
                continue
            offset = max(position.offset, partition.log.log_start_offset)
            records = max(0, partition.high_watermark - position.offset)
            stable_records = max(0, partition.last_stable_offset - position.offset)
            if offset >= partition.high_watermark:
                yield Lag(position, records, stable_records, 0.0)
                continue
            key = (position.partition, offset)
            time_ms = self._times_ms.get(key)
            if time_ms is None:
                time_ms = _time_ms(partition, offset)
                if len(seen) % _LOOKS_PER_TURN == 0:
                    await asyncio.sleep(0)
            if time_ms is not None:
                seen[key] = time_ms
            yield Lag(position, records, stable_records, None if time_ms is None else max(0, now_ms - time_ms) / 1000)
        self._times_ms = seen


def _time_ms(partition: Partition, offset: int) -> int | None:
    """Returns the time at which the first record of the batch with `offset` was produced."""
    try:
        found = partition.log.read(offset, HEADER_BYTES, end_offset=partition.high_watermark, at_least_one=True)
        header = read_header(found.file.read(HEADER_BYTES, found.position))
    except (KafkaError, OSError):
        return None
    return header.max_timestamp if header.is_log_append_time else header.base_timestamp
