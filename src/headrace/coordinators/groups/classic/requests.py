"""The requests of the classic protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

Source: Kafka's `GroupCoordinatorService`, `GroupMetadataManager.classicGroupJoin` and its siblings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from headrace.coordinators.groups.classic import joining, leaving, rebalance, syncing
from headrace.coordinators.groups.classic.answers import join_refused, sync_refused
from headrace.coordinators.groups.classic.describing import ClassicGroupDescription, describe
from headrace.coordinators.groups.classic.group import ClassicGroup, GroupState
from headrace.coordinators.groups.classic.records import write_group, write_group_key
from headrace.coordinators.groups.group import NO_MEMBER_ID, GroupKind
from headrace.coordinators.groups.group_event import Timer, TimerKind
from headrace.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.coordinators.groups.classic.members import Join
    from headrace.coordinators.groups.group import Group
    from headrace.coordinators.groups.group_event import Actions, GroupEvent, Then
    from headrace.coordinators.groups.kind import GroupsOfKind
    from headrace.coordinators.groups.registry import Groups
    from headrace.coordinators.groups.replies import Reply
    from headrace.coordinators.runtime import KeyValue
    from headrace.protocol import messages as m


REPLACED = (GroupKind.CONSUMER, GroupKind.STREAMS)
"""The kinds whose empty groups a classic member may take over."""


class Left(NamedTuple):
    """The outcome of LeaveGroup: an error for the request, or one for each member, in order."""

    error: ErrorCode
    members: tuple[ErrorCode, ...]


class ClassicRequests(Protocol):
    """Consumer groups, which have classic members while the members of a group are upgraded or downgraded."""

    def join(self, group: Any, event: Join, reply: Reply, group_event: GroupEvent) -> None: ...

    def sync(self, group: Any, request: m.SyncGroupRequest, reply: Reply, group_event: GroupEvent) -> None: ...

    def classic_heartbeat(self, group: Any, request: m.HeartbeatRequest, group_event: GroupEvent) -> ErrorCode: ...

    def leave(
        self, group: Any, identities: Iterable[m.LeaveGroupRequest.MemberIdentity], group_event: GroupEvent
    ) -> list[ErrorCode]: ...


class ClassicGroups:
    """The classic groups of one broker."""

    __slots__ = ("_consumer", "_groups", "_kind_of")

    def __init__(
        self, groups: Groups, kind_of: Callable[[Group], GroupsOfKind[Any]], consumer: Callable[[], ClassicRequests]
    ) -> None:
        """`kind_of` returns the kind of a group; `consumer` the consumer groups."""
        self._groups, self._kind_of, self._consumer = groups, kind_of, consumer

    # Requests

    def join(self, event: Join, reply: Reply, now_ms: int) -> Actions:
        """JoinGroup; answered when the rebalance completes."""
        group_event = self._groups.event(now_ms)
        config = self._groups.config
        shortest, longest = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
        error = self._groups.unavailable(event.group_id)
        if error is ErrorCode.NONE and not shortest <= event.session_timeout_ms <= longest:
            error = ErrorCode.INVALID_SESSION_TIMEOUT
        group = self._groups.get(event.group_id)
        is_replaced = group is not None and group.is_empty and group.kind in REPLACED
        if error is ErrorCode.NONE and (group is None or is_replaced):
            if event.member_id != NO_MEMBER_ID:
                error = ErrorCode.UNKNOWN_MEMBER_ID
            else:
                group = self._create_for(group, event.group_id, group_event)
        if error is not ErrorCode.NONE:
            group_event.answer(reply, join_refused(event.member_id, error))
        elif isinstance(group, ClassicGroup):
            joining.join(group, event, reply, self._groups.new_id, group_event)
        elif group is not None and group.kind is GroupKind.CONSUMER:
            self._consumer().join(group, event, reply, group_event)
        else:
            group_event.answer(reply, join_refused(event.member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        return group_event.actions

    def sync(self, request: m.SyncGroupRequest, reply: Reply, now_ms: int) -> Actions:
        """SyncGroup; answered when the leader's assignment is stored."""
        group_event = self._groups.event(now_ms)
        error = self._groups.unavailable(request.group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # The old coordinator lost the rebalance, so members must join again. Old clients know only this code.
            error = ErrorCode.REBALANCE_IN_PROGRESS
        group = self._groups.get(request.group_id)
        if error is not ErrorCode.NONE:
            group_event.answer(reply, sync_refused(error))
        elif isinstance(group, ClassicGroup):
            syncing.sync(group, request, reply, group_event)
        elif group is not None and group.kind is GroupKind.CONSUMER:
            self._consumer().sync(group, request, reply, group_event)
        else:
            group_event.answer(reply, sync_refused(ErrorCode.UNKNOWN_MEMBER_ID))
        return group_event.actions

    def heartbeat(self, request: m.HeartbeatRequest, now_ms: int) -> ErrorCode:
        """Heartbeat; its only effect is to move a deadline."""
        error = self._groups.unavailable(request.group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return ErrorCode.NONE  # the group may be loaded in a moment, so its members need not rejoin
        if error is not ErrorCode.NONE:
            return error
        group = self._groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            return syncing.heartbeat(group, request, self._groups.event(now_ms))
        if group is not None and group.kind is GroupKind.CONSUMER:
            return self._consumer().classic_heartbeat(group, request, self._groups.event(now_ms))
        return ErrorCode.UNKNOWN_MEMBER_ID

    def keep_alive(self, group: Group, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> bool:
        """Does what `heartbeat` does about a member of a stable group. False, with nothing done, in any other case."""
        if not isinstance(group, ClassicGroup) or group.state is not GroupState.STABLE:
            return False
        if generation != group.generation or group.member_fault(member_id, instance_id) is not ErrorCode.NONE:
            return False
        at_ms = now_ms + group.members[member_id].session_timeout_ms
        return self._groups.deadlines.postpone(Timer(TimerKind.SESSION, group.group_id, member_id), at_ms)

    def leave(
        self, group_id: str, identities: Iterable[m.LeaveGroupRequest.MemberIdentity], now_ms: int
    ) -> tuple[Left, Actions]:
        """LeaveGroup (one identity before version 3); answered at once."""
        error = self._groups.unavailable(group_id)
        if error is not ErrorCode.NONE:
            return Left(error, ()), []
        group, group_event = self._groups.get(group_id), self._groups.event(now_ms)
        if group is not None and group.kind is GroupKind.CONSUMER:
            return Left(
                ErrorCode.NONE, tuple(self._consumer().leave(group, identities, group_event))
            ), group_event.actions
        if not isinstance(group, ClassicGroup):
            return Left(ErrorCode.NONE, tuple(ErrorCode.UNKNOWN_MEMBER_ID for _ in identities)), []
        left = tuple(leaving.leave(group, each, group_event) for each in identities)
        return Left(ErrorCode.NONE, left), group_event.actions

    def describe(self, group_id: str) -> ClassicGroupDescription:
        """DescribeGroups. A group that does not exist, or is of another kind, is Dead, which is no error before
        version 6."""
        error = self._groups.unavailable(group_id, needs_name=False)
        return describe(group_id, self._groups.get(group_id), error)

    def create(self, group_id: str, now_ms: int) -> ClassicGroup:
        """Creates an empty group, also for the offsets of simple consumers."""
        group = ClassicGroup(group_id, self._groups.partition_for(group_id), now_ms)
        self._groups.put(group)
        return group

    def _create_for(self, known: Group | None, group_id: str, group_event: GroupEvent) -> ClassicGroup:
        """Creates an empty group, in place of an empty one of another kind, whose offsets it keeps."""
        group = self.create(group_id, group_event.now_ms)
        if known is not None:
            group.offsets = known.offsets
            kind = self._kind_of(known)
            kind.unload(known, ErrorCode.UNKNOWN_MEMBER_ID, group_event)
            group_event.append_in_parts(group, kind.tombstones(known))
        return group

    # The life of a group

    def converted(
        self,
        group: ClassicGroup,
        before: list[KeyValue],
        then: Then,
        group_event: GroupEvent,
        *,
        rebalances: bool,
    ) -> None:
        """Begins to serve a group that was of another kind, and stores it behind the records `before`, in one batch:
        the log has the old group or the new one."""
        assignments = {each.member_id: each.assignment for each in group.members.values()}
        own = (write_group_key(group.group_id), write_group(group, assignments))
        self._groups.put(group)
        group_event.append(group, [*before, own], then)
        for member in group.members.values():
            group_event.touch(group, member)
        if rebalances:
            rebalance.prepare(group, group_event)

    def taken_back(self, group: ClassicGroup, group_event: GroupEvent) -> None:
        """Ends a group that was of another kind and could not be stored. Its members have to join again."""
        leaving.unload(group, ErrorCode.REBALANCE_IN_PROGRESS, group_event)

    def give_up(self, group: ClassicGroup, group_event: GroupEvent) -> leaving.GivenUp:
        """Ends a group whose members another kind of group takes over."""
        return leaving.give_up(group, group_event)

    def take_up(self, given_up: leaving.GivenUp, group_event: GroupEvent) -> None:
        """Serves a group again that was given up: the write of the other group has failed."""
        self._groups.put(given_up.group)
        leaving.take_up(given_up, group_event)

    def tombstones(self, group: ClassicGroup) -> list[KeyValue]:
        """The tombstone of the group's metadata. Groups of simple consumers (generation 0) have none."""
        return [(write_group_key(group.group_id), None)] if group.generation > 0 else []

    def loaded(self, group: ClassicGroup, group_event: GroupEvent) -> None:
        """Starts the sessions of a loaded group."""
        if len(group.members) > group_event.config.group_max_size:
            rebalance.prepare(group, group_event)
        for member in group.members.values():
            group_event.touch(group, member)

    def unload(self, group: ClassicGroup, error: ErrorCode, group_event: GroupEvent) -> None:
        """Answers all open requests, and cancels the deadlines."""
        leaving.unload(group, error, group_event)

    def timed_out(self, group: ClassicGroup, timer: Timer, group_event: GroupEvent) -> None:
        """Handles the end of a session, of PreparingRebalance, or of the wait for SyncGroup requests."""
        if timer.kind is TimerKind.SESSION:
            leaving.session_expired(group, timer.member_id, group_event)
        elif timer.kind is TimerKind.JOIN:
            rebalance.join_timed_out(group, group_event)
        elif timer.kind is TimerKind.SYNC and not timer.member_id:  # else a member's, from when it was a consumer group
            syncing.sync_timed_out(group, group_event)
