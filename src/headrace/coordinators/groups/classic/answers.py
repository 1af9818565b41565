"""Builders of the JoinGroup and SyncGroup responses from a group's state, and the errors of failed writes."""

from __future__ import annotations

from headrace.coordinators.groups.classic.group import NO_GENERATION, ClassicGroup
from headrace.coordinators.runtime import APPEND_ERRORS
from headrace.errors import ErrorCode
from headrace.protocol import messages as m

MEMBER_APPEND_ERRORS = {**APPEND_ERRORS, ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS}
"""The error of a joining or syncing member for a failed write of the group's metadata."""


def join_refused(member_id: str, error: ErrorCode) -> m.JoinGroupResponse:
    return m.JoinGroupResponse(
        error_code=error, generation_id=NO_GENERATION, protocol_name=None, leader="", member_id=member_id
    )


def joined(
    group: ClassicGroup, member_id: str, *, leader: str | None = None, skip_assignment: bool = False
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


def synced(group: ClassicGroup, assignment: bytes) -> m.SyncGroupResponse:
    return m.SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=assignment
    )
