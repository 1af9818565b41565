"""JoinGroup: admits members, assigns member ids, and starts rebalances.

    member id empty   dynamic, version 4+    gets a member id and must join again with it (KIP-394)
                      dynamic, before        is added, and the group rebalances
                      static, new            is added, and the group rebalances
                      static, known          replaces the old member id (KIP-345); a stable group whose protocol
                                             stays the same does not rebalance
    member id given   pending                is added, and the group rebalances
                      a member               in PreparingRebalance: has rejoined. In later states: the group rebalances
                                             if the member's protocols changed or it leads a stable group; else the
                                             member gets the current generation again
                      unknown or fenced      UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID

Source: Kafka's `GroupCoordinator.handleJoinGroup`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from headrace.coordinators.groups.classic.answers import MEMBER_APPEND_ERRORS, join_refused, joined, sync_refused
from headrace.coordinators.groups.classic.group import ClassicGroup, GroupState
from headrace.coordinators.groups.classic.members import Join, Member, new_member
from headrace.coordinators.groups.classic.rebalance import drop, prepare, prepare_if_possible, try_complete_join
from headrace.coordinators.groups.classic.records import write_group, write_group_key
from headrace.coordinators.groups.group import NO_MEMBER_ID
from headrace.coordinators.groups.group_event import GroupEvent, TimerKind
from headrace.coordinators.groups.replies import Reply
from headrace.errors import ErrorCode

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
"""A new member cannot send heartbeats while its JoinGroup waits. If its client is gone, it is dropped after this time;
the value is Apache Kafka's."""


