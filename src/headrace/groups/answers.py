"""The response messages of JoinGroup, SyncGroup and OffsetCommit, made from a group's state."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.errors import ErrorCode
from headrace.groups.group import NO_GENERATION, Group
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
    """The current generation as this member sees it: only the leader gets the list of members.

    `leader` names another one instead, for a client that must not take itself for it.
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


def committed(errors: Iterable[tuple[TopicPartition, ErrorCode]]) -> m.OffsetCommitResponse:
    """One error per partition, in topics in the order they first come."""
    topics: dict[str, m.OffsetCommitResponse.OffsetCommitResponseTopic] = {}
    for (topic, partition), error in errors:
        if topic not in topics:
            topics[topic] = m.OffsetCommitResponse.OffsetCommitResponseTopic(name=topic, partitions=[])
        topics[topic].partitions.append(
            m.OffsetCommitResponse.OffsetCommitResponsePartition(partition_index=partition, error_code=error)
        )
    return m.OffsetCommitResponse(topics=list(topics.values()))
