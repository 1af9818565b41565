"""TxnOffsetCommit: offsets that are committed with a transaction, or dropped with it.

    written in a transactional batch ─▶ pending by producer ─▶ commit marker: committed
                                                            └▶ abort marker: dropped

Clients before version 3 name no member; they may commit to any group. Others must be a current member of it, or name no
generation for a group without members. The state of a rebalance does not matter, and the commit keeps no session alive,
as in Apache Kafka. Source: Kafka's `OffsetMetadataManager.commitTransactionalOffset`,
`ClassicGroup.validateOffsetCommit`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.coordinators.groups.actions import TransactionalOffsetsStored
from headrace.coordinators.groups.answers import committed_in_transaction
from headrace.coordinators.groups.commits import APPEND_ERRORS
from headrace.coordinators.groups.group import NO_MEMBER_ID, Group, State
from headrace.coordinators.groups.joining import check_member
from headrace.coordinators.groups.offsets import CommittedOffset
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
    producer: TransactionalProducer,
    reply: Reply,
    group_event: GroupEvent,
) -> bool:
    """Whether the commit is written, and answered then. A refused commit is answered now."""
    offsets = offsets_of(request, group_event.now_ms)
    fault = _fault(group, request)
    if fault is not ErrorCode.NONE:
        group_event.answer(reply, committed_in_transaction((partition, fault) for partition in offsets))
        return False
    limit = group_event.config.offset_metadata_max_bytes
    accepted = {partition: each for partition, each in offsets.items() if len(each.metadata) <= limit}
    refused = frozenset(offsets) - frozenset(accepted)
    if not accepted:
        too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
        group_event.answer(reply, committed_in_transaction((each, too_large) for each in offsets))
        return False
    replaced = group.offsets.prepare_in_transaction(producer.producer_id, accepted)
    records = [
        (write_offset_key(group.group_id, partition), write_offset(each)) for partition, each in accepted.items()
    ]
    then = TransactionalOffsetsStored(group, producer.producer_id, accepted, replaced, refused, tuple(offsets), reply)
    group_event.append(group, [*records], then, producer)
    return True


def _fault(group: Group, request: m.TxnOffsetCommitRequest) -> ErrorCode:
    generation, member_id, instance_id = request.generation_id, request.member_id, request.group_instance_id
    if generation < 0 and group.state is State.EMPTY:
        return ErrorCode.NONE
    if generation < 0 and member_id == NO_MEMBER_ID and instance_id is None:
        return ErrorCode.NONE
    fault = check_member(group, member_id, instance_id)
    if fault is not ErrorCode.NONE:
        return fault
    return ErrorCode.NONE if generation == group.generation else ErrorCode.ILLEGAL_GENERATION


def offsets_stored(
    stored: TransactionalOffsetsStored, error: ErrorCode, record_offset: int, group_event: GroupEvent
) -> None:
    """Answers a commit that is in the log at `record_offset`, or fails it."""
    if stored.group.state is not State.DEAD:
        offsets = stored.group.offsets
        if error is ErrorCode.NONE:
            offsets.appended_in_transaction(stored.producer_id, stored.offsets, record_offset)
        else:
            offsets.failed_in_transaction(stored.producer_id, stored.offsets, stored.replaced)
    outcome = APPEND_ERRORS.get(error, error)
    group_event.answer(
        stored.reply,
        committed_in_transaction(
            (each, ErrorCode.OFFSET_METADATA_TOO_LARGE if each in stored.refused else outcome)
            for each in stored.requested
        ),
    )