def join(group: ClassicGroup, event: Join, reply: Reply, new_id: Callable[[], str], group_event: GroupEvent) -> None:
    """Answers now, or leaves `reply` with the group until the rebalance completes."""
    if not _accepts(group, event.member_id, group_event.config.group_max_size):
        drop(group, event.member_id, group_event)
        group_event.answer(reply, join_refused(NO_MEMBER_ID, ErrorCode.GROUP_MAX_SIZE_REACHED))
    elif not group.supports(event.protocol_type, event.protocols):
        group_event.answer(reply, join_refused(event.member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    elif event.member_id == NO_MEMBER_ID:
        _join_as_new(group, event, reply, new_id, group_event)
    elif event.member_id in group.pending:
        _join_as_pending(group, event, reply, group_event)
    else:
        _join_as_member(group, event, reply, group_event)
    if group.state is GroupState.PREPARING:
        try_complete_join(group, group_event)


def _accepts(group: ClassicGroup, member_id: str, size_max: int) -> bool:
    """Whether the group has room for a member. In a rebalance only members that have rejoined count, so that a group
    over a lowered `group.max.size` loses the members that rejoin last."""
    if group.state is GroupState.EMPTY:
        return True
    if group.state is GroupState.PREPARING:
        return member_id in group.joining or len(group.joining) < size_max
    return member_id in group.members or len(group.members) < size_max


def _join_as_new(
    group: ClassicGroup, event: Join, reply: Reply, new_id: Callable[[], str], group_event: GroupEvent
) -> None:
    prefix = event.client_id if event.instance_id is None else event.instance_id
    member_id = f"{prefix}-{new_id()}"
    if event.instance_id is not None and event.instance_id in group.static_members:
        _replace_static(group, event, member_id, reply, group_event)
    elif event.must_know_member_id:
        group.pending.add(member_id)
        group_event.start(TimerKind.SESSION, group, event.session_timeout_ms, member_id)
        group_event.answer(reply, join_refused(member_id, ErrorCode.MEMBER_ID_REQUIRED))
    else:
        _add(group, event, member_id, reply, group_event)


def _join_as_pending(group: ClassicGroup, event: Join, reply: Reply, group_event: GroupEvent) -> None:
    if event.instance_id is not None:  # only dynamic members are ever pending
        group_event.answer(reply, join_refused(event.member_id, ErrorCode.UNKNOWN_SERVER_ERROR))
    else:
        _add(group, event, event.member_id, reply, group_event)


def _join_as_member(group: ClassicGroup, event: Join, reply: Reply, group_event: GroupEvent) -> None:
    member_id = event.member_id
    fault = group.member_fault(member_id, event.instance_id)
    if fault is ErrorCode.NONE and group.state is GroupState.EMPTY:
        fault = ErrorCode.UNKNOWN_MEMBER_ID
    if fault is not ErrorCode.NONE:
        group_event.answer(reply, join_refused(member_id, fault))
        return
    member = group.members[member_id]
    leads_stable = group.state is GroupState.STABLE and group.leader_id == member_id
    if group.state is GroupState.PREPARING or leads_stable or member.protocols != event.protocols:
        # A leader joins again to start a rebalance, for example because the metadata of its topics changed.
        _update(group, member, event, reply, group_event)
        prepare_if_possible(group, group_event)
    else:
        group_event.answer(reply, joined(group, member_id))  # the client has missed the first response


def _add(group: ClassicGroup, event: Join, member_id: str, reply: Reply, group_event: GroupEvent) -> None:
    if group.state is GroupState.PREPARING and group.generation == 0:
        group.has_new_member = True
    member = new_member(event, member_id)
    group.add(member, event.protocol_type)
    group.joining[member_id] = reply
    group_event.touch(group, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
    prepare_if_possible(group, group_event)


def _update(group: ClassicGroup, member: Member, event: Join, reply: Reply, group_event: GroupEvent) -> Member:
    """Updates a member from its JoinGroup, which waits for the rebalance."""
    updated = member._replace(
        protocols=event.protocols,
        session_timeout_ms=event.session_timeout_ms,
        rebalance_timeout_ms=event.rebalance_timeout_ms,
    )
    group.update(updated)
    # A client that sends JoinGroup again has given up its first request. Kafka drops the first one unanswered. Here it
    # is answered, because later requests of its connection wait behind it.
    earlier = group.joining.pop(member.member_id, None)
    group_event.answer(earlier, join_refused(member.member_id, ErrorCode.REBALANCE_IN_PROGRESS))
    group.joining[member.member_id] = reply
    return updated


def _replace_static(
    group: ClassicGroup, event: Join, new_member_id: str, reply: Reply, group_event: GroupEvent
) -> None:
    """Replaces the member id of a static member that restarted. Later requests with the old id are fenced."""
    assert event.instance_id is not None
    previous = group.members[group.static_members[event.instance_id]]
    previous_leader = group.leader_id or ""
    joining, syncing = group.rename(previous.member_id, new_member_id)
    group_event.answer(joining, join_refused(previous.member_id, ErrorCode.FENCED_INSTANCE_ID))
    group_event.answer(syncing, sync_refused(ErrorCode.FENCED_INSTANCE_ID))
    group_event.stop(TimerKind.SESSION, group, previous.member_id)
    member = _update(group, group.members[new_member_id], event, reply, group_event)
    group_event.touch(group, member)
    if group.state is GroupState.COMPLETING:
        # The leader may be computing an assignment for the old id, which would leave the new id without partitions.
        prepare(group, group_event)
    elif group.state is GroupState.STABLE and group.select_protocol() != group.protocol_name:
        prepare(group, group_event)
    elif group.state is GroupState.STABLE:
        assignments = {each.member_id: each.assignment for each in group.members.values()}
        stored = StaticMemberStored(
            group, group.generation, new_member_id, previous, previous_leader, event.can_skip_assignment
        )
        group_event.append(group, [(write_group_key(group.group_id), write_group(group, assignments))], stored)


class StaticMemberStored(NamedTuple):
    """The new member id of a static member of a stable group was written: its JoinGroup is answered."""

    group: ClassicGroup
    generation: int
    new_member_id: str
    previous: Member
    previous_leader: str
    can_skip_assignment: bool

    def stored(self, error: ErrorCode, record_offset: int, group_event: GroupEvent) -> None:
        _static_member_stored(self, MEMBER_APPEND_ERRORS.get(error, error), group_event)


def _static_member_stored(stored: StaticMemberStored, error: ErrorCode, group_event: GroupEvent) -> None:
    """Answers the JoinGroup of a static member whose new id was written, or whose write failed.

    If the group has started to rebalance meanwhile, the JoinGroup waits for the rebalance.
    """
    group, member_id = stored.group, stored.new_member_id
    if group.state is not GroupState.STABLE or group.generation != stored.generation or member_id not in group.joining:
        return
    reply = group.joining.pop(member_id)
    if error is not ErrorCode.NONE:
        _take_back(stored, group_event)
        refusal = joined(group, NO_MEMBER_ID, leader=stored.previous_leader)
        refusal.error_code = error
        group_event.answer(reply, refusal)
        return
    group_event.touch(group, group.members[member_id])  # its session may have run out while it waited for the write
    if stored.can_skip_assignment:
        # Tells a leader that it leads, so that it watches the topics, and to skip the assignment.
        leads = group.leader_id == member_id
        group_event.answer(reply, joined(group, member_id, skip_assignment=leads))
    else:
        # Before version 9 the response names the old leader's id. The client must not conclude that it leads, because
        # a stable group would ignore its assignment.
        group_event.answer(reply, joined(group, member_id, leader=stored.previous_leader))


def _take_back(stored: StaticMemberStored, group_event: GroupEvent) -> None:
    group, previous = stored.group, stored.previous
    joining, syncing = group.rename(stored.new_member_id, previous.member_id)
    assert joining is None, "its JoinGroup is being answered"
    group_event.answer(syncing, sync_refused(ErrorCode.UNKNOWN_MEMBER_ID))
    group_event.stop(TimerKind.SESSION, group, stored.new_member_id)
    group.update(previous)
    group_event.touch(group, previous)
