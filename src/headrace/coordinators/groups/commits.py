"""OffsetCommit, OffsetFetch and expiry of offsets: permission to commit, responses, retention.

    member                          its member id and generation must be current; refused while the group waits for
                                    its assignment
    simple consumer (generation     allowed only in a group without members; the group is created if it does not exist,
    -1, no member id)               to hold the offsets
    retention                       counts from the last commit, or from when the last member left; offsets of topics
                                    that a stable group reads do not expire

Source: Kafka's `GroupCoordinator.handleCommitOffsets`, `GroupMetadata.removeExpiredOffsets`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from headrace.coordinators.groups.actions import OffsetsStored
from headrace.coordinators.groups.answers import committed
from headrace.coordinators.groups.group import CONSUMER_PROTOCOL, NO_MEMBER_ID, Group, State
from headrace.coordinators.groups.group_event import GroupEvent
from headrace.coordinators.groups.joining import check_member
from headrace.coordinators.groups.offsets import NO_EXPIRY, NO_OFFSET, CommittedOffset
from headrace.coordinators.groups.records import write_group_key, write_offset, write_offset_key
from headrace.coordinators.groups.replies import Reply
from headrace.coordinators.runtime import KeyValue
from headrace.errors import ErrorCode
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
"""The client's error for a failed write of a commit. Other errors are passed on unchanged."""


class FetchedOffset(NamedTuple):
    """One partition of an OffsetFetch response."""

    partition: TopicPartition
    offset: int = NO_OFFSET
    leader_epoch: int = -1
    metadata: str | None = ""
    error: ErrorCode = ErrorCode.NONE


def offsets_of(request: m.OffsetCommitRequest, now_ms: int) -> dict[TopicPartition, CommittedOffset]:
    """The offsets that the request commits, with the request's timestamps or, in versions without, the broker's."""
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


def commit(group: Group, request: m.OffsetCommitRequest, reply: Reply, group_event: GroupEvent) -> None:
    """Answers now if the commit is refused, else once it is in the log."""
    offsets = offsets_of(request, group_event.now_ms)
    fault = _commit_fault(group, request)
    if fault is not ErrorCode.NONE:
        group_event.answer(reply, committed((partition, fault) for partition in offsets))
        return
    if group.state is not State.EMPTY:
        group_event.touch(group, group.members[request.member_id])
    limit = group_event.config.offset_metadata_max_bytes
    accepted = {partition: each for partition, each in offsets.items() if len(each.metadata) <= limit}
    refused = frozenset(offsets) - frozenset(accepted)
    if not accepted:
        group_event.answer(reply, committed((each, ErrorCode.OFFSET_METADATA_TOO_LARGE) for each in offsets))
        return
    group.offsets.prepare(accepted)
    records = [
        (write_offset_key(group.group_id, partition), write_offset(each)) for partition, each in accepted.items()
    ]
    group_event.append(group, [*records], OffsetsStored(group, accepted, refused, tuple(offsets), reply))


def _commit_fault(group: Group, request: m.OffsetCommitRequest) -> ErrorCode:
    generation = request.generation_id_or_member_epoch
    if generation < 0 and group.state is State.EMPTY:
        return ErrorCode.NONE
    if generation < 0 and request.member_id == NO_MEMBER_ID and request.group_instance_id is None:
        return ErrorCode.UNKNOWN_MEMBER_ID  # a simple consumer must not commit to a group with members
    fault = check_member(group, request.member_id, request.group_instance_id)
    if fault is not ErrorCode.NONE:
        return fault
    if generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    # Commits are allowed in PreparingRebalance: members then commit the partitions that they are about to give up.
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is State.COMPLETING else ErrorCode.NONE


def offsets_stored(stored: OffsetsStored, error: ErrorCode, record_offset: int, group_event: GroupEvent) -> None:
    """Applies and answers a commit that is in the log at `record_offset`, or fails it."""
    if stored.group.state is not State.DEAD:
        if error is ErrorCode.NONE:
            stored.group.offsets.appended(stored.offsets, record_offset)
        else:
            stored.group.offsets.failed(stored.offsets)
    outcome = APPEND_ERRORS.get(error, error)
    answers = (
        (each, ErrorCode.OFFSET_METADATA_TOO_LARGE if each in stored.refused else outcome) for each in stored.requested
    )
    group_event.answer(stored.reply, committed(answers))


def fetch(
    group: Group | None, partitions: Iterable[TopicPartition] | None, require_stable: bool
) -> list[FetchedOffset]:
    """The committed offsets of these partitions (all that have one when None); -1 for a partition without."""
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
    """The partitions whose offsets have been unused for longer than the retention."""

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


def remove_offsets(
    group: Group, partitions: Iterable[TopicPartition], is_leaving: bool, group_event: GroupEvent
) -> None:
    """Removes offsets, and with `is_leaving` the group's metadata. Writes tombstones, and does not wait for them."""
    removed = group.offsets.remove(partitions)
    tombstones: list[KeyValue] = [(write_offset_key(group.group_id, each), None) for each in removed]
    if is_leaving and group.generation > 0:  # generation 0: simple consumers, which write no group metadata
        tombstones.append((write_group_key(group.group_id), None))
    if tombstones:
        group_event.append(group, tombstones)
