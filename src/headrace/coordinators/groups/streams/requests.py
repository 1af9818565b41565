"""Requests to streams groups: finds or creates the group, serves the request, and writes what follows.

Source: Kafka's `GroupCoordinatorService` and `GroupMetadataManager`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from headrace.coordinators.groups.classic.group import ClassicGroup
from headrace.coordinators.groups.group_event import TimerKind
from headrace.coordinators.groups.streams import heartbeats
from headrace.coordinators.groups.streams.assignment import changes_to
from headrace.coordinators.groups.streams.describing import describe, not_found
from headrace.coordinators.groups.streams.group import StreamsGroup
from headrace.coordinators.groups.streams.heartbeats import LEAVE_EPOCH, HeartbeatOutcome, MemberConnection
from headrace.coordinators.groups.streams.member import StreamsMemberState
from headrace.coordinators.groups.streams.records import tombstones_of
from headrace.coordinators.groups.streams.request_checks import check_heartbeat
from headrace.coordinators.groups.streams.settings import StreamsSettings
from headrace.coordinators.groups.streams.waiting import Waiting
from headrace.coordinators.groups.streams.writes import answer_all, write
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.coordinators.groups.classic.requests import ClassicGroups
    from headrace.coordinators.groups.group_event import Actions, GroupEvent, Timer
    from headrace.coordinators.groups.registry import Groups
    from headrace.coordinators.groups.replies import Reply
    from headrace.coordinators.groups.streams.assignment import AssigningTasks
    from headrace.coordinators.groups.streams.configured_topology import TopologyInternalTopic
    from headrace.coordinators.groups.streams.tasks import Tasks
    from headrace.coordinators.runtime import KeyValue


class StreamsBeat(NamedTuple):
    """The answer to a heartbeat, and the internal topics that are to be created for its principal."""

    response: m.StreamsGroupHeartbeatResponse
    to_create: tuple[TopologyInternalTopic, ...] = ()

    def refused(self, error: ErrorCode) -> StreamsBeat:
        return refused(error)


def refused(error: ErrorCode, message: str | None = None) -> StreamsBeat:
    """The answer with an error."""
    return StreamsBeat(m.StreamsGroupHeartbeatResponse(error_code=error, error_message=message, status=[]))


class StreamsGroups:
    """The streams groups of one broker: a `Kind`, and the requests of their members."""

    __slots__ = ("_classic", "_groups")

    def __init__(self, groups: Groups, classic: ClassicGroups) -> None:
        self._groups, self._classic = groups, classic

    def settings_of(self, group_id: str) -> StreamsSettings:
        """What applies to a group now."""
        return StreamsSettings.of(group_id, self._groups.number, self._groups.config)

    # Requests

    def heartbeat(
        self, request: m.StreamsGroupHeartbeatRequest, client_id: str, client_host: str, reply: Reply, now_ms: int
    ) -> Actions:
        """StreamsGroupHeartbeat; answered with a `StreamsBeat` when its changes are stored."""
        client = MemberConnection(client_id, client_host)
        group_event = self._groups.event(now_ms)
        try:
            check_heartbeat(request)
            error = self._groups.unavailable(request.group_id)
            if error is not ErrorCode.NONE:
                group_event.answer(reply, refused(error))
                return group_event.actions
            group, replaced = self._group_for(request)
            outcome = self._serve(group, request, client, group_event)
        except KafkaError as fault:
            group_event.answer(reply, refused(fault.code, fault.message or None))
            return group_event.actions
        if self._groups.get(group.group_id) is not group:
            if replaced is not None:
                self._replace(replaced, group, group_event)
            self._groups.put(group)
        write(group, outcome.changes, Waiting(reply, StreamsBeat(outcome.response, outcome.to_create)), group_event)
        return group_event.actions

    def assigned(self, assigning: AssigningTasks, targets: Mapping[str, Tasks] | None, now_ms: int) -> Actions:
        """Takes in a target assignment that was computed off the event loop; None if that failed. The next heartbeat of
        each member moves it towards its tasks, or begins a newer assignment. It is dropped if the group has a newer one
        by now, such as that of a group that has become small."""
        group, group_event = assigning.group, self._groups.event(now_ms)
        group.is_assigning = False
        is_current = self._groups.get(group.group_id) is group and assigning.epoch > group.assignment_epoch
        if targets is not None and is_current and group.members:
            present = {each: tasks for each, tasks in targets.items() if each in group.members}
            changes = changes_to(group, present, assigning.epoch, now_ms)
            for change in changes:
                change.apply(group)
            write(group, changes, None, group_event)
        return group_event.actions

    def describe(self, group_id: str) -> m.StreamsGroupDescribeResponse.DescribedGroup:
        """StreamsGroupDescribe of one group."""
        error = self._groups.unavailable(group_id)
        if error is not ErrorCode.NONE:
            return m.StreamsGroupDescribeResponse.DescribedGroup(group_id=group_id, error_code=error)
        group = self._groups.get(group_id)
        if isinstance(group, StreamsGroup):
            return describe(group)
        detail = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a streams group."
        return not_found(group_id, detail)

    def _serve(
        self,
        group: StreamsGroup,
        request: m.StreamsGroupHeartbeatRequest,
        client: MemberConnection,
        group_event: GroupEvent,
    ) -> HeartbeatOutcome:
        if request.member_epoch == LEAVE_EPOCH:
            return heartbeats.leave(group, request, group_event)
        is_new = self._groups.get(group.group_id) is not group
        settings = self.settings_of(group.group_id)
        return heartbeats.heartbeat(
            group, request, client, self._groups.topics, settings, group_event, is_new_group=is_new
        )

    def _group_for(self, request: m.StreamsGroupHeartbeatRequest) -> tuple[StreamsGroup, ClassicGroup | None]:
        """The group of the request, and the empty group whose place it takes. A new group is not registered yet."""
        known = self._groups.get(request.group_id)
        if isinstance(known, StreamsGroup):
            return known, None
        replaced = known if isinstance(known, ClassicGroup) and known.is_empty else None
        if request.member_epoch == 0 and (known is None or replaced is not None):
            return StreamsGroup(request.group_id, self._groups.partition_for(request.group_id)), replaced
        detail = (
            f"Streams group {request.group_id} not found."
            if known is None
            else f"Group {request.group_id} is not a streams group."
        )
        raise KafkaError(detail, ErrorCode.GROUP_ID_NOT_FOUND)

    def _replace(self, replaced: ClassicGroup, group: StreamsGroup, group_event: GroupEvent) -> None:
        """Gives a new group the place and the offsets of an empty classic group."""
        group.offsets = replaced.offsets
        tombstones = self._classic.tombstones(replaced)
        if tombstones:
            group_event.append(group, tombstones)
        self._classic.unload(replaced, ErrorCode.UNKNOWN_MEMBER_ID, group_event)

    # The life of groups

    def tombstones(self, group: StreamsGroup) -> list[KeyValue]:
        """The tombstones of all records of a group, except those of its offsets."""
        return tombstones_of(group)

    def loaded(self, group: StreamsGroup, group_event: GroupEvent) -> None:
        """Gives every member its time to send a heartbeat, or to give up tasks."""
        timeout_ms = self.settings_of(group.group_id).session_timeout_ms
        for member in group.members.values():
            group_event.start(TimerKind.SESSION, group, timeout_ms, member.member_id)
            if member.state is StreamsMemberState.UNREVOKED_TASKS:
                group_event.start(TimerKind.REBALANCE, group, member.rebalance_timeout_ms, member.member_id)

    def unload(self, group: StreamsGroup, error: ErrorCode, group_event: GroupEvent) -> None:
        """Answers the requests that wait for writes of others, and cancels the group's deadlines."""
        answer_all(group, error, group_event)
        for member_id in group.members:
            group_event.stop(TimerKind.SESSION, group, member_id)
            group_event.stop(TimerKind.REBALANCE, group, member_id)
        group_event.stop(TimerKind.INITIAL_DELAY, group)

    def timed_out(self, group: StreamsGroup, timer: Timer, group_event: GroupEvent) -> None:
        """Removes a member that sent no heartbeat or kept tasks for too long, or ends the initial delay."""
        if timer.kind is TimerKind.INITIAL_DELAY:
            changes = heartbeats.end_initial_delay(group, self.settings_of(group.group_id), group_event)
        elif timer.member_id in group.members:
            changes = heartbeats.remove(group, timer.member_id, group_event)
        else:
            return
        write(group, changes, None, group_event)
