"""JoinGroup: who comes in, under which id, and whether that is a reason to rebalance.

    member id empty   dynamic, version 4+    is given an id and must join again with it (KIP-394)
                      dynamic, before        comes in, and the group rebalances
                      static, not here yet   comes in, and the group rebalances
                      static, here already   takes the old one's place (KIP-345); a stable group whose protocol
                                             stays the same does not rebalance
    member id given   pending                comes in, and the group rebalances
                      a member               PreparingRebalance: it has rejoined. Later: rebalances when its
                                             protocols changed or it leads a stable group; else it is told the
                                             current generation once more
                      somebody else's        FENCED_INSTANCE_ID or UNKNOWN_MEMBER_ID

Source: Kafka's `GroupCoordinator.handleJoinGroup`.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.errors import ErrorCode
from headrace.groups.actions import Reply, StaticMemberStored
from headrace.groups.answers import join_refused, joined, sync_refused
from headrace.groups.group import NO_MEMBER_ID, Group, State
from headrace.groups.members import Join, Member, new_member
from headrace.groups.rebalance import drop, prepare, prepare_if_possible, try_complete_join
from headrace.groups.records import write_group, write_group_key
from headrace.groups.turn import TimerKind, Turn

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""A new member cannot send heartbeats while its JoinGroup waits; if its client is gone, this is when we notice."""


