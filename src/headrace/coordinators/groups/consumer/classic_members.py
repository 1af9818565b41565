"""Classic members of a consumer group: their JoinGroup, SyncGroup, Heartbeat and LeaveGroup requests.

    JoinGroup   the member's subscription and what it owns; one step of its reconciliation, as a heartbeat of the
                consumer protocol is. The generation is the member epoch, and no member leads
    SyncGroup   what the member owns now
    Heartbeat   REBALANCE_IN_PROGRESS while it must join again: for a new target, to give up partitions, or to get them

A member that does not join or sync in time is removed. Source: Kafka's
`GroupMetadataManager.classicGroupJoinToConsumerGroup` and its siblings.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.coordinators.groups.classic.answers import join_refused, sync_refused
from headrace.coordinators.groups.classic.group import CONSUMER_PROTOCOL
from headrace.coordinators.groups.consumer.assigning import update_target
from headrace.coordinators.groups.consumer.conversion import is_downgraded
from headrace.coordinators.groups.consumer.embedded_protocol import read_subscription, write_assignment
from headrace.coordinators.groups.consumer.group import ConsumerGroup
from headrace.coordinators.groups.consumer.heartbeat import (
    check_size,
    check_static,
    join_static,
    reconcile,
    subscribe,
    unknown_member,
)
from headrace.coordinators.groups.consumer.members import ClassicMember, ConsumerMember, MemberState
from headrace.coordinators.groups.group import NO_MEMBER_ID
from headrace.coordinators.groups.group_event import Timer, TimerKind
from headrace.coordinators.groups.modern.writes import EventChange
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m

if TYPE_CHECKING:
    from headrace.coordinators.groups.classic.members import Join
    from headrace.coordinators.groups.group_event import GroupEvent
    from headrace.coordinators.groups.registry import Groups
    from headrace.coordinators.groups.replies import Reply


def join(
    groups: Groups,
    group: ConsumerGroup,
    event: Join,
    member_id: str,
    change: EventChange[ConsumerGroup],
    group_event: GroupEvent,
) -> tuple[m.JoinGroupResponse, bool]:
    """Changes the group. Returns the answer for when this is durable, and whether the group is a classic one from now
    on. Raises `KafkaError`."""
    if group_event.config.consumer_group_migration_policy == "disabled":
        raise KafkaError(
            f"Cannot join the consumer group {group.group_id} with the classic protocol because the group migration is "
            "disabled.",
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        )
    check_size(group, member_id, group_event)
    if not group.supports_classic(event.protocol_type, (name for name, _ in event.protocols)):
        raise KafkaError(f"Member {member_id}'s protocols are not supported.", ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if event.member_id == NO_MEMBER_ID and event.must_know_member_id:
        return join_refused(member_id, ErrorCode.MEMBER_ID_REQUIRED), False
    static = group.static_member(event.instance_id)
    downgrades = (
        static is not None
        and static.classic is None
        and is_downgraded(group, [static], len(group.members), group_event.config)
    )
    member = _member(group, event, static, member_id, change)
    subscription = read_subscription(event.protocols[0][1], groups.topics)
    updated = member._replace(
        instance_id=member.instance_id if event.instance_id is None else event.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=event.rebalance_timeout_ms,
        topics=subscription.topics,
        regex="",
        client_id=event.client_id,
        client_host=event.client_host,
        classic=ClassicMember(event.session_timeout_ms, event.protocols),
    )
    has_changed = subscribe(groups, group, member, updated, lambda _: True, change, group_event, bumps_with_regex=True)
    if not downgrades:
        update_target(groups, group, change, group_event)
    after = group.members[member_id]
    if not downgrades or group.target_epoch >= group.epoch:
        after = reconcile(groups, group, after, subscription.owned, has_changed, change, group_event)
    group_event.stop(TimerKind.REJOIN, group, member_id)
    if not downgrades:
        group_event.start(TimerKind.SESSION, group, event.session_timeout_ms, member_id)
        group_event.start(TimerKind.SYNC, group, event.rebalance_timeout_ms, member_id)
    response = m.JoinGroupResponse(
        generation_id=after.epoch,
        protocol_type=CONSUMER_PROTOCOL,
        protocol_name=event.protocols[0][0],
        leader="",
        member_id=member_id,
    )
    return response, downgrades


def _member(
    group: ConsumerGroup,
    event: Join,
    static: ConsumerMember | None,
    member_id: str,
    change: EventChange[ConsumerGroup],
) -> ConsumerMember:
    if event.instance_id is None:
        return group.members.get(member_id) or ConsumerMember(member_id)
    if event.member_id == NO_MEMBER_ID:
        return join_static(group, static, event.instance_id, member_id, change, is_classic=True)
    return check_static(static, event.instance_id, member_id)


def sync(
    groups: Groups, group: ConsumerGroup, request: m.SyncGroupRequest, reply: Reply, group_event: GroupEvent
) -> None:
    """Answers with what the member owns, once that is durable. Raises `KafkaError`."""
    member = _known(group, request.member_id, request.group_instance_id, request.generation_id)
    assert member.classic is not None
    name, subscription = member.classic.protocols[0]
    for given, expected in ((request.protocol_type, CONSUMER_PROTOCOL), (request.protocol_name, name)):
        if given is not None and given != expected:
            raise KafkaError(f"{given} is not {expected}", ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    # A member that has partitions to give up has joined again already, and will once more when it has done so.
    if group.target_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        _must_rejoin(group, member, group_event)
        raise KafkaError(
            f"A new rebalance is triggered in group {group.group_id} and member {member.member_id} should rejoin to "
            "catch up.",
            ErrorCode.REBALANCE_IN_PROGRESS,
        )
    group_event.stop(TimerKind.SYNC, group, member.member_id)
    group_event.start(TimerKind.SESSION, group, member.classic.session_timeout_ms, member.member_id)
    response = m.SyncGroupResponse(
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=write_assignment(member.assigned, subscription, groups.topics),
    )
    group.writes.commit(EventChange(group), group_event, reply, response, sync_refused)


def heartbeat(group: ConsumerGroup, request: m.HeartbeatRequest, group_event: GroupEvent) -> ErrorCode:
    """Restarts the member's session."""
    try:
        member = _known(group, request.member_id, request.group_instance_id, request.generation_id)
    except KafkaError as error:
        return error.code
    assert member.classic is not None
    group_event.start(TimerKind.SESSION, group, member.classic.session_timeout_ms, member.member_id)
    is_free = member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_owners(member)
    # The group epoch, not the target's: in a group of classic members only, a JoinGroup computes the next target.
    if member.epoch < group.epoch or member.state is MemberState.UNREVOKED_PARTITIONS or is_free:
        _must_rejoin(group, member, group_event)
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def leaving(
    group: ConsumerGroup, identities: Iterable[m.LeaveGroupRequest.MemberIdentity]
) -> tuple[list[ConsumerMember], list[ErrorCode]]:
    """The members that leave, and an error for each identity."""
    members: dict[str, ConsumerMember] = {}
    errors = []
    for each in identities:
        error = ErrorCode.NONE
        try:
            if each.group_instance_id is None:
                member = group.members.get(each.member_id)
                if member is None:
                    raise unknown_member(group, each.member_id)
            else:
                static = group.static_member(each.group_instance_id)
                named = each.member_id or (NO_MEMBER_ID if static is None else static.member_id)
                member = check_static(static, each.group_instance_id, named)
            members[member.member_id] = member
        except KafkaError as failure:
            error = failure.code
        errors.append(error)
    return list(members.values()), errors


def _must_rejoin(group: ConsumerGroup, member: ConsumerMember, group_event: GroupEvent) -> None:
    if Timer(TimerKind.REJOIN, group.group_id, member.member_id) not in group_event.deadlines:
        group_event.start(TimerKind.REJOIN, group, member.rebalance_timeout_ms, member.member_id)


def _known(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> ConsumerMember:
    """The classic member of these ids and this generation. Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID or
    ILLEGAL_GENERATION."""
    if instance_id is None:
        member = group.members.get(member_id)
        if member is None:
            raise unknown_member(group, member_id)
    else:
        member = check_static(group.static_member(instance_id), instance_id, member_id)
    if member.classic is None:
        raise KafkaError(f"Member {member_id} does not use the classic protocol.", ErrorCode.UNKNOWN_MEMBER_ID)
    if generation != member.epoch:
        raise KafkaError(
            f"The request generation id {generation} is not equal to the member epoch {member.epoch} of member "
            f"{member_id}.",
            ErrorCode.ILLEGAL_GENERATION,
        )
    return member
