"""The requests of consumer groups: ConsumerGroupHeartbeat and ConsumerGroupDescribe, and the life of their groups.

Source: Kafka's `GroupCoordinatorService.consumerGroupHeartbeat`, `GroupMetadataManager`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from headrace.coordinators.groups.classic.answers import join_refused, sync_refused
from headrace.coordinators.groups.classic.group import ClassicGroup
from headrace.coordinators.groups.consumer import classic_members, records
from headrace.coordinators.groups.consumer.assigning import Assigning, assignor_names, take_target
from headrace.coordinators.groups.consumer.conversion import check_upgrade, downgrade, is_downgraded, upgrade
from headrace.coordinators.groups.consumer.describing import describe, describe_refused
from headrace.coordinators.groups.consumer.group import ConsumerGroup
from headrace.coordinators.groups.consumer.heartbeat import (
    RequestClient,
    Resolving,
    heartbeat,
    new_member_id,
    refresh,
    steady_heartbeat,
)
from headrace.coordinators.groups.consumer.leaving import leave_for_a_while, leaving_member, remove, stop_timers
from headrace.coordinators.groups.consumer.members import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    STATIC_LEAVING_EPOCH,
    ConsumerMember,
    MemberState,
)
from headrace.coordinators.groups.consumer.regular_expressions import ResolvedRegularExpression
from headrace.coordinators.groups.consumer.steady import SteadyHeartbeats
from headrace.coordinators.groups.group_event import TimerKind
from headrace.coordinators.groups.modern.subscriptions import check_subscription
from headrace.coordinators.groups.modern.writes import (
    IN_THE_LOG,
    NO_RESPONSE,
    EventChange,
    GroupWrite,
    Response,
    answer_all,
)
from headrace.coordinators.runtime import APPEND_ERRORS
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol import messages as m

if TYPE_CHECKING:
    from headrace.coordinators.assignors.assignor import TargetAssignment
    from headrace.coordinators.groups.classic.members import Join
    from headrace.coordinators.groups.classic.requests import ClassicGroups
    from headrace.coordinators.groups.group_event import Actions, GroupEvent, Timer
    from headrace.coordinators.groups.registry import Groups
    from headrace.coordinators.groups.replies import Reply
    from headrace.coordinators.runtime import KeyValue

MEMBER_ID_REQUIRED_FROM = 1
"""The version of ConsumerGroupHeartbeat from which the client makes its member id."""


def refused(code: ErrorCode, message: str | None = None) -> m.ConsumerGroupHeartbeatResponse:
    return m.ConsumerGroupHeartbeatResponse(error_code=code, error_message=message)


class Downgraded(NamedTuple):
    """The second step of the write by which a consumer group becomes a classic one."""

    end: Callable[[Downgraded, ErrorCode, GroupEvent], None]
    group: ConsumerGroup
    classic: ClassicGroup
    leaving: Collection[ConsumerMember]
    writes: list[GroupWrite[ConsumerGroup]]
    """The writes that waited, and its own; the classic group's record is behind them in the batch."""

    def stored(self, error: ErrorCode, record_offset: int, group_event: GroupEvent) -> None:
        self.end(self, error, group_event)


