# cython: language_level=3, annotation_typing=False, binding=False
"""What belongs together of one replica on this broker.

The base of `partition.Partition`, which keeps the parts in step. Compiled, so that the shortest ways of requests reach
the log's and the state's numbers without a look-up; it also runs uncompiled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Hashable

    from headrace.broker.metrics.traffic import Traffic
    from headrace.broker.request.purgatory import Purgatory
    from headrace.log.partition_log import PartitionLog
    from headrace.replication.partition_state import PartitionState
    from headrace.types import TopicPartition


class LocalReplica:
    """A replica's key, log, replication state, and its topic's counters."""

    __slots__ = ("commits", "end_key", "is_dropped", "key", "log", "state", "traffic")

    def __init__(
        self, key: TopicPartition, end_key: Hashable, log: PartitionLog, state: PartitionState, traffic: Traffic
    ) -> None:
        """`end_key`: the purgatory's key for the log end offset."""
        self.key, self.end_key, self.log, self.state, self.traffic = key, end_key, log, state, traffic
        self.commits: Any = None
        """The queue of plain requests that wait for its replicas (`commit_queue`), from the first one on."""
        self.is_dropped = False
        """Whether this broker has dropped it: who keeps it looks before each use."""

    def touch_appended(self, purgatory: Purgatory) -> None:
        """Wakes the requests that wait for appended records: followers, and consumers if the records are committed."""
        state = self.state
        if state._progress:
            purgatory.touch(self.end_key)
            if state.high_watermark < self.log.log_end_offset:
                return  # the followers' fetches will advance the high watermark and wake the consumers
        purgatory.touch(self.key)
