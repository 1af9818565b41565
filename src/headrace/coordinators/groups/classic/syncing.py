"""SyncGroup and Heartbeat: SyncGroup distributes the leader's assignment, Heartbeat checks that it is still valid.

    CompletingRebalance   SyncGroup waits until the leader's assignment is in the log; then all members are answered
    Stable                SyncGroup is answered at once
    PreparingRebalance    REBALANCE_IN_PROGRESS: the member must join again

Members that have joined must send SyncGroup within the rebalance time-out; others are dropped, and the group
rebalances. Source: Kafka's `GroupCoordinator.handleSyncGroup`, `handleHeartbeat`, `DelayedSync`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from headrace.coordinators.groups.classic.answers import MEMBER_APPEND_ERRORS, sync_refused, synced
from headrace.coordinators.groups.classic.group import ClassicGroup, GroupState
from headrace.coordinators.groups.classic.rebalance import (
    drop,
    prepare,
    prepare_if_possible,
    propagate_refusal,
    store_assignments,
)
from headrace.coordinators.groups.classic.records import write_group, write_group_key
from headrace.coordinators.groups.group_event import GroupEvent, TimerKind
from headrace.coordinators.groups.replies import Reply
from headrace.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.protocol import messages as m

STATE_ANSWERS = {
    GroupState.EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    GroupState.PREPARING: ErrorCode.REBALANCE_IN_PROGRESS,
    GroupState.COMPLETING: ErrorCode.NONE,
    GroupState.STABLE: ErrorCode.NONE,
    GroupState.DEAD: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
"""The error code of a Heartbeat or SyncGroup of a current member, by the group's state."""


def sync(group: ClassicGroup, request: m.SyncGroupRequest, reply: Reply, group_event: GroupEvent) -> None:
    """Answers now, or keeps `reply` in the group until the assignment is in the log."""
    fault = _sync_fault(group, request)
    if fault is not ErrorCode.NONE:
        group_event.answer(reply, sync_refused(fault))
        return
    member_id = request.member_id
    group.pending_sync.discard(member_id)
    if not group.pending_sync:
        group_event.stop(TimerKind.SYNC, group)
    if group.state is GroupState.STABLE:
        member = group.members[member_id]
        group_event.answer(reply, synced(group, member.assignment))
        group_event.touch(group, member)
        return
    earlier = group.syncing.pop(member_id, None)  # the client gave it up, as in `joining`
    group_event.answer(earlier, sync_refused(ErrorCode.REBALANCE_IN_PROGRESS))
    group.syncing[member_id] = reply
    if group.leader_id == member_id:
        given = {each.member_id: bytes(each.assignment) for each in request.assignments}
        assignments = {each: given.get(each, b"") for each in group.members}
        stored = AssignmentStored(group, group.generation, assignments)
        group_event.append(group, [(write_group_key(group.group_id), write_group(group, assignments))], stored)


def _sync_fault(group: ClassicGroup, request: m.SyncGroupRequest) -> ErrorCode:
    fault = group.member_fault(request.member_id, request.group_instance_id)
    if fault is not ErrorCode.NONE:
        return fault
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if request.protocol_type is not None and request.protocol_type != group.protocol_type:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if request.protocol_name is not None and request.protocol_name != group.protocol_name:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return STATE_ANSWERS[group.state]


class AssignmentStored(NamedTuple):
    """The leader's assignment was written: members get it."""

    group: ClassicGroup
    generation: int
    assignments: dict[str, bytes]

    def stored(self, error: ErrorCode, record_offset: int, group_event: GroupEvent) -> None:
        _assignment_stored(self, MEMBER_APPEND_ERRORS.get(error, error), group_event)


def _assignment_stored(stored: AssignmentStored, error: ErrorCode, group_event: GroupEvent) -> None:
    """Distributes an assignment that was written, or fails it. Does nothing if a new generation has begun meanwhile."""
    group = stored.group
    if group.state is not GroupState.COMPLETING or group.generation != stored.generation:
        return
    if error is ErrorCode.NONE:
        store_assignments(stored.assignments, group, group_event)
    else:
        propagate_refusal(group, error, group_event)
        prepare_if_possible(group, group_event)


def sync_timed_out(group: ClassicGroup, group_event: GroupEvent) -> None:
    """Drops members that joined but did not send SyncGroup in time, and rebalances."""
    if group.state in (GroupState.COMPLETING, GroupState.STABLE) and group.pending_sync:
        for member_id in list(group.pending_sync):
            drop(group, member_id, group_event)
        prepare(group, group_event)


def heartbeat(group: ClassicGroup, request: m.HeartbeatRequest, group_event: GroupEvent) -> ErrorCode:
    """Restarts the member's session, and returns the error code for the group's state."""
    fault = group.member_fault(request.member_id, request.group_instance_id)
    if fault is not ErrorCode.NONE:
        return fault
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    group_event.touch(group, group.members[request.member_id])
    return STATE_ANSWERS[group.state]
