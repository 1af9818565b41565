"""How far groups are behind the ends of what they read, in records and in seconds.

    records   high watermark - committed offset
    seconds   how long ago the first record that is not consumed was produced; 0 when there is none. A group that
              keeps up stays near 0; one that has stopped grows by one a second, whether or not records still come

The record's own time is not read, which might mean to unpack a batch for each number: its batch's first time stands
for it (the append time where the broker's clock stamps). Only partitions that this broker leads are known to it.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import NamedTuple

from headrace.broker.partition import Partition
from headrace.broker.replica_manager import ReplicaManager
from headrace.errors import KafkaError
from headrace.groups.describing import Position
from headrace.records.header import HEADER_BYTES, read_header
from headrace.types import TopicPartition

_LOOKS_PER_TURN = 64


class Lag(NamedTuple):
    """One partition in one group; `seconds` is None when the time cannot be read."""

    position: Position
    records: int
    seconds: float | None


class GroupLag:
    """Measures all groups, and remembers for the next time when the records were produced that it looked at."""

    def __init__(self) -> None:
        self._times_ms: dict[tuple[TopicPartition, int], int] = {}

    async def measure(self, positions: Iterable[Position], replicas: ReplicaManager, now_ms: int) -> AsyncIterator[Lag]:
        """Every position of a partition that this broker leads. Lets other work of the loop go on in between."""
        seen: dict[tuple[TopicPartition, int], int] = {}
        for position in positions:
            partition = replicas.find(position.partition)
            if partition is None or not partition.is_leader:
                continue
            offset = max(position.offset, partition.log.log_start_offset)
            records = max(0, partition.high_watermark - position.offset)
            if offset >= partition.high_watermark:
                yield Lag(position, records, 0.0)
                continue
            key = (position.partition, offset)
            time_ms = self._times_ms.get(key)
            if time_ms is None:
                time_ms = _time_ms(partition, offset)
                if len(seen) % _LOOKS_PER_TURN == 0:
                    await asyncio.sleep(0)
            if time_ms is not None:
                seen[key] = time_ms
            yield Lag(position, records, None if time_ms is None else max(0, now_ms - time_ms) / 1000)
        self._times_ms = seen


def _time_ms(partition: Partition, offset: int) -> int | None:
    """When the first record of the batch that holds `offset` was produced."""
    try:
        found = partition.log.read(offset, HEADER_BYTES, end_offset=partition.high_watermark, at_least_one=True)
        header = read_header(found.file.read(HEADER_BYTES, found.position))
    except (KafkaError, OSError):
        return None
    return header.max_timestamp if header.is_log_append_time else header.base_timestamp
