"""The commit rule: when an append is durable, for produces, committed offsets and transaction markers alike.

An append waits until it is committed up to an offset, flushed up to an offset, or both. `outcome` returns the result of
the wait. The first condition that holds decides:

    not the leader, or leader again since           NOT_LEADER_OR_FOLLOWER: another leader may have dropped the records,
                                                    or the topic is deleted, whose log then refuses appends, too
    the disk failed, or the partition is offline    KAFKA_STORAGE_ERROR
    high watermark below `commit_to`                waits
    flushed offset below `flush_to`                 waits
    acks=all, and ISR below min.insync.replicas     NOT_ENOUGH_REPLICAS_AFTER_APPEND: the records stay in the log
    otherwise                                       NONE

The wait survives a new epoch of the same leader, and a move of the log to another data directory: the records keep
their offsets. As in Apache Kafka, `min.insync.replicas` is compared with the maximal ISR, because a replica that is
about to join already holds the high watermark back.
Source: Kafka's `DelayedProduce` and `Partition.checkEnoughReplicasReachOffset`.
"""

from typing import NamedTuple

from headrace.errors import ErrorCode
from headrace.replication.partition_state import PartitionState
from headrace.types import LeaderEpoch


class CommitWait(NamedTuple):
    """The offsets that an append waits for."""

    commit_to: int
    """The high watermark that acks=all waits for, exclusive; 0 for acks=1."""
    flush_to: int
    """The offset up to which the log must be flushed, exclusive; 0 for none."""
    leading_since: LeaderEpoch
    """`PartitionState.leading_since` at the append."""


def outcome(wait: CommitWait, state: PartitionState, flushed_offset: int, *, is_offline: bool) -> ErrorCode | None:
    """The result of the wait; None while it goes on."""
    if not state.is_leader or state.leading_since != wait.leading_since:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if is_offline:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if state.high_watermark < wait.commit_to or flushed_offset < wait.flush_to:
        return None
    if wait.commit_to and len(state.isr_state.maximal) < state.effective_min_isr:
        return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    return ErrorCode.NONE
