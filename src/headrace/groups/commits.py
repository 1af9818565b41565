"""OffsetCommit, OffsetFetch and the end of offsets: who may commit, what is answered, what expires.

    a member                        its id and generation must be the group's; not while an assignment is awaited
    a simple consumer (generation   only into a group without members: offsets are all it uses of it, and so the
    -1, no member id)               group is made if need be
    retention                       from the last commit, or from when the last member left; topics that a stable
                                    group reads do not expire

Source: Kafka's `GroupCoordinator.handleCommitOffsets`, `GroupMetadata.removeExpiredOffsets`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from headrace.errors import ErrorCode
from headrace.groups.actions import KeyValue, OffsetsStored, Reply
from headrace.groups.answers import committed
from headrace.groups.group import CONSUMER_PROTOCOL, NO_MEMBER_ID, Group, State
from headrace.groups.joining import whose_fault
from headrace.groups.offsets import NO_EXPIRY, NO_OFFSET, CommittedOffset
from headrace.groups.records import write_group_key, write_offset, write_offset_key
from headrace.groups.turn import Turn
from headrace.limits import INT64_MAX
from headrace.types import TopicPartition

if TYPE_CHECKING:
    from headrace.protocol import messages as m

APPEND_ERRORS = {
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
"""What a failed write of a commit means to the client; others go to it as they are."""


class FetchedOffset(NamedTuple):
    """One partition's answer to OffsetFetch."""

    partition: TopicPartition
    offset: int = NO_OFFSET
    leader_epoch: int = -1
    metadata: str | None = ""
    error: ErrorCode = ErrorCode.NONE


def offsets_of(request: m.OffsetCommitRequest, now_ms: int) -> dict[TopicPartition, CommittedOffset]:
    """What the request commits, with the times that its version gave or the broker's."""
    keep_ms = request.retention_time_ms
    expire_timestamp_ms = NO_EXPIRY if keep_ms == -1 else min(now_ms + keep_ms, INT64_MAX)
    return {
        TopicPartition(topic.name, each.partition_index): CommittedOffset(
            each.committed_offset,
            each.committed_leader_epoch,
            each.committed_metadata or "",
            now_ms if each.commit_timestamp == -1 else each.commit_timestamp,
            expire_timestamp_ms,
        )
        for topic in request.topics
        for each in topic.partitions
    }


def commit(group: Group, request: m.OffsetCommitRequest, reply: Reply, turn: Turn) -> None:
    """Answers now when the commit is refused, else once it is in the log."""
    offsets = offsets_of(request, turn.now_ms)
    fault = _commit_fault(group, request)
    if fault is not ErrorCode.NONE:
        turn.answer(reply, committed((partition, fault) for partition in offsets))
        return
    if group.state is not State.EMPTY:
        turn.touch(group, group.members[request.member_id])
    limit = turn.config.offset_metadata_max_bytes
    accepted = {partition: each for partition, each in offsets.items() if len(each.metadata) <= limit}
    refused = frozenset(offsets) - frozenset(accepted)
    if not accepted:
        turn.answer(reply, committed((each, ErrorCode.OFFSET_METADATA_TOO_LARGE) for each in offsets))
        return
    group.offsets.prepare(accepted)
    records = [
        (write_offset_key(group.group_id, partition), write_offset(each)) for partition, each in accepted.items()
    ]
    turn.append(group, [*records], OffsetsStored(group, accepted, refused, tuple(offsets), reply))


def _commit_fault(group: Group, request: m.OffsetCommitRequest) -> ErrorCode:
    generation = request.generation_id_or_member_epoch
    if generation < 0 and group.state is State.EMPTY:
        return ErrorCode.NONE
    if generation < 0 and request.member_id == NO_MEMBER_ID and request.group_instance_id is None:
        return ErrorCode.UNKNOWN_MEMBER_ID  # a simple consumer in a group that has members
    fault = whose_fault(group, request.member_id, request.group_instance_id)
    if fault is not ErrorCode.NONE:
        return fault
    if generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    # While a rebalance is being prepared commits are let in: that is when members commit what they give up.
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is State.COMPLETING else ErrorCode.NONE


def offsets_stored(stored: OffsetsStored, error: ErrorCode, record_offset: int, turn: Turn) -> None:
    """The log has the commit at `record_offset`, or could not take it."""
    if stored.group.state is not State.DEAD:
        if error is ErrorCode.NONE:
            stored.group.offsets.appended(stored.offsets, record_offset)
        else:
            stored.group.offsets.failed(stored.offsets)
    outcome = APPEND_ERRORS.get(error, error)
    answers = (
        (each, ErrorCode.OFFSET_METADATA_TOO_LARGE if each in stored.refused else outcome) for each in stored.requested
    )
    turn.answer(stored.reply, committed(answers))


def fetch(
    group: Group | None, partitions: Iterable[TopicPartition] | None, require_stable: bool
) -> list[FetchedOffset]:
    """The committed offsets of these partitions, or of all that have one; -1 where there is none."""
    if group is None:
        return [FetchedOffset(partition) for partition in partitions or ()]
    answers = []
    for partition in tuple(group.offsets.committed) if partitions is None else partitions:
        known = group.offsets.committed.get(partition)
        if require_stable and group.offsets.is_unstable(partition):
            answers.append(FetchedOffset(partition, error=ErrorCode.UNSTABLE_OFFSET_COMMIT))
        elif known is None:
            answers.append(FetchedOffset(partition))
        else:
            answers.append(FetchedOffset(partition, known.offset, known.leader_epoch, known.metadata))
    return answers


def expired(group: Group, retention_ms: int, now_ms: int) -> list[TopicPartition]:
    """The partitions whose offsets nobody has needed for the time of retention."""

    def by_commit(offset: CommittedOffset) -> int:
        return offset.commit_timestamp_ms

    def by_emptiness(offset: CommittedOffset) -> int:
        return offset.commit_timestamp_ms if group.state_since_ms is None else group.state_since_ms

    offsets = group.offsets
    if group.protocol_type is None:  # simple consumers
        return offsets.expired(now_ms, retention_ms, by_commit)
    if group.state is State.EMPTY:
        return offsets.expired(now_ms, retention_ms, by_emptiness)
    topics = group.subscribed_topics
    if group.protocol_type == CONSUMER_PROTOCOL and group.state is State.STABLE and topics is not None:
        return offsets.expired(now_ms, retention_ms, by_commit, topics)
    return []


def remove_offsets(group: Group, partitions: Iterable[TopicPartition], is_leaving: bool, turn: Turn) -> None:
    """Forget offsets, and with `is_leaving` the group's metadata: tombstones in the log, which nobody waits for."""
    removed = group.offsets.remove(partitions)
    tombstones: list[KeyValue] = [(write_offset_key(group.group_id, each), None) for each in removed]
    if is_leaving and group.generation > 0:  # a group of simple consumers has never written its metadata
        tombstones.append((write_group_key(group.group_id), None))
    if tombstones:
        turn.append(group, tombstones)