def join(group: Group, event: Join, reply: Reply, new_id: Callable[[], str], turn: Turn) -> None:
    """Answers now, or leaves `reply` with the group until the rebalance completes."""
    if not _has_room(group, event.member_id, turn.config.group_max_size):
        drop(group, event.member_id, turn)
        turn.answer(reply, join_refused(NO_MEMBER_ID, ErrorCode.GROUP_MAX_SIZE_REACHED))
    elif not group.supports(event.protocol_type, event.protocols):
        turn.answer(reply, join_refused(event.member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    elif event.member_id == NO_MEMBER_ID:
        _join_as_new(group, event, reply, new_id, turn)
    elif event.member_id in group.pending:
        _join_as_pending(group, event, reply, turn)
    else:
        _join_as_member(group, event, reply, turn)
    if group.state is State.PREPARING:
        try_complete_join(group, turn)


def whose_fault(group: Group, member_id: str, instance_id: str | None) -> ErrorCode:
    """NONE when this is the group's member; else why it is not."""
    if instance_id is not None:
        current = group.static_members.get(instance_id)
        if current is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if current != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID


def _has_room(group: Group, member_id: str, size_max: int) -> bool:
    """While members rejoin, those who have done so count, so that a group over a lowered limit loses its last ones."""
    if group.state is State.EMPTY:
        return True
    if group.state is State.PREPARING:
        return member_id in group.joining or len(group.joining) < size_max
    return member_id in group.members or len(group.members) < size_max


def _join_as_new(group: Group, event: Join, reply: Reply, new_id: Callable[[], str], turn: Turn) -> None:
    prefix = event.client_id if event.instance_id is None else event.instance_id
    member_id = f"{prefix}-{new_id()}"
    if event.instance_id is not None and event.instance_id in group.static_members:
        _replace_static(group, event, member_id, reply, turn)
    elif event.must_know_member_id:
        group.pending.add(member_id)
        turn.start(TimerKind.SESSION, group, event.session_timeout_ms, member_id)
        turn.answer(reply, join_refused(member_id, ErrorCode.MEMBER_ID_REQUIRED))
    else:
        _add(group, event, member_id, reply, turn)


def _join_as_pending(group: Group, event: Join, reply: Reply, turn: Turn) -> None:
    if event.instance_id is not None:  # ids are only ever given out to dynamic members
        turn.answer(reply, join_refused(event.member_id, ErrorCode.UNKNOWN_SERVER_ERROR))
    else:
        _add(group, event, event.member_id, reply, turn)


def _join_as_member(group: Group, event: Join, reply: Reply, turn: Turn) -> None:
    member_id = event.member_id
    fault = whose_fault(group, member_id, event.instance_id)
    if fault is ErrorCode.NONE and group.state is State.EMPTY:
        fault = ErrorCode.UNKNOWN_MEMBER_ID
    if fault is not ErrorCode.NONE:
        turn.answer(reply, join_refused(member_id, fault))
        return
    member = group.members[member_id]
    leads_stable = group.state is State.STABLE and group.leader_id == member_id
    if group.state is State.PREPARING or leads_stable or member.protocols != event.protocols:
        # A leader may ask for a rebalance by joining: topics that the group reads may have changed.
        _update(group, member, event, reply, turn)
        prepare_if_possible(group, turn)
    else:
        turn.answer(reply, joined(group, member_id))  # its client has missed our first answer


def _add(group: Group, event: Join, member_id: str, reply: Reply, turn: Turn) -> None:
    if group.state is State.PREPARING and group.generation == 0:
        group.somebody_came = True
    member = new_member(event, member_id)
    group.add(member, event.protocol_type)
    group.joining[member_id] = reply
    turn.touch(group, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
    prepare_if_possible(group, turn)


def _update(group: Group, member: Member, event: Join, reply: Reply, turn: Turn) -> Member:
    """The member is as it now says, and waits for the rebalance."""
    updated = member._replace(
        protocols=event.protocols,
        session_timeout_ms=event.session_timeout_ms,
        rebalance_timeout_ms=event.rebalance_timeout_ms,
    )
    group.update(updated)
    # A client that asks again has given its first request up. Kafka drops it unanswered; here every request is
    # answered, since later ones of its connection wait behind it.
    earlier = group.joining.pop(member.member_id, None)
    turn.answer(earlier, join_refused(member.member_id, ErrorCode.REBALANCE_IN_PROGRESS))
    group.joining[member.member_id] = reply
    return updated


def _replace_static(group: Group, event: Join, new_member_id: str, reply: Reply, turn: Turn) -> None:
    """A static member came back without its id: it has restarted, and whoever still uses the old id is fenced."""
    assert event.instance_id is not None
    previous = group.members[group.static_members[event.instance_id]]
    previous_leader = group.leader_id or ""
    joining, syncing = group.rename(previous.member_id, new_member_id)
    turn.answer(joining, join_refused(previous.member_id, ErrorCode.FENCED_INSTANCE_ID))
    turn.answer(syncing, sync_refused(ErrorCode.FENCED_INSTANCE_ID))
    turn.stop(TimerKind.SESSION, group, previous.member_id)
    member = _update(group, group.members[new_member_id], event, reply, turn)
    turn.touch(group, member)
    if group.state is State.COMPLETING:
        # The leader may be assigning to the old id just now; the new one would be left with nothing.
        prepare(group, turn)
    elif group.state is State.STABLE and group.select_protocol() != group.protocol_name:
        prepare(group, turn)
    elif group.state is State.STABLE:
        assignments = {each.member_id: each.assignment for each in group.members.values()}
        stored = StaticMemberStored(
            group, group.generation, new_member_id, previous, previous_leader, event.can_skip_assignment
        )
        turn.append(group, [(write_group_key(group.group_id), write_group(group, assignments))], stored)


def static_member_stored(stored: StaticMemberStored, error: ErrorCode, turn: Turn) -> None:
    """The log has the new member id, or could not take it.

    When the group has begun to rebalance meanwhile, the member's JoinGroup waits for that like the others'.
    """
    group, member_id = stored.group, stored.new_member_id
    if group.state is not State.STABLE or group.generation != stored.generation or member_id not in group.joining:
        return
    reply = group.joining.pop(member_id)
    if error is not ErrorCode.NONE:
        _take_back(stored, turn)
        refusal = joined(group, NO_MEMBER_ID, leader=stored.previous_leader)
        refusal.error_code = error
        turn.answer(reply, refusal)
    elif stored.can_skip_assignment:
        # A leader learns that it leads, so that it watches the topics, and that nothing is to be assigned.
        leads = group.leader_id == member_id
        turn.answer(reply, joined(group, member_id, skip_assignment=leads))
    else:
        # Before version 9 the old leader's id is named: the client must not take itself for the leader, since a
        # stable group would not hand its assignment out.
        turn.answer(reply, joined(group, member_id, leader=stored.previous_leader))


def _take_back(stored: StaticMemberStored, turn: Turn) -> None:
    group, previous = stored.group, stored.previous
    joining, syncing = group.rename(stored.new_member_id, previous.member_id)
    assert joining is None, "its JoinGroup is being answered"
    turn.answer(syncing, sync_refused(ErrorCode.UNKNOWN_MEMBER_ID))
    turn.stop(TimerKind.SESSION, group, stored.new_member_id)
    group.update(previous)
    turn.touch(group, previous)