class ConsumerRequests:
    """The consumer groups of one broker."""

    def __init__(self, groups: Groups, classic: ClassicGroups) -> None:
        self._groups, self._classic = groups, classic
        self.steady = SteadyHeartbeats(groups)

    # Requests

    def heartbeat(
        self,
        request: m.ConsumerGroupHeartbeatRequest,
        api_version: int,
        client: RequestClient,
        reply: Reply,
        now_ms: int,
    ) -> Actions:
        """ConsumerGroupHeartbeat; answered when what it changes is stored."""
        group_event = self._groups.event(now_ms)
        known = self._groups.get(request.group_id)
        if isinstance(known, ConsumerGroup):
            response = steady_heartbeat(self._groups, known, request, client, group_event)
            if response is not None:
                if known.writes.has_begun:
                    known.replaced = None
                known.writes.answer(group_event, reply, response, refused)
                return group_event.actions
        try:
            self._check(request, api_version)
            error = self._groups.unavailable(request.group_id)
            if error is not ErrorCode.NONE:
                group_event.answer(reply, refused(error))
            elif request.member_epoch in (LEAVING_EPOCH, STATIC_LEAVING_EPOCH):
                self._leave(request, reply, group_event)
            else:
                self._heartbeat(request, client, reply, group_event)
        except KafkaError as error:
            group_event.answer(reply, refused(error.code, error.message))
        return group_event.actions

    def _heartbeat(
        self, request: m.ConsumerGroupHeartbeatRequest, client: RequestClient, reply: Reply, group_event: GroupEvent
    ) -> None:
        group, before = self._group_of(request)
        change = EventChange(group)
        try:
            if before is not None and not before.is_empty:
                upgrade(before, group, self._groups.topics, change)
            response = heartbeat(self._groups, group, request, client, change, group_event)
        except KafkaError:
            change.take_back()
            raise
        if before is not None:
            self._replace(before, group, group_event)
        elif self._groups.get(group.group_id) is None:
            self._groups.put(group)
        tombstones = [] if before is None else self._classic.tombstones(before)
        group.writes.commit(change, group_event, reply, response, refused, before=tombstones)

    def _group_of(self, request: m.ConsumerGroupHeartbeatRequest) -> tuple[ConsumerGroup, ClassicGroup | None]:
        """The group, and the classic group whose place it takes. Raises GROUP_ID_NOT_FOUND."""
        known = self._groups.get(request.group_id)
        joins = request.member_epoch == JOINING_EPOCH
        if isinstance(known, ConsumerGroup):
            if known.writes.has_begun:
                known.replaced = None
            return known, None
        if known is None and joins:
            return self._new_group(request.group_id), None
        if isinstance(known, ClassicGroup) and joins:
            if not known.is_empty:
                check_upgrade(known, self._groups.config)
            group = self._new_group(request.group_id)
            group.offsets = known.offsets
            return group, known
        raise KafkaError(
            f"Consumer group {request.group_id} not found."
            if known is None
            else f"Group {request.group_id} is not a consumer group.",
            ErrorCode.GROUP_ID_NOT_FOUND,
        )

    def _new_group(self, group_id: str) -> ConsumerGroup:
        group = ConsumerGroup(group_id, self._groups.partition_for(group_id))
        self._adopt(group)
        return group

    def _adopt(self, group: ConsumerGroup) -> None:
        group.topics, group.restart = self._groups.topics, self._taken_back

    def _replace(self, classic: ClassicGroup, group: ConsumerGroup, group_event: GroupEvent) -> None:
        group.replaced = self._classic.give_up(classic, group_event)
        self._groups.put(group)
        self._restart(group, group_event)  # the deadlines of members that both have are those of the classic group

    def _leave(self, request: m.ConsumerGroupHeartbeatRequest, reply: Reply, group_event: GroupEvent) -> None:
        group = self._existing(request.group_id)
        member = leaving_member(group, request)
        change = EventChange(group)
        if request.member_epoch == STATIC_LEAVING_EPOCH and request.instance_id is not None:
            leave_for_a_while(member, change)
            group_event.stop(TimerKind.REBALANCE, group, member.member_id)
            response = m.ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=request.member_epoch)
            group.writes.commit(change, group_event, reply, response, refused)
        else:
            # Kafka names the member id of the request, which a member of version 0 may leave out.
            response = m.ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
            self._fence(group, [member], group_event, Response(reply, response, refused))

    def _fence(
        self,
        group: ConsumerGroup,
        members: Collection[ConsumerMember],
        group_event: GroupEvent,
        response: Response = NO_RESPONSE,
    ) -> None:
        """Removes members. A group with classic members only becomes a classic group."""
        change = EventChange(group)
        stays = len(group.members) - len(members)
        if not members or not is_downgraded(group, members, stays, group_event.config):
            remove(self._groups, group, members, change, group_event)
            group.writes.commit(change, group_event, *response)
            return
        self._downgrade(change, group, members, group_event, response, rebalances=True)

    def _downgrade(
        self,
        change: EventChange[ConsumerGroup],
        group: ConsumerGroup,
        leaving: Collection[ConsumerMember],
        group_event: GroupEvent,
        response: Response,
        *,
        rebalances: bool,
    ) -> None:
        """Makes a group a classic one, without the members that leave. Raises GROUP_ID_NOT_FOUND."""
        classic = downgrade(group, leaving, self._groups.topics, group_event.now_ms)
        self.unload(group, ErrorCode.NONE, group_event)
        change.add(*records.tombstones(group))
        own = GroupWrite(change, [each.encode(group.group_id) for each in change.records], [response])
        writes = [*group.writes.give_up(), own]
        before = [record for each in writes for record in each.encoded]
        downgraded = Downgraded(self.downgraded, group, classic, leaving, writes)
        self._classic.converted(classic, before, downgraded, group_event, rebalances=rebalances)

    def downgraded(self, downgraded: Downgraded, error: ErrorCode, group_event: GroupEvent) -> None:
        """Answers; a group whose successor is not in the log goes on as it was. If the successor is too large for the
        log, it goes on without the members that leave: they are gone, and no other try would succeed."""
        _, group, classic, leaving, writes = downgraded
        code = APPEND_ERRORS.get(error, error)
        answer_all([each for write in writes for each in write.responses], code, group_event)
        if error in IN_THE_LOG or self._groups.get(group.group_id) is not classic:
            return
        self._classic.taken_back(classic, group_event)
        self._groups.put(group)
        group.writes.take_up(writes, group_event)
        if code is ErrorCode.UNKNOWN_SERVER_ERROR:
            change = EventChange(group)
            there = [each for each in leaving if each.member_id in group.members]
            remove(self._groups, group, there, change, group_event)
            group.writes.commit(change, group_event)

    def _existing(self, group_id: str) -> ConsumerGroup:
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        what = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a consumer group."
        raise KafkaError(what, ErrorCode.GROUP_ID_NOT_FOUND)

    def _check(self, request: m.ConsumerGroupHeartbeatRequest, api_version: int) -> None:
        """Raises INVALID_REQUEST or UNSUPPORTED_ASSIGNOR for a request that no group can serve."""
        epoch = request.member_epoch
        needs_id = api_version >= MEMBER_ID_REQUIRED_FROM or epoch > 0 or epoch == LEAVING_EPOCH
        _check_text(request.member_id if needs_id else None, "MemberId")
        _check_text(request.group_id, "GroupId")
        _check_text(request.instance_id, "InstanceId")
        _check_text(request.rack_id, "RackId")
        if epoch == JOINING_EPOCH:
            if request.rebalance_timeout_ms == -1:
                raise _invalid("RebalanceTimeoutMs must be provided in first request.")
            if request.topic_partitions is None or request.topic_partitions:
                raise _invalid("TopicPartitions must be empty when (re-)joining.")
            if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
                raise _invalid(
                    "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
                )
        elif epoch == STATIC_LEAVING_EPOCH:
            if request.instance_id is None:
                raise _invalid("InstanceId can't be null.")
        elif epoch < STATIC_LEAVING_EPOCH:
            raise _invalid("MemberEpoch is invalid.")
        check_subscription(request.subscribed_topic_names)
        supported = assignor_names(self._groups.config)
        if request.server_assignor is not None and request.server_assignor not in supported:
            raise KafkaError(
                f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: "
                f"{', '.join(supported)}.",
                ErrorCode.UNSUPPORTED_ASSIGNOR,
            )

    def describe(self, group_id: str) -> m.ConsumerGroupDescribeResponse.DescribedGroup:
        """ConsumerGroupDescribe of one group."""
        error = self._groups.unavailable(group_id)
        if error is not ErrorCode.NONE:
            return describe_refused(group_id, error)
        try:
            group = self._existing(group_id)
        except KafkaError as missing:
            return describe_refused(group_id, missing.code, missing.message)
        return describe(group, assignor_names(self._groups.config), self._groups.topics)

    # Requests of classic members

    def join(self, group: ConsumerGroup, event: Join, reply: Reply, group_event: GroupEvent) -> None:
        """JoinGroup to a group with members."""
        change = EventChange(group)
        member_id = event.member_id or new_member_id(self._groups)
        refuse = partial(join_refused, event.member_id)
        try:
            response, downgrades = classic_members.join(self._groups, group, event, member_id, change, group_event)
            if downgrades:
                waiting = Response(reply, response, refuse)
                rebalances = group.target_epoch < group.epoch
                self._downgrade(change, group, (), group_event, waiting, rebalances=rebalances)
                return
        except KafkaError as error:
            change.take_back()
            group_event.answer(reply, refuse(error.code))
            return
        group.writes.commit(change, group_event, reply, response, refuse)

    def sync(self, group: ConsumerGroup, request: m.SyncGroupRequest, reply: Reply, group_event: GroupEvent) -> None:
        """SyncGroup."""
        try:
            classic_members.sync(self._groups, group, request, reply, group_event)
        except KafkaError as error:
            group_event.answer(reply, sync_refused(error.code))

    def classic_heartbeat(
        self, group: ConsumerGroup, request: m.HeartbeatRequest, group_event: GroupEvent
    ) -> ErrorCode:
        """Heartbeat."""
        return classic_members.heartbeat(group, request, group_event)

    def leave(
        self,
        group: ConsumerGroup,
        identities: Iterable[m.LeaveGroupRequest.MemberIdentity],
        group_event: GroupEvent,
    ) -> list[ErrorCode]:
        """LeaveGroup, also of members that speak the consumer protocol: an administrator may remove them."""
        members, errors = classic_members.leaving(group, identities)
        self._fence(group, members, group_event)
        return errors

    # What was computed off the loop

    def assigned(self, assigning: Assigning, target: TargetAssignment | None, now_ms: int) -> Actions:
        """Takes in a target assignment that was computed off the loop; None if that failed. It is dropped if the group
        is no longer served here, or if a change was taken back since: the epoch may then be another one's."""
        group_event = self._groups.event(now_ms)
        group = assigning.group
        group.is_assigning = False
        is_current = assigning.epoch > group.target_epoch and assigning.taken_back == group.writes.taken_back
        if target is not None and is_current and self._groups.get(group.group_id) is group:
            change = EventChange(group)
            take_target(assigning, target, change, now_ms)
            group.writes.commit(change, group_event)
        return group_event.actions

    def resolved(self, resolving: Resolving, topics: Mapping[str, frozenset[str]] | None, now_ms: int) -> Actions:
        """Takes in the topics that a group's regular expressions match; None if that failed."""
        group_event = self._groups.event(now_ms)
        group = resolving.group
        group.is_resolving = False
        if topics is None or self._groups.get(group.group_id) is not group:
            return group_event.actions
        change, has_changed = EventChange(group), False
        for regex, names in topics.items():
            if not group.regex_count(regex):
                continue
            known = group.resolved.get(regex)
            has_changed |= names != (known.topics if known is not None else frozenset())
            found = ResolvedRegularExpression(names, resolving.topics_version, now_ms)
            change.add(records.Resolved(regex, found))
        refresh(self._groups, group, change, group_event, bumps=has_changed)
        group.writes.commit(change, group_event)
        return group_event.actions

    # The life of a group

    def tombstones(self, group: ConsumerGroup) -> list[KeyValue]:
        """The tombstones of all records of a group."""
        return [*group.writes.unwritten(), *(each.encode(group.group_id) for each in records.tombstones(group))]

    def loaded(self, group: ConsumerGroup, group_event: GroupEvent) -> None:
        """Starts the sessions of a loaded group."""
        self._adopt(group)
        group.writes.has_begun = True
        self._restart(group, group_event)

    def _taken_back(self, group: ConsumerGroup, group_event: GroupEvent) -> None:
        """A write has failed. A group of which the log has nothing ends; the one whose place it took is there again."""
        if group.writes.has_begun or group.writes.is_in_flight:
            self._restart(group, group_event)
        elif group.replaced is not None:
            self._classic.take_up(group.replaced, group_event)
        elif not group.offsets.partitions():
            self._groups.remove(group)

    def _restart(self, group: ConsumerGroup, group_event: GroupEvent) -> None:
        session_ms = self._groups.number(group.group_id, "consumer.session.timeout.ms")
        for member in group.members.values():
            own_ms = session_ms if member.classic is None else member.classic.session_timeout_ms
            group_event.start(TimerKind.SESSION, group, own_ms, member.member_id)
            if member.state is MemberState.UNREVOKED_PARTITIONS:
                group_event.start(TimerKind.REBALANCE, group, member.rebalance_timeout_ms, member.member_id)

    def unload(self, group: ConsumerGroup, error: ErrorCode, group_event: GroupEvent) -> None:
        """Cancels the deadlines. Requests wait for writes only, whose end answers them."""
        group.writes.is_over = True
        for member_id in group.members:
            stop_timers(group, member_id, group_event)

    def timed_out(self, group: ConsumerGroup, timer: Timer, group_event: GroupEvent) -> None:
        """Removes a member whose session has ended, or that has not given up partitions in time."""
        member = group.members.get(timer.member_id)
        if member is None:
            return
        if timer.kind is TimerKind.REBALANCE and member.state is not MemberState.UNREVOKED_PARTITIONS:
            return
        try:
            self._fence(group, [member], group_event)
        except KafkaError:  # its classic members cannot be read, so that the group stays as it is
            change = EventChange(group)
            remove(self._groups, group, [member], change, group_event)
            group.writes.commit(change, group_event)


def _check_text(text: str | None, name: str) -> None:
    if text is not None and not text.strip():
        raise _invalid(f"{name} can't be empty.")


def _invalid(message: str) -> KafkaError:
    return KafkaError(message, ErrorCode.INVALID_REQUEST)
