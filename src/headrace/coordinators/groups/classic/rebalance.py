"""Rebalances: all members join again, and those that have joined form the next generation.

    prepare ─▶ PreparingRebalance ──────▶ complete_join ─▶ CompletingRebalance, each JoinGroup is answered
                when all have joined (try_complete_join),
                or after the longest rebalance time-out of a
                member, or, for a group that was empty, the
                initial delay

Members learn of a rebalance from their heartbeats. A dynamic member that does not rejoin is dropped at the end; a
static member stays until its session expires. Source: Kafka's `GroupCoordinator`, `DelayedJoin`, `InitialDelayedJoin`.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.coordinators.groups.classic.answers import join_refused, joined, sync_refused, synced
from headrace.coordinators.groups.classic.group import ClassicGroup, GroupState, InitialDelay
from headrace.coordinators.groups.classic.records import write_group, write_group_key
from headrace.coordinators.groups.group import NO_MEMBER_ID
from headrace.coordinators.groups.group_event import GroupEvent, TimerKind
from headrace.errors import ErrorCode


def prepare_if_possible(group: ClassicGroup, group_event: GroupEvent) -> None:
    """Starts a rebalance, unless one is being prepared already."""
    if group.can_rebalance:
        prepare(group, group_event)


def prepare(group: ClassicGroup, group_event: GroupEvent) -> None:
    """Starts a rebalance. Members that wait for an assignment get REBALANCE_IN_PROGRESS."""
    if group.state is GroupState.COMPLETING:
        propagate_refusal(group, ErrorCode.REBALANCE_IN_PROGRESS, group_event)
    stop_waiting_for_syncs(group, group_event)
    if group.state is GroupState.EMPTY:
        delay_ms = group_event.config.group_initial_rebalance_delay_ms
        group.initial_delay = InitialDelay(delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
        group_event.start(TimerKind.JOIN, group, delay_ms)
    else:
        group.initial_delay = None
        group_event.start(TimerKind.JOIN, group, group.rebalance_timeout_ms)
    group.move_to(GroupState.PREPARING, group_event.now_ms)
    try_complete_join(group, group_event)


def try_complete_join(group: ClassicGroup, group_event: GroupEvent) -> None:
    """Completes the join early if all members have joined; never before the end of the initial delay."""
    if group.initial_delay is None and group.has_all_joined:
        complete_join(group, group_event)


def join_timed_out(group: ClassicGroup, group_event: GroupEvent) -> None:
    """Handles the deadline of PreparingRebalance: completes the join, or extends the initial delay."""
    delay = group.initial_delay
    if delay is None or not group.has_new_member or delay.remaining_ms == 0:
        complete_join(group, group_event)
        return
    group.has_new_member = False
    next_ms = min(group_event.config.group_initial_rebalance_delay_ms, delay.remaining_ms)
    group.initial_delay = InitialDelay(next_ms, max(delay.remaining_ms - delay.delay_ms, 0))
    group_event.start(TimerKind.JOIN, group, next_ms)


def complete_join(group: ClassicGroup, group_event: GroupEvent) -> None:
    """Starts the next generation with the members that have joined."""
    for member in list(group.members.values()):
        if not member.is_static and member.member_id not in group.joining:
            drop(group, member.member_id, group_event)
    if group.members and not group.elect_joined_leader():
        # Only static members are left, and none has rejoined: wait until one does, or their sessions expire.
        group_event.start(TimerKind.JOIN, group, max(group.rebalance_timeout_ms, 1))
        return
    group_event.stop(TimerKind.JOIN, group)
    group.initial_delay = None
    group.next_generation(group_event.now_ms)
    if group.state is GroupState.EMPTY:
        # No request waits for this write. If it is lost, the last generation is loaded again and times out again.
        group_event.append(group, [(write_group_key(group.group_id), write_group(group, {}))])
        return
    for member_id, member in list(group.members.items()):
        group_event.answer(group.joining.pop(member_id, None), joined(group, member_id))
        group_event.touch(group, member)
        if member.is_new:
            group.members[member_id] = member._replace(is_new=False)
    group.pending_sync.update(group.members)
    group_event.start(TimerKind.SYNC, group, group.rebalance_timeout_ms)


def store_assignments(assignments: Mapping[str, bytes], group: ClassicGroup, group_event: GroupEvent) -> None:
    """Sets the members' assignments, which are in the log, and answers waiting SyncGroup requests."""
    for member_id, member in list(group.members.items()):
        group.members[member_id] = member._replace(assignment=assignments[member_id])
    for member_id in list(group.syncing):
        member = group.members[member_id]
        group_event.answer(group.syncing.pop(member_id), synced(group, member.assignment))
        group_event.touch(group, member)
    group.move_to(GroupState.STABLE, group_event.now_ms)


def propagate_refusal(group: ClassicGroup, error: ErrorCode, group_event: GroupEvent) -> None:
    """Answers all waiting SyncGroup requests with an error: this generation gets no assignment."""
    for member_id, member in list(group.members.items()):
        group.members[member_id] = member._replace(assignment=b"")
    for member_id in list(group.syncing):
        group_event.answer(group.syncing.pop(member_id), sync_refused(error))
        group_event.touch(group, group.members[member_id])


def stop_waiting_for_syncs(group: ClassicGroup, group_event: GroupEvent) -> None:
    group.pending_sync.clear()
    group_event.stop(TimerKind.SYNC, group)


def drop(group: ClassicGroup, member_id: str, group_event: GroupEvent) -> None:
    """Removes a member or pending member and answers its open requests, without a rebalance.

    The answer UNKNOWN_MEMBER_ID makes a client that is still alive join again.
    """
    joining, syncing = group.remove(member_id)
    group_event.answer(joining, join_refused(NO_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID))
    group_event.answer(syncing, sync_refused(ErrorCode.UNKNOWN_MEMBER_ID))
    group_event.stop(TimerKind.SESSION, group, member_id)
    if not group.pending_sync:
        group_event.stop(TimerKind.SYNC, group)
