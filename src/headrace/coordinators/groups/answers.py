"""Builders of the JoinGroup, SyncGroup, OffsetCommit and TxnOffsetCommit responses from a group's state."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.coordinators.groups.group import NO_GENERATION, Group
from headrace.errors import ErrorCode
from headrace.protocol import messages as m

if TYPE_CHECKING:
    from headrace.types import TopicPartition


def join_refused(member_id: str, error: ErrorCode) -> m.JoinGroupResponse:
    return m.JoinGroupResponse(
        error_code=error, generation_id=NO_GENERATION, protocol_name=None, leader="", member_id=member_id
    )


def joined(
    group: Group, member_id: str, *, leader: str | None = None, skip_assignment: bool = False
) -> m.JoinGroupResponse:
    """The current generation for one member. Only the leader gets the list of members.

    `leader` names another leader, for a client that must not conclude that it leads.
    """
    leader_id = group.leader_id or "" if leader is None else leader
    protocol = group.protocol_name or ""
    members = [
        m.JoinGroupResponse.JoinGroupResponseMember(
            member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata(protocol)
        )
        for member in (group.members.values() if leader_id == member_id else ())
    ]
    return m.JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=leader_id,
        skip_assignment=skip_assignment,
        member_id=member_id,
        members=members,
    )


def sync_refused(error: ErrorCode) -> m.SyncGroupResponse:
    return m.SyncGroupResponse(error_code=error, assignment=b"")


def synced(group: Group, assignment: bytes) -> m.SyncGroupResponse:
    return m.SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=assignment
    )


def committed_in_transaction(errors: Iterable[tuple[TopicPartition, ErrorCode]]) -> m.TxnOffsetCommitResponse:
    """As `committed`, for a transactional commit."""
    topics: dict[str, m.TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic] = {}
    for (topic, partition), error in errors:
        if topic not in topics:
            topics[topic] = m.TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic(name=topic, partitions=[])
        topics[topic].partitions.append(
            m.TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition(partition_index=partition, error_code=error)
        )
    return m.TxnOffsetCommitResponse(topics=list(topics.values()))


def committed(errors: Iterable[tuple[TopicPartition, ErrorCode]]) -> m.OffsetCommitResponse:
    """One error for each partition, with the topics in the order of their first partition."""
    topics: dict[str, m.OffsetCommitResponse.OffsetCommitResponseTopic] = {}
    for (topic, partition), error in errors:
        if topic not in topics:
            topics[topic] = m.OffsetCommitResponse.OffsetCommitResponseTopic(name=topic, partitions=[])
        topics[topic].partitions.append(
            m.OffsetCommitResponse.OffsetCommitResponsePartition(partition_index=partition, error_code=error)
        )
    return m.OffsetCommitResponse(topics=list(topics.values()))
