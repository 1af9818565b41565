"""Removal of members: by LeaveGroup, by the end of their session, or with the whole group.

A static member sends no LeaveGroup when it stops (KIP-345). With LeaveGroup 3+ an administrator can remove it by its
instance id. Source: Kafka's `GroupCoordinator.handleLeaveGroup`, `onExpireHeartbeat`, `onGroupUnloaded`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from headrace.coordinators.groups.classic.answers import join_refused, sync_refused
from headrace.coordinators.groups.classic.group import ClassicGroup, GroupState
from headrace.coordinators.groups.classic.rebalance import drop, prepare, prepare_if_possible, try_complete_join
from headrace.coordinators.groups.group import NO_MEMBER_ID
from headrace.coordinators.groups.group_event import GroupEvent, TimerKind
from headrace.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.protocol import messages as m


def leave(group: ClassicGroup, identity: m.LeaveGroupRequest.MemberIdentity, group_event: GroupEvent) -> ErrorCode:
    """Removes one member, at its own or an administrator's request."""
    member_id = identity.member_id
    if member_id == NO_MEMBER_ID:
        current = group.static_members.get(identity.group_instance_id or "")
        if current is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = current
    elif member_id not in group.pending:
        fault = group.member_fault(member_id, identity.group_instance_id)
        if fault is not ErrorCode.NONE:
            return fault
    _remove(group, member_id, group_event)
    return ErrorCode.NONE


def session_expired(group: ClassicGroup, member_id: str, group_event: GroupEvent) -> None:
    """Removes a member whose session expired, unless it waits for a response: it cannot send heartbeats meanwhile."""
    member = group.members.get(member_id)
    if member is not None and not member.is_new and (member_id in group.joining or member_id in group.syncing):
        return  # the response restarts its session
    if member is not None or member_id in group.pending:
        _remove(group, member_id, group_event)


def _remove(group: ClassicGroup, member_id: str, group_event: GroupEvent) -> None:
    was_pending = member_id in group.pending
    drop(group, member_id, group_event)
    if group.state is GroupState.PREPARING:
        try_complete_join(group, group_event)
    elif group.state is not GroupState.EMPTY and not was_pending:
        prepare_if_possible(group, group_event)


def unload(group: ClassicGroup, error: ErrorCode, group_event: GroupEvent) -> None:
    """Answers all open requests of a group that is removed from this broker, and cancels its deadlines."""
    for member_id, reply in group.joining.items():
        group_event.answer(reply, join_refused(member_id, error))
    for reply in group.syncing.values():
        group_event.answer(reply, sync_refused(error))
    group.joining.clear()
    group.syncing.clear()
    for member_id in (*group.members, *group.pending):
        group_event.stop(TimerKind.SESSION, group, member_id)
    group_event.stop(TimerKind.JOIN, group)
    group_event.stop(TimerKind.SYNC, group)
    group.move_to(GroupState.DEAD, group_event.now_ms)


class GivenUp(NamedTuple):
    """A group that was given up, and the state in which it was."""

    group: ClassicGroup
    state: GroupState
    state_since_ms: int | None


def give_up(group: ClassicGroup, group_event: GroupEvent) -> GivenUp:
    """Ends a group whose place one of another kind takes. Its members have to join again."""
    given_up = GivenUp(group, group.state, group.state_since_ms)
    unload(group, ErrorCode.REBALANCE_IN_PROGRESS, group_event)
    return given_up


def take_up(given_up: GivenUp, group_event: GroupEvent) -> None:
    """Goes on with a group that was given up. Members that have lost a request join again."""
    group, state, since_ms = given_up
    group.pending.clear()
    group.pending_sync.clear()
    for member in group.members.values():
        group_event.touch(group, member)
    group.state, group.state_since_ms = GroupState.STABLE if group.members else GroupState.EMPTY, since_ms
    if group.members and state is not GroupState.STABLE:
        prepare(group, group_event)
