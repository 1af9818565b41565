"""A follower's fetch: reports the follower's log end offset, and reads up to the log end offset, committed or not.

Three checks come before the read. The sender must be a replica (else NOT_LEADER_OR_FOLLOWER, or UNKNOWN_LEADER_EPOCH if
it sent the epoch, since it may know a newer assignment). Its log must agree with this one up to the fetch offset (else
the response has the diverging epoch). The offset must exist. Only then does the offset count as progress: the high
watermark must never rest on records that differ. The response already has the high watermark that results.

    the same fetch read again from the purgatory     progress is not counted again
    a throttled replica that is not in sync          no records while the quota is exceeded

An advance of the high watermark does not answer a waiting fetch: the next response has it. Apache Kafka tried the
opposite and reverted it (KAFKA-9731), since it doubles the fetches of a busy leader.
Source: Kafka's Partition.fetchRecords, KIP-595, KIP-903.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import ErrorCode, KafkaError, NotLeaderOrFollower, OffsetOutOfRange
from headrace.metadata.model import NO_UUID
from headrace.protocol import messages as m
from headrace.types import NO_EPOCH, BrokerId

if TYPE_CHECKING:
    from headrace.broker.fetch.fetch_sessions import SessionPartition
    from headrace.broker.partitions.partition import Partition
    from headrace.broker.services import Services


def follower_of(request: m.FetchRequest) -> BrokerId | None:
    """Returns the broker that sent a follower's fetch; None for a consumer."""
    replica_id = max(request.replica_id, request.replica_state.replica_id)
    return BrokerId(replica_id) if replica_id >= 0 else None


class FollowerFetch:
    """One fetch of one follower."""

    __slots__ = ("_broker", "_broker_epoch", "_id", "_is_alive", "_now_ms")

    def __init__(self, broker: Services, follower: BrokerId, request: m.FetchRequest) -> None:
        self._broker, self._id = broker, follower
        self._broker_epoch = request.replica_state.replica_epoch
        self._is_alive = follower in broker.metadata.brokers
        self._now_ms = broker.now_ms()

    def begin(
        self, partition: Partition, wanted: m.FetchRequest.FetchPartition, *, counts: bool
    ) -> m.FetchResponse.EpochEndOffset | None:
        """The diverging epoch, or None when the follower may read. `counts`: whether the offset counts as progress.

        Raises NOT_LEADER_OR_FOLLOWER, UNKNOWN_LEADER_EPOCH, OFFSET_OUT_OF_RANGE.
        """
        log, offset = partition.log, wanted.fetch_offset
        if self._id not in partition.state.followers:
            is_newer = wanted.current_leader_epoch != NO_EPOCH
            raise KafkaError(
                f"broker {self._id} has no replica of {partition.key}",
                ErrorCode.UNKNOWN_LEADER_EPOCH if is_newer else ErrorCode.NOT_LEADER_OR_FOLLOWER,
            )
        if offset < log.log_start_offset:
            raise OffsetOutOfRange(
                f"offset {offset} of {partition.key} is below the log start offset {log.log_start_offset}"
            )
        diverging_epoch = diverging_epoch_of(partition, wanted)
        if diverging_epoch is None:
            if offset > log.log_end_offset:
                raise OffsetOutOfRange(
                    f"offset {offset} of {partition.key} is above the log end offset {log.log_end_offset}"
                )
            if counts:
                self._count(partition, wanted)
        return diverging_epoch

    def is_unchanged(self, partition: Partition, cached: SessionPartition, *, counts: bool) -> bool:
        """Whether the partition is unchanged since the last response; if so, progress is counted."""
        state, log = partition.state, partition.log
        if (
            cached.fetch_offset == log.log_end_offset
            and cached.last_epoch == log.leader_epochs.latest
            and log.log_start_offset == cached.log_start_offset
            and state.is_leader
            and cached.leader_epoch == state.leader_epoch
            and cached.topic_id in (NO_UUID, log.topic_id)
            and self._id in state.followers
        ):
            is_known = state.followers[self._id].log_start_offset == cached.start_offset  # DeleteRecords waits for it
            if counts and not (is_known and state.is_still_at_the_end(self._id, self._broker_epoch, self._now_ms)):
                self._count(partition, cached.wanted)
            return state.high_watermark == cached.high_watermark
        return False

    def is_held_back(self, partition: Partition) -> bool:
        """Whether the replication quota throttles this follower now."""
        quota = self._broker.replication.leader_quota
        return (
            self._id not in partition.state.isr
            and quota.is_throttled(partition.key)
            and quota.is_exceeded(self._broker.loop.time())
        )

    def _count(self, partition: Partition, wanted: m.FetchRequest.FetchPartition) -> None:
        broker = self._broker
        fetched = partition.state.follower_fetched(
            self._id,
            wanted.fetch_offset,
            self._now_ms,
            log_start_offset=wanted.log_start_offset,
            broker_epoch=self._broker_epoch,
            may_join=self._is_alive,
        )
        if fetched is None:
            raise NotLeaderOrFollower(f"{partition.key}: broker {self._id} registered again after it sent the fetch")
        if fetched.high_watermark_moved:
            broker.purgatory.touch(partition.key)
        if fetched.alter is not None:
            broker.replication.isr_changes.submit(partition)


def diverging_epoch_of(
    partition: Partition, wanted: m.FetchRequest.FetchPartition
) -> m.FetchResponse.EpochEndOffset | None:
    """The diverging epoch of the reader's log; None while the logs agree.

    A follower without an epoch is empty, or fetches from the end of what it has compared with this log. If the follower
    has an epoch and this log knows none at that offset, this log has messages of an older format there; epoch -1 makes
    the follower compare, too. Apache Kafka answers OFFSET_OUT_OF_RANGE, from which such a follower never recovers.
    """
    epoch, log = wanted.last_fetched_epoch, partition.log
    if epoch == NO_EPOCH or log.log_end_offset == log.log_start_offset:
        return None
    if log.leader_epochs.is_unknown(epoch, wanted.fetch_offset, log.log_start_offset):
        return m.FetchResponse.EpochEndOffset(epoch=NO_EPOCH, end_offset=wanted.fetch_offset)
    end_epoch, end_offset = partition.end_of_epoch(epoch)
    if end_epoch < 0:
        raise OffsetOutOfRange(f"{partition.key}: this leader does not know leader epoch {epoch}")
    if end_epoch < epoch or end_offset < wanted.fetch_offset:
        return m.FetchResponse.EpochEndOffset(epoch=end_epoch, end_offset=end_offset)
    return None
