# cython: language_level=3, annotation_typing=False, binding=False
"""The heartbeat of a consumer group's member that tells nothing new, and has nothing to learn: all that most do.

Compiled, since each member sends one every few seconds: between two of them other processes have taken the processor's
caches, so that every function that Python has to run costs several times what it does in a loop. It also runs
uncompiled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.coordinators.groups.consumer.group import ConsumerGroup
from headrace.coordinators.groups.consumer.members import JOINING_EPOCH, ConsumerMember, MemberState
from headrace.coordinators.groups.group_event import Timer, TimerKind

if TYPE_CHECKING:
    from headrace.coordinators.groups.group import Group
    from headrace.coordinators.groups.registry import Groups

SETTLING_HEARTBEAT_MS = 1000
"""The time between two heartbeats of a member while its group rebalances. A member learns what it is to do from the
answers to its heartbeats, so that a rebalance takes some two intervals: in Apache Kafka ten seconds by default, which
always tells members the same interval. One second is the default of `group.consumer.assignment.interval.ms`."""

_JOINING = JOINING_EPOCH  # as a C integer
_STABLE, _SESSION = MemberState.STABLE, TimerKind.SESSION


class SteadyHeartbeats:
    """The consumer groups of one broker, as far as such heartbeats go."""

    __slots__ = ("_groups",)

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def keep_alive(
        self,
        group: Group,
        member_id: str,
        epoch: int,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        now_ms: int,
    ) -> int:
        """Does what the general way does about a member that tells no more, and has nothing to learn. Returns the
        interval until its next heartbeat in ms; 0, with nothing done, in any other case."""
        if not isinstance(group, ConsumerGroup) or group.writes.is_busy:
            return 0
        member = steady_member(group, member_id, epoch, instance_id, client_id, client_host, now_ms)
        if member is None:
            return 0
        groups, group_id = self._groups, group.group_id
        at_ms = now_ms + groups.number(group_id, "consumer.session.timeout.ms")
        if not groups.deadlines.postpone(tuple.__new__(Timer, (_SESSION, group_id, member_id)), at_ms):
            return 0
        if group.writes.has_begun:
            group.replaced = None
        return interval_ms(groups, group, member, now_ms)


def steady_member(
    group: ConsumerGroup,
    member_id: str,
    epoch: int,
    instance_id: str | None,
    client_id: str,
    client_host: str,
    now_ms: int,
) -> ConsumerMember | None:
    """The member of a heartbeat that tells nothing else, if it has nothing to learn and nothing is due in its group."""
    member = group.members.get(member_id)
    if (
        member is None
        or epoch != member.epoch
        or epoch <= _JOINING
        or (instance_id is not None and group.static_members.get(instance_id) != member_id)
        or member.client_id != client_id
        or member.client_host != client_host
        or member.classic is not None
        or member.state is not _STABLE
        or epoch != group.target_epoch
        or group.epoch > group.target_epoch
        or group.regexes
        or group.is_refresh_due(now_ms)
    ):
        return None
    return member


def interval_ms(groups: Groups, group: ConsumerGroup, member: ConsumerMember, now_ms: int) -> int:
    """When the member is to heartbeat again: soon if it waits for something, or if its group has rebalanced just now
    and may do so again, as while many members join."""
    usual_ms = groups.number(group.group_id, "consumer.heartbeat.interval.ms")
    is_settling = (
        group.epoch > group.target_epoch
        or member.state is not _STABLE
        or now_ms - group.target_timestamp_ms < SETTLING_HEARTBEAT_MS
    )
    return min(usual_ms, SETTLING_HEARTBEAT_MS) if is_settling else usual_ms
