"""TxnOffsetCommit: offsets that are committed with a transaction, or dropped with it.

    written in a transactional batch ─▶ pending by producer ─▶ commit marker: committed
                                                            └▶ abort marker: dropped

Clients before version 3 name no member; they may commit to any group. Others must be a current member of it, or name no
generation for a group without members. The state of a rebalance does not matter, and the commit keeps no session alive,
as in Apache Kafka. Source: Kafka's `OffsetMetadataManager.commitTransactionalOffset`,
`ClassicGroup.validateOffsetCommit`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from headrace.coordinators.groups.answers import committed_in_transaction
from headrace.coordinators.groups.commits import COMMIT_ERRORS, is_late, too_large
from headrace.coordinators.groups.group import Committer, Group
from headrace.coordinators.groups.offsets import CommittedOffset, GroupOffsets
from headrace.coordinators.groups.records import write_offset, write_offset_key
from headrace.errors import ErrorCode
from headrace.types import TopicPartition

if TYPE_CHECKING:
    from headrace.coordinators.groups.group_event import GroupEvent
    from headrace.coordinators.groups.replies import Reply
    from headrace.coordinators.runtime import TransactionalProducer
    from headrace.protocol import messages as m


def offsets_of(request: m.TxnOffsetCommitRequest, now_ms: int) -> dict[TopicPartition, CommittedOffset]:
    """The offsets that the request commits."""
    return {
        TopicPartition(topic.name, each.partition_index): CommittedOffset(
            each.committed_offset, each.committed_leader_epoch, each.committed_metadata or "", now_ms
        )
        for topic in request.topics
        for each in topic.partitions
    }


def commit(
    group: Group,
    request: m.TxnOffsetCommitRequest,
    committer: Committer,
    producer: TransactionalProducer,
    reply: Reply,
    group_event: GroupEvent,
) -> bool:
    """Whether the commit is written, and answered then. A refused commit is answered now."""
    offsets = offsets_of(request, group_event.now_ms)
    refused = too_large(offsets, group_event.config.offset_metadata_max_bytes)
    accepted = {partition: each for partition, each in offsets.items() if partition not in refused}
    fault = group.commit_fault(committer, accepted)
    if fault is ErrorCode.STALE_MEMBER_EPOCH:
        fault = ErrorCode.ILLEGAL_GENERATION  # clients of this API know no other
    if fault is not ErrorCode.NONE:
        group_event.answer(reply, committed_in_transaction((partition, fault) for partition in offsets))
        return False
    group.committing(committer, group_event)
    if not accepted:
        faults = ((each, ErrorCode.OFFSET_METADATA_TOO_LARGE) for each in offsets)
        group_event.answer(reply, committed_in_transaction(faults))
        return False
    replaced = group.offsets.prepare_in_transaction(producer.producer_id, accepted)
    group_event.append(
        group,
        [(write_offset_key(group.group_id, partition), write_offset(each)) for partition, each in accepted.items()],
        TransactionalOffsetsStored(
            group.offsets, producer.producer_id, accepted, replaced, refused, tuple(offsets), reply
        ),
        producer,
    )
    return True


class TransactionalOffsetsStored(NamedTuple):
    """A transactional commit was written: it waits for its transaction's marker, and is answered. `replaced` are the
    offsets of an earlier commit of the transaction, `refused` the partitions with too large metadata."""

    group_offsets: GroupOffsets
    producer_id: int
    offsets: dict[TopicPartition, CommittedOffset]
    replaced: dict[TopicPartition, CommittedOffset]
    refused: frozenset[TopicPartition]
    requested: tuple[TopicPartition, ...]
    reply: Reply

    def stored(self, error: ErrorCode, record_offset: int, group_event: GroupEvent) -> None:
        """Answers a commit that is in the log at `record_offset`, or fails it. If it was not durable in time, its
        transaction's marker decides about it all the same."""
        if error is ErrorCode.NONE or is_late(error, record_offset):
            self.group_offsets.appended_in_transaction(self.producer_id, self.offsets, record_offset)
        else:
            self.group_offsets.failed_in_transaction(self.producer_id, self.offsets, self.replaced)
        outcome = COMMIT_ERRORS.get(error, error)
        answers = (
            (each, ErrorCode.OFFSET_METADATA_TOO_LARGE if each in self.refused else outcome) for each in self.requested
        )
        group_event.answer(self.reply, committed_in_transaction(answers))
