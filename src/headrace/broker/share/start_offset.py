"""The start offset of a share partition without stored state, by share.auto.offset.reset.

    earliest              the log start offset
    latest                the high watermark
    by_duration:P1DT2H    the first record that is not older; the high watermark if there is none

Source: Kafka's ShareGroupAutoOffsetResetStrategy, ShareFetchUtils.
"""

from __future__ import annotations

import asyncio

from headrace.broker.partitions.partition import Partition
from headrace.config.durations import duration_ms
from headrace.config.group_configs import BY_DURATION
from headrace.errors import ErrorCode, KafkaError

EARLIEST = "earliest"


async def find_start_offset(partition: Partition, reset: str, now_ms: int) -> int:
    """The offset at which a new share partition begins. Raises OFFSET_NOT_AVAILABLE from a new leader that does not
    know yet how much of its log is committed; OSError."""
    if reset == EARLIEST:
        return partition.log.log_start_offset
    if partition.state.epoch_start_offset > partition.high_watermark:
        raise KafkaError(
            f"the high watermark of {partition.key} is below the start of the leader epoch; try again",
            ErrorCode.OFFSET_NOT_AVAILABLE,
        )
    high_watermark = partition.high_watermark
    if reset.startswith(BY_DURATION):
        from_ms = now_ms - duration_ms(reset.removeprefix(BY_DURATION))
        for search in partition.log.searches_for_time(from_ms, high_watermark):
            if search is None:
                await asyncio.sleep(0)
                continue
            found = await asyncio.get_running_loop().run_in_executor(None, search.run)
            if found is not None and found.offset < high_watermark:
                return found.offset
    return high_watermark
