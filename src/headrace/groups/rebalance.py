"""A rebalance: everybody is asked to join again, and whoever has by the end forms the next generation.

    prepare ─▶ PreparingRebalance ──────▶ complete_join ─▶ CompletingRebalance, each JoinGroup is answered
                all joined (try_complete_join), or the
                longest rebalance time-out of a member, or, for
                a group that was empty, the initial delay

Members hear of it by their heartbeats. A dynamic member that does not come back is dropped at the end; a static
one stays until its session ends. Source: Kafka's `GroupCoordinator`, `DelayedJoin`, `InitialDelayedJoin`.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.errors import ErrorCode
from headrace.groups.answers import join_refused, joined, sync_refused, synced
from headrace.groups.group import NO_MEMBER_ID, Group, InitialDelay, State
from headrace.groups.records import write_group, write_group_key
from headrace.groups.turn import TimerKind, Turn


def prepare_if_possible(group: Group, turn: Turn) -> None:
    """Begin a rebalance unless one has begun already."""
    if group.can_rebalance:
        prepare(group, turn)


def prepare(group: Group, turn: Turn) -> None:
    """Begin a rebalance; those who wait for an assignment are sent to join again."""
    if group.state is State.COMPLETING:
        propagate_refusal(group, ErrorCode.REBALANCE_IN_PROGRESS, turn)
    stop_waiting_for_syncs(group, turn)
    if group.state is State.EMPTY:
        delay_ms = turn.config.group_initial_rebalance_delay_ms
        group.initial_delay = InitialDelay(delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
        turn.start(TimerKind.JOIN, group, delay_ms)
    else:
        group.initial_delay = None
        turn.start(TimerKind.JOIN, group, group.rebalance_timeout_ms)
    group.move_to(State.PREPARING, turn.now_ms)
    try_complete_join(group, turn)


def try_complete_join(group: Group, turn: Turn) -> None:
    """End the wait early when nobody is missing; the initial delay is always waited out."""
    if group.initial_delay is None and group.has_all_joined:
        complete_join(group, turn)


def join_time_is_up(group: Group, turn: Turn) -> None:
    """The deadline of PreparingRebalance: end it, or wait on for a group that is still filling up."""
    delay = group.initial_delay
    if delay is None or not group.somebody_came or delay.remaining_ms == 0:
        complete_join(group, turn)
        return
    group.somebody_came = False
    next_ms = min(turn.config.group_initial_rebalance_delay_ms, delay.remaining_ms)
    group.initial_delay = InitialDelay(next_ms, max(delay.remaining_ms - delay.delay_ms, 0))
    turn.start(TimerKind.JOIN, group, next_ms)


def complete_join(group: Group, turn: Turn) -> None:
    """The next generation begins with those who have joined."""
    for member in list(group.members.values()):
        if not member.is_static and member.member_id not in group.joining:
            drop(group, member.member_id, turn)
    if group.members and not group.elect_joined_leader():
        # Only static members are left and none is back: wait on, until one is or their sessions end.
        turn.start(TimerKind.JOIN, group, max(group.rebalance_timeout_ms, 1))
        return
    turn.stop(TimerKind.JOIN, group)
    group.initial_delay = None
    group.next_generation(turn.now_ms)
    if group.state is State.EMPTY:
        # Nobody waits: if this is lost, the last generation comes back at a restart and times out again.
        turn.append(group, [(write_group_key(group.group_id), write_group(group, {}))])
        return
    for member_id, member in list(group.members.items()):
        turn.answer(group.joining.pop(member_id, None), joined(group, member_id))
        turn.touch(group, member)
        if member.is_new:
            group.members[member_id] = member._replace(is_new=False)
    group.pending_sync.update(group.members)
    turn.start(TimerKind.SYNC, group, group.rebalance_timeout_ms)


def store_assignments(assignments: Mapping[str, bytes], group: Group, turn: Turn) -> None:
    """Every member has the assignment that the log has, and hears of it if it waits: the group is stable."""
    for member_id, member in list(group.members.items()):
        group.members[member_id] = member._replace(assignment=assignments[member_id])
    for member_id in list(group.syncing):
        member = group.members[member_id]
        turn.answer(group.syncing.pop(member_id), synced(group, member.assignment))
        turn.touch(group, member)
    group.move_to(State.STABLE, turn.now_ms)


def propagate_refusal(group: Group, error: ErrorCode, turn: Turn) -> None:
    """This generation gets no assignment."""
    for member_id, member in list(group.members.items()):
        group.members[member_id] = member._replace(assignment=b"")
    for member_id in list(group.syncing):
        turn.answer(group.syncing.pop(member_id), sync_refused(error))
        turn.touch(group, group.members[member_id])


def stop_waiting_for_syncs(group: Group, turn: Turn) -> None:
    group.pending_sync.clear()
    turn.stop(TimerKind.SYNC, group)


def drop(group: Group, member_id: str, turn: Turn) -> None:
    """Take a member or pending member out and answer what it has open; the group does not rebalance by this.

    UNKNOWN_MEMBER_ID makes a client that is alive after all join anew.
    """
    joining, syncing = group.remove(member_id)
    turn.answer(joining, join_refused(NO_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID))
    turn.answer(syncing, sync_refused(ErrorCode.UNKNOWN_MEMBER_ID))
    turn.stop(TimerKind.SESSION, group, member_id)
    if not group.pending_sync:
        turn.stop(TimerKind.SYNC, group)
