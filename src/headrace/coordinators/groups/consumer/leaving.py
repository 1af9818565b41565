"""Removal of members from a consumer group: they leave, or stay silent, or do not give up partitions in time.

Source: Kafka's `GroupMetadataManager.consumerGroupLeave`, `consumerGroupFenceMembers`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING

from headrace.coordinators.groups.consumer.group import ConsumerGroup
from headrace.coordinators.groups.consumer.heartbeat import check_static, unknown_member
from headrace.coordinators.groups.consumer.members import NOTHING, STATIC_LEAVING_EPOCH, ConsumerMember
from headrace.coordinators.groups.consumer.records import Current, Epoch, Resolved, gone
from headrace.coordinators.groups.group_event import TimerKind
from headrace.coordinators.groups.modern.modern_group import hash_of
from headrace.protocol import messages as m

if TYPE_CHECKING:
    from headrace.coordinators.groups.group_event import GroupEvent
    from headrace.coordinators.groups.modern.writes import EventChange
    from headrace.coordinators.groups.registry import Groups

MEMBER_TIMERS = (TimerKind.SESSION, TimerKind.REBALANCE, TimerKind.REJOIN, TimerKind.SYNC)


def leaving_member(group: ConsumerGroup, request: m.ConsumerGroupHeartbeatRequest) -> ConsumerMember:
    """The member that leaves. Raises UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
    if request.instance_id is not None:
        return check_static(group.static_member(request.instance_id), request.instance_id, request.member_id)
    member = group.members.get(request.member_id)
    if member is None:
        raise unknown_member(group, request.member_id)
    return member


def leave_for_a_while(member: ConsumerMember, change: EventChange[ConsumerGroup]) -> None:
    """A static member leaves: its partitions wait for its next self until its session ends."""
    # The assignment epochs become 0, so that its next self may commit the partitions from its first epoch on.
    assigned = {topic_id: dict.fromkeys(partitions, 0) for topic_id, partitions in member.assigned.items()}
    change.add(Current(member._replace(epoch=STATIC_LEAVING_EPOCH, assigned=assigned, revoking=NOTHING)))


def remove(
    groups: Groups,
    group: ConsumerGroup,
    members: Collection[ConsumerMember],
    change: EventChange[ConsumerGroup],
    group_event: GroupEvent,
) -> None:
    """Removes members; the group epoch grows, so that others get their partitions."""
    if not members:
        return
    leaving = Counter(each.regex for each in members if each.regex)
    unused = [regex for regex, count in leaving.items() if group.regex_count(regex) == count]
    for member in members:
        change.add(*gone(member.member_id))
        stop_timers(group, member.member_id, group_event)
    change.add(*(Resolved(regex, None) for regex in unused))
    if unused:
        group.tried_to_resolve_at_ms = None
    change.add(Epoch(group.epoch + 1, hash_of(group.subscriptions, groups.topics)))


def stop_timers(group: ConsumerGroup, member_id: str, group_event: GroupEvent) -> None:
    """Cancels the deadlines of a member."""
    for kind in MEMBER_TIMERS:
        group_event.stop(kind, group, member_id)
