"""SyncGroup: the leader brings the assignment, the others fetch it; and Heartbeat, which asks whether it still holds.

    CompletingRebalance   every SyncGroup waits; the leader's is written to the log first, and then all are answered
    Stable                answered at once
    PreparingRebalance    REBALANCE_IN_PROGRESS: join again

Members that have joined have the rebalance time-out for their SyncGroup; after it they are dropped, and the rest
rebalances. Source: Kafka's `GroupCoordinator.handleSyncGroup`, `handleHeartbeat`, `DelayedSync`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import ErrorCode
from headrace.groups.actions import AssignmentStored, Reply
from headrace.groups.answers import sync_refused, synced
from headrace.groups.group import Group, State
from headrace.groups.joining import whose_fault
from headrace.groups.rebalance import drop, prepare, prepare_if_possible, propagate_refusal, store_assignments
from headrace.groups.records import write_group, write_group_key
from headrace.groups.turn import TimerKind, Turn

if TYPE_CHECKING:
    from headrace.protocol import messages as m

STATE_ANSWERS = {
    State.EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    State.PREPARING: ErrorCode.REBALANCE_IN_PROGRESS,
    State.COMPLETING: ErrorCode.NONE,
    State.STABLE: ErrorCode.NONE,
    State.DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
"""What a member of the current generation is told about the group's state."""


def sync(group: Group, request: m.SyncGroupRequest, reply: Reply, turn: Turn) -> None:
    """Answers now, or leaves `reply` with the group until the assignment is there."""
    fault = _sync_fault(group, request)
    if fault is not ErrorCode.NONE:
        turn.answer(reply, sync_refused(fault))
        return
    member_id = request.member_id
    group.pending_sync.discard(member_id)
    if not group.pending_sync:
        turn.stop(TimerKind.SYNC, group)
    if group.state is State.STABLE:
        member = group.members[member_id]
        turn.answer(reply, synced(group, member.assignment))
        turn.touch(group, member)
        return
    earlier = group.syncing.pop(member_id, None)  # given up by its client, as in `joining`
    turn.answer(earlier, sync_refused(ErrorCode.REBALANCE_IN_PROGRESS))
    group.syncing[member_id] = reply
    if group.leader_id == member_id:
        given = {each.member_id: bytes(each.assignment) for each in request.assignments}
        assignments = {each: given.get(each, b"") for each in group.members}
        stored = AssignmentStored(group, group.generation, assignments)
        turn.append(group, [(write_group_key(group.group_id), write_group(group, assignments))], stored)


def _sync_fault(group: Group, request: m.SyncGroupRequest) -> ErrorCode:
    fault = whose_fault(group, request.member_id, request.group_instance_id)
    if fault is not ErrorCode.NONE:
        return fault
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if request.protocol_type is not None and request.protocol_type != group.protocol_type:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if request.protocol_name is not None and request.protocol_name != group.protocol_name:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return STATE_ANSWERS[group.state]


def assignment_stored(stored: AssignmentStored, error: ErrorCode, turn: Turn) -> None:
    """The log has the assignment, or could not take it. Too late for a group that has moved on."""
    group = stored.group
    if group.state is not State.COMPLETING or group.generation != stored.generation:
        return
    if error is ErrorCode.NONE:
        store_assignments(stored.assignments, group, turn)
    else:
        propagate_refusal(group, error, turn)
        prepare_if_possible(group, turn)


def sync_time_is_up(group: Group, turn: Turn) -> None:
    """Members that joined and never asked for their assignment are lost."""
    if group.state in (State.COMPLETING, State.STABLE) and group.pending_sync:
        for member_id in list(group.pending_sync):
            drop(group, member_id, turn)
        prepare(group, turn)


def heartbeat(group: Group, request: m.HeartbeatRequest, turn: Turn) -> ErrorCode:
    """The member lives; what it should know of the group."""
    fault = whose_fault(group, request.member_id, request.group_instance_id)
    if fault is not ErrorCode.NONE:
        return fault
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    turn.touch(group, group.members[request.member_id])
    return STATE_ANSWERS[group.state]
