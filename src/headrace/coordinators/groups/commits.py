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

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from headrace.coordinators.groups.answers import committed
from headrace.coordinators.groups.group import Committer, Group
from headrace.coordinators.groups.group_event import GroupEvent
from headrace.coordinators.groups.offsets import NO_EXPIRY, NO_OFFSET, CommittedOffset, GroupOffsets
from headrace.coordinators.groups.records import write_offset, write_offset_key
from headrace.coordinators.groups.replies import Reply
from headrace.coordinators.runtime import APPEND_ERRORS, KeyValue
from headrace.errors import ErrorCode
from headrace.limits import INT64_MAX
from headrace.types import TopicPartition

if TYPE_CHECKING:
    from headrace.protocol import messages as m

COMMIT_ERRORS = {
    **APPEND_ERRORS,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
"""The client's error for a failed write of a commit. Other errors are passed on unchanged."""

_IN_THE_LOG = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
"""The errors after which an appended batch stays in the log."""


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
            topic_id=topic.topic_id,
        )
        for topic in request.topics
        for each in topic.partitions
    }


def too_large(offsets: Mapping[TopicPartition, CommittedOffset], metadata_max: int) -> frozenset[TopicPartition]:
    """The partitions whose offset has too much metadata to be committed."""
    return frozenset(partition for partition, each in offsets.items() if len(each.metadata) > metadata_max)


def commit(
    group: Group, request: m.OffsetCommitRequest, committer: Committer, reply: Reply, group_event: GroupEvent
) -> None:
    """Answers now if the commit is refused, else once it is in the log."""
    offsets = offsets_of(request, group_event.now_ms)
    refused = too_large(offsets, group_event.config.offset_metadata_max_bytes)
    accepted = {partition: each for partition, each in offsets.items() if partition not in refused}
    fault = group.commit_fault(committer, accepted)
    if fault is not ErrorCode.NONE:
        group_event.answer(reply, committed((partition, fault) for partition in offsets))
        return
    group.committing(committer, group_event)
    if not accepted:
        group_event.answer(reply, committed((each, ErrorCode.OFFSET_METADATA_TOO_LARGE) for each in offsets))
        return
    group.offsets.prepare(accepted)
    group_event.append(
        group,
        [(write_offset_key(group.group_id, partition), write_offset(each)) for partition, each in accepted.items()],
        OffsetsStored(group.offsets, accepted, refused, tuple(offsets), reply),
    )


def ended(
    group_offsets: GroupOffsets, offsets: Mapping[TopicPartition, CommittedOffset], error: ErrorCode, record_offset: int
) -> ErrorCode:
    """Applies a commit that is in the log at `record_offset`, or fails it; returns the client's error. The group may be
    gone since; then its offsets are no one's."""
    if error is ErrorCode.NONE:
        group_offsets.appended(offsets, record_offset)
    elif is_late(error, record_offset):
        group_offsets.delayed(offsets, record_offset)
    else:
        group_offsets.failed(offsets)
    return COMMIT_ERRORS.get(error, error)


def is_late(error: ErrorCode, record_offset: int) -> bool:
    """Whether a write with this end is in the log all the same, and counts there once it is durable."""
    return record_offset != NO_OFFSET and error in _IN_THE_LOG


class OffsetsStored(NamedTuple):
    """A commit was written: it takes effect and is answered. `refused` are partitions with too large metadata."""

    group_offsets: GroupOffsets
    offsets: dict[TopicPartition, CommittedOffset]
    refused: frozenset[TopicPartition]
    requested: tuple[TopicPartition, ...]
    reply: Reply

    def stored(self, error: ErrorCode, record_offset: int, group_event: GroupEvent) -> None:
        """Applies and answers a commit that is in the log at `record_offset`, or fails it."""
        outcome = ended(self.group_offsets, self.offsets, error, record_offset)
        answers = (
            (each, ErrorCode.OFFSET_METADATA_TOO_LARGE if each in self.refused else outcome) for each in self.requested
        )
        group_event.answer(self.reply, committed(answers))


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
    """The partitions whose offsets have been unused for longer than the retention, and that no member reads."""
    since_ms = group.unused_since()
    if since_ms is None:
        return []
    return [
        each for each in group.offsets.expired(now_ms, retention_ms, since_ms) if not group.is_subscribed(each.topic)
    ]


def tombstones(group: Group, removed: Iterable[TopicPartition]) -> list[KeyValue]:
    """The tombstones of these offsets."""
    return [(write_offset_key(group.group_id, each), None) for each in removed]
