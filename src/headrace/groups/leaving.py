"""How members go: by LeaveGroup, by the end of their session, or with the whole group.

A static member that goes away says nothing (KIP-345); LeaveGroup 3+ lets an administrator take it out by its
instance id alone. Source: Kafka's `GroupCoordinator.handleLeaveGroup`, `onExpireHeartbeat`, `onGroupUnloaded`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import ErrorCode
from headrace.groups.answers import join_refused, sync_refused
from headrace.groups.group import NO_MEMBER_ID, Group, State
from headrace.groups.joining import whose_fault
from headrace.groups.rebalance import drop, prepare_if_possible, try_complete_join
from headrace.groups.turn import TimerKind, Turn

if TYPE_CHECKING:
    from headrace.protocol import messages as m


def leave(group: Group, identity: m.LeaveGroupRequest.MemberIdentity, turn: Turn) -> ErrorCode:
    """One member goes of its own will, or an administrator's."""
    member_id = identity.member_id
    if member_id == NO_MEMBER_ID:
        current = group.static_members.get(identity.group_instance_id or "")
        if current is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = current
    elif member_id not in group.pending:
        fault = whose_fault(group, member_id, identity.group_instance_id)
        if fault is not ErrorCode.NONE:
            return fault
    _remove(group, member_id, turn)
    return ErrorCode.NONE


def session_is_over(group: Group, member_id: str, turn: Turn) -> None:
    """A member's deadline passed. One that waits for our own answer is not silent: it is we who owe it one."""
    member = group.members.get(member_id)
    if member is not None and not member.is_new and (member_id in group.joining or member_id in group.syncing):
        return  # its session starts anew with that answer
    if member is not None or member_id in group.pending:
        _remove(group, member_id, turn)


def _remove(group: Group, member_id: str, turn: Turn) -> None:
    was_pending = member_id in group.pending
    drop(group, member_id, turn)
    if group.state is State.PREPARING:
        try_complete_join(group, turn)
    elif group.state is not State.EMPTY and not was_pending:
        prepare_if_possible(group, turn)


def kill(group: Group, error: ErrorCode, turn: Turn) -> None:
    """The group is no longer here: whoever waits is told why, and no deadline of it is left."""
    for member_id, reply in group.joining.items():
        turn.answer(reply, join_refused(member_id, error))
    for reply in group.syncing.values():
        turn.answer(reply, sync_refused(error))
    group.joining.clear()
    group.syncing.clear()
    for member_id in (*group.members, *group.pending):
        turn.stop(TimerKind.SESSION, group, member_id)
    turn.stop(TimerKind.JOIN, group)
    turn.stop(TimerKind.SYNC, group)
    group.move_to(State.DEAD, turn.now_ms)
