"""A follower's fetch: says how far the follower is, and reads to the log's end, committed or not.

Before anything is read: is the asker a replica here (else NOT_LEADER_OR_FOLLOWER, or UNKNOWN_LEADER_EPOCH where it
named the epoch, since then it may know of a newer assignment); does its log agree with this one up to where it asks
(else the answer says where they part, at once); does the offset exist. Only then does the offset count as progress,
so that the high watermark never stands on records that differ, and the answer already tells what it did to it.

    the same fetch read again from the purgatory     progress has been counted, and is not counted again
    a throttled replica that is not in sync          nothing, while the quota is exceeded

A waiting fetch is not answered because the high watermark moved: the next one tells it (Apache Kafka tried and took it
back, KAFKA-9731: it doubles the fetches of a busy leader). Source: Kafka's Partition.fetchRecords, KIP-595, KIP-903.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.coordination.model import NO_UUID
from headrace.errors import ErrorCode, KafkaError, NotLeaderOrFollower, OffsetOutOfRange
from headrace.protocol import messages as m
from headrace.records.header import MAGIC
from headrace.types import NO_EPOCH, BrokerId

if TYPE_CHECKING:
    from headrace.broker.fetch_sessions import SessionPartition
    from headrace.broker.partition import Partition
    from headrace.broker.parts import Broker


def follower_of(request: m.FetchRequest) -> BrokerId | None:
    """Which broker asks as a follower; None for a consumer."""
    asker = max(request.replica_id, request.replica_state.replica_id)
    return BrokerId(asker) if asker >= 0 else None


class FollowerAsks:
    """One fetch of one follower."""

    __slots__ = ("_broker", "_broker_epoch", "_id", "_is_alive", "_now_ms")

    def __init__(self, broker: Broker, follower: BrokerId, request: m.FetchRequest) -> None:
        self._broker, self._id = broker, follower
        self._broker_epoch = request.replica_state.replica_epoch
        self._is_alive = follower in broker.metadata.brokers
        self._now_ms = broker.now_ms()

    def begin(
        self, partition: Partition, wanted: m.FetchRequest.FetchPartition, *, counts: bool
    ) -> m.FetchResponse.EpochEndOffset | None:
        """Where the logs part, or None when the follower may read; `counts`: what it asks for is progress.

        Raises NOT_LEADER_OR_FOLLOWER, UNKNOWN_LEADER_EPOCH, OFFSET_OUT_OF_RANGE.
        """
        log, offset = partition.log, wanted.fetch_offset
        if self._id not in partition.state.followers:
            is_newer = wanted.current_leader_epoch != NO_EPOCH
            raise KafkaError(
                f"broker {self._id} is no replica of {partition.key}",
                ErrorCode.UNKNOWN_LEADER_EPOCH if is_newer else ErrorCode.NOT_LEADER_OR_FOLLOWER,
            )
        if offset < log.log_start_offset:
            raise OffsetOutOfRange(f"{partition.key} begins at {log.log_start_offset}, not at {offset}")
        parting = _parting(partition, wanted)
        if parting is None:
            if offset > log.log_end_offset:
                raise OffsetOutOfRange(f"{partition.key} ends at {log.log_end_offset}, not at {offset}")
            if counts:
                self._count(partition, wanted)
        return parting

    def is_as_told(self, partition: Partition, told: SessionPartition, *, counts: bool) -> bool:
        """Whether there is nothing to read and nothing to say; progress is counted then."""
        state, wanted, log = partition.state, told.wanted, partition.log
        if (
            wanted.fetch_offset == log.log_end_offset
            and wanted.last_fetched_epoch == log.leader_epochs.latest
            and log.log_start_offset == told.log_start_offset
            and state.is_leader
            and wanted.current_leader_epoch == state.leader_epoch
            and told.topic_id in (NO_UUID, log.topic_id)
            and self._id in state.followers
        ):
            if counts and not state.is_still_at_the_end(self._id, self._broker_epoch, self._now_ms):
                self._count(partition, wanted)
            return state.high_watermark == told.high_watermark
        return False

    def is_held_back(self, partition: Partition) -> bool:
        """Whether the quota lets nothing through to this follower now."""
        quota = self._broker.replication.leader_quota
        return (
            self._id not in partition.state.isr
            and quota.is_throttled(partition.key)
            and quota.is_exceeded(self._broker.loop.time())
        )

    def _count(self, partition: Partition, wanted: m.FetchRequest.FetchPartition) -> None:
        broker = self._broker
        fetched = partition.follower_fetched(
            self._id,
            wanted.fetch_offset,
            self._now_ms,
            log_start_offset=wanted.log_start_offset,
            broker_epoch=self._broker_epoch,
            may_join=self._is_alive,
        )
        if fetched is None:
            raise NotLeaderOrFollower(f"{partition.key}: broker {self._id} has registered anew since it asked")
        if fetched.high_watermark_moved:
            broker.purgatory.touch(partition.key)
        if fetched.alter is not None:
            broker.replication.isr_changes.ask(partition)


def _parting(partition: Partition, wanted: m.FetchRequest.FetchPartition) -> m.FetchResponse.EpochEndOffset | None:
    """Where the follower's log stops to be this one; None while it is the same as far as it reaches.

    A log without a known epoch is empty, or of an older format: there is nothing to compare.
    """
    epoch, log = wanted.last_fetched_epoch, partition.log
    if epoch == NO_EPOCH or log.leader_epochs.latest < 0 or log.config.magic < MAGIC:
        return None
    end_epoch, end_offset = partition.end_of_epoch(epoch)
    if end_epoch < 0:
        raise OffsetOutOfRange(f"{partition.key}: epoch {epoch} is not known here")
    if end_epoch < epoch or end_offset < wanted.fetch_offset:
        return m.FetchResponse.EpochEndOffset(epoch=end_epoch, end_offset=end_offset)
    return None
