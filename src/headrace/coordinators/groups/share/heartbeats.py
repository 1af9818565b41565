"""ShareGroupHeartbeat: a member joins, subscribes, gets its partitions, leaves.

    ShareGroupHeartbeat ─▶ member ─▶ group epoch ─▶ target assignment ─▶ the member's assignment ─▶ answer
                              └─▶ subscribed topics without share state ─▶ the caller asks the persister
                                                                              └─▶ initialized: assigned from then on

A heartbeat is answered with a `Beat`, which says as well which share partitions the persister is to initialize; the
caller does so, and reports with `initialized` or `not_initialized`. Source: Kafka's `GroupMetadataManager`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.coordinators.assignors.assignor import NO_PARTITIONS, PartitionAssignorError
from headrace.coordinators.groups.group_event import Actions, GroupEvent, Timer, TimerKind
from headrace.coordinators.groups.modern.modern_group import hash_of, is_interval_over
from headrace.coordinators.groups.modern.subscriptions import Subscriptions, check_subscription
from headrace.coordinators.groups.share.assigning import (
    AssigningShares,
    is_due,
    prepare,
    reconciled,
    target_records,
)
from headrace.coordinators.groups.share.group import ShareGroup, ShareMember
from headrace.coordinators.groups.share.lookup import ShareGroupLookup
from headrace.coordinators.groups.share.records import (
    CurrentRecord,
    EpochRecord,
    MemberRecord,
    ShareRecord,
    TargetRecord,
    TopicsRecord,
)
from headrace.coordinators.groups.share.results import Beat, RequestRefused, ToInitialize, failed_heartbeat
from headrace.coordinators.groups.share.share_topics import Partitions, ShareTopics
from headrace.errors import ErrorCode, KafkaError
from headrace.limits import ASSIGNED_IN_PLACE_MAX
from headrace.protocol import messages as m

if TYPE_CHECKING:
    from headrace.coordinators.assignors.assignor import TargetAssignment
    from headrace.coordinators.groups.group import Group
    from headrace.coordinators.groups.replies import Reply


LEAVES, JOINS = -1, 0
"""The member epochs of a member that leaves, and of one that joins."""


class ShareHeartbeats(ShareGroupLookup):
    """The heartbeats of share groups."""

    __slots__ = ()

    def heartbeat(
        self, request: m.ShareGroupHeartbeatRequest, client_id: str, client_host: str, reply: Reply, now_ms: int
    ) -> Actions:
        """ShareGroupHeartbeat; the reply gets a `Beat` when what it leads to is stored."""
        group_event = self._groups.event(now_ms)
        try:
            _check(request)
            error = self._groups.unavailable(request.group_id)
            if error is not ErrorCode.NONE:
                raise RequestRefused(error)
            if request.member_epoch == LEAVES:
                self._leave(request, reply, group_event)
            else:
                self._beat(request, client_id, client_host, reply, group_event)
        except RequestRefused as refused:
            group_event.answer(reply, Beat(failed_heartbeat(refused.error, refused.message)))
        except KafkaError as error:
            group_event.answer(reply, Beat(failed_heartbeat(error.code, error.message)))
        return group_event.actions

    def keep_alive(
        self, group: Group, member_id: str, epoch: int, client_id: str, client_host: str, now_ms: int
    ) -> int:
        """Does what `heartbeat` does about a member that tells nothing but its epoch, if it has nothing to learn and
        nothing is due in its group. Returns the interval until its next heartbeat in ms; 0, with nothing done, in any
        other case."""
        if not isinstance(group, ShareGroup) or group.writes.is_busy or group.settled is None:
            return 0
        member = group.members.get(member_id)
        if (
            member is None
            or epoch != member.member_epoch
            or epoch != group.target_epoch
            or epoch <= JOINS
            or group.epoch > group.target_epoch
            or member.client_id != client_id
            or member.client_host != client_host
            or group.is_refresh_due(now_ms)
            or not group.settled.is_still(group.now(self._groups.topics.version))
        ):
            return 0
        session_ms = self._number(group.group_id, "share.session.timeout.ms")
        timer = Timer(TimerKind.SESSION, group.group_id, member_id)
        if not self._groups.deadlines.postpone(timer, now_ms + session_ms):
            return 0
        group.session_timeout_ms = session_ms
        return self._number(group.group_id, "share.heartbeat.interval.ms")

    def _beat(
        self,
        request: m.ShareGroupHeartbeatRequest,
        client_id: str,
        client_host: str,
        reply: Reply,
        group_event: GroupEvent,
    ) -> None:
        now_ms, topics = group_event.now_ms, self._groups.topics
        group = self._group(request.group_id, creates=request.member_epoch == JOINS)
        members_max = self._groups.config.share_group_max_size
        if request.member_id not in group.members and len(group.members) >= members_max:
            text = f"The share group has reached its maximum capacity of {members_max} members."
            raise RequestRefused(ErrorCode.GROUP_MAX_SIZE_REACHED, text)
        known = self._member(group, request)
        member = _updated(known, request, client_id, client_host)

        records: list[ShareRecord] = []
        if member != known or request.member_id not in group.members:
            records.append(MemberRecord(member.member_id, member))
        now = group.now(topics.version)
        is_settled = member.topics == known.topics and group.settled is not None and group.settled.is_still(now)
        epoch, subscribed = self._next_epoch(group, known, member, records, now_ms, is_settled=is_settled)
        is_bumped = epoch > group.epoch
        member = self._moved(group, member, epoch, records, group_event)
        to_initialize = None
        if not is_settled:
            to_initialize = self._to_initialize(group, epoch, subscribed, records, now_ms)
            has_asked = to_initialize is not None or (
                group.share_topics is not None and group.share_topics.initializing
            )
            if not is_bumped and not has_asked and group.target_epoch >= epoch:
                group.settled = now
        response = m.ShareGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.member_epoch,
            heartbeat_interval_ms=self._number(group.group_id, "share.heartbeat.interval.ms"),
        )
        is_full = request.member_epoch == JOINS or request.subscribed_topic_names is not None
        if is_full or member.assigned != known.assigned:
            response.assignment = _assignment(member)
        if self._groups.get(group.group_id) is not group:
            self._groups.put(group)
        group.session_timeout_ms = self._number(group.group_id, "share.session.timeout.ms")
        group_event.start(TimerKind.SESSION, group, group.session_timeout_ms, member.member_id)
        beat = Beat(response, to_initialize)
        group.writes.write(records, group_event, reply, beat, lambda code: Beat(failed_heartbeat(code)))

    def _next_epoch(
        self,
        group: ShareGroup,
        known: ShareMember,
        member: ShareMember,
        records: list[ShareRecord],
        now_ms: int,
        *,
        is_settled: bool,
    ) -> tuple[int, Subscriptions]:
        """The group epoch, which grows if subscriptions or topics have changed, and the group's subscriptions with this
        member's. Adds the record of a new epoch."""
        epoch, subscribed = group.epoch, group.subscriptions
        is_bumped = member.topics != known.topics
        if group.target_epoch >= epoch and not is_settled:
            is_bumped = is_bumped or is_due(group)
        if is_bumped or group.is_refresh_due(now_ms):
            if member.topics != known.topics:
                subscribed = group.subscriptions.copy()
                subscribed.replace_names(known.topics, member.topics)
            metadata_hash = hash_of(subscribed, self._groups.topics)
            if is_bumped or metadata_hash != group.metadata_hash:
                epoch += 1
                records.append(EpochRecord(epoch, metadata_hash))
            group.refreshed(epoch, now_ms)
        return epoch, subscribed

    def _moved(
        self,
        group: ShareGroup,
        member: ShareMember,
        epoch: int,
        records: list[ShareRecord],
        group_event: GroupEvent,
    ) -> ShareMember:
        """The member with the partitions of its target assignment, which is computed if it is due. Adds the records."""
        target_epoch, target = group.target_epoch, group.target.get(member.member_id, NO_PARTITIONS)
        new = self._new_target(group, member, epoch, group_event)
        if new:
            records += new
            target_epoch = epoch
            for each in new:
                if isinstance(each, TargetRecord) and each.member_id == member.member_id:
                    target = each.partitions or NO_PARTITIONS
        is_bumped = epoch > group.epoch
        if not is_bumped and member.member_epoch == target_epoch:
            return member
        after = reconciled(member, target_epoch, target, self._groups.topics, is_changed=is_bumped)
        if after != member:
            records.append(CurrentRecord(after.member_id, after))
        return after

    def _new_target(
        self, group: ShareGroup, member: ShareMember, epoch: int, group_event: GroupEvent
    ) -> list[ShareRecord]:
        """The records of a new target assignment, if it is due; that of a large group is computed elsewhere, and comes
        to `assigned`."""
        interval_ms = self._number(group.group_id, "share.assignment.interval.ms")
        is_over = is_interval_over(group.target_timestamp_ms, interval_ms, group_event.now_ms)
        if group.target_epoch >= epoch or group.is_assigning or not is_over:
            return []
        assigning = prepare(group, member, epoch, self._groups.topics)
        if assigning.size > ASSIGNED_IN_PLACE_MAX:
            group.is_assigning = True
            group_event.effect(assigning)
            return []
        try:
            target = assigning.compute()
        except PartitionAssignorError as error:
            text = f"Failed to compute a new target assignment for epoch {epoch}: {error}"
            raise RequestRefused(ErrorCode.UNKNOWN_SERVER_ERROR, text) from error
        return target_records(group, epoch, target, group_event.now_ms)

    def assigned(self, assigning: AssigningShares, target: TargetAssignment | None, now_ms: int) -> Actions:
        """Takes in a target assignment that was computed elsewhere; None if that failed. A heartbeat tries again."""
        group_event = self._groups.event(now_ms)
        group, epoch = assigning.group, assigning.epoch
        group.is_assigning = False
        is_current = self._groups.get(group.group_id) is group and group.target_epoch < epoch <= group.epoch
        if target is not None and is_current:
            present = {member_id: each for member_id, each in target.items() if member_id in group.members}
            group.writes.write(target_records(group, epoch, present, now_ms), group_event)
        return group_event.actions

    def _member(self, group: ShareGroup, request: m.ShareGroupHeartbeatRequest) -> ShareMember:
        """The member, or a new one that joins. A member may send its previous epoch, since the answer with the new one
        may have been lost."""
        member = group.members.get(request.member_id)
        if member is None:
            if request.member_epoch != JOINS:
                text = f"Member {request.member_id} is not a member of group {group.group_id}."
                raise RequestRefused(ErrorCode.UNKNOWN_MEMBER_ID, text)
            return ShareMember(request.member_id)
        given = request.member_epoch
        if given in (JOINS, member.member_epoch) or given == member.previous_epoch < member.member_epoch:
            return member
        is_greater = given > member.member_epoch
        text = (
            f"The share group member has a {'greater' if is_greater else 'smaller'} member epoch ({given}) than the "
            f"one known by the group coordinator ({member.member_epoch})"
            + ("" if is_greater else f", and it does not match the previous member epoch ({member.previous_epoch})")
            + ". The member must abandon all its partitions and rejoin."
        )
        raise RequestRefused(ErrorCode.FENCED_MEMBER_EPOCH, text)

    def _leave(self, request: m.ShareGroupHeartbeatRequest, reply: Reply, group_event: GroupEvent) -> None:
        group = self._existing(request.group_id)
        if request.member_id not in group.members:
            text = f"Member {request.member_id} is not a member of group {group.group_id}."
            raise RequestRefused(ErrorCode.UNKNOWN_MEMBER_ID, text)
        response = m.ShareGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
        group_event.stop(TimerKind.SESSION, group, request.member_id)
        group.writes.write(
            self._left(group, request.member_id),
            group_event,
            reply,
            Beat(response),
            lambda code: Beat(failed_heartbeat(code)),
        )

    def _left(self, group: ShareGroup, member_id: str) -> list[ShareRecord]:
        """The records that remove a member."""
        subscribed = group.subscriptions.copy()
        subscribed.replace_names(group.members[member_id].topics, ())
        return [
            CurrentRecord(member_id, None),
            TargetRecord(member_id, None),
            MemberRecord(member_id, None),
            EpochRecord(group.epoch + 1, hash_of(subscribed, self._groups.topics)),
        ]

    # The persister's part

    def _to_initialize(
        self, group: ShareGroup, epoch: int, subscribed: Iterable[str], records: list[ShareRecord], now_ms: int
    ) -> ToInitialize | None:
        known = group.share_topics or ShareTopics()
        retry_ms = self._groups.config.share_group_initialize_retry_interval_ms
        missing = known.missing(subscribed, self._groups.topics, retry_ms, now_ms)
        if not missing:
            return None
        records.append(TopicsRecord(known.with_initializing(missing)))
        return ToInitialize(epoch, {topic_id: each.partitions for topic_id, each in missing.items()})

    def initialized(self, group_id: str, partitions: Partitions, now_ms: int) -> Actions:
        """The persister has begun the state of these share partitions."""
        group_event = self._groups.event(now_ms)
        group = self._groups.get(group_id)
        if isinstance(group, ShareGroup):
            known = group.share_topics or ShareTopics()
            after = known.with_initialized(partitions, self._groups.topics, now_ms)
            group.writes.write([TopicsRecord(after)], group_event)
        return group_event.actions

    def not_initialized(self, group_id: str, partitions: Partitions, now_ms: int) -> Actions:
        """The persister has failed to begin the state of these share partitions; a later heartbeat tries again."""
        group_event = self._groups.event(now_ms)
        group = self._groups.get(group_id)
        if isinstance(group, ShareGroup) and group.share_topics is not None and group.share_topics.initializing:
            after = group.share_topics.without_initializing(partitions)
            group.writes.write([TopicsRecord(after)], group_event)
        return group_event.actions


def _check(request: m.ShareGroupHeartbeatRequest) -> None:
    """Raises `RequestRefused` for a request that no client may send."""
    for name, value in (("MemberId", request.member_id), ("GroupId", request.group_id), ("RackId", request.rack_id)):
        if value is not None and not value.strip():
            raise RequestRefused(ErrorCode.INVALID_REQUEST, f"{name} can't be empty.")
    if request.member_epoch == JOINS and not request.subscribed_topic_names:
        raise RequestRefused(ErrorCode.INVALID_REQUEST, "SubscribedTopicNames must be set in first request.")
    if request.member_epoch < LEAVES:
        raise RequestRefused(ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid.")
    check_subscription(request.subscribed_topic_names)


def _updated(
    member: ShareMember, request: m.ShareGroupHeartbeatRequest, client_id: str, client_host: str
) -> ShareMember:
    """The member with what the request says of it; a field that is null stays as it was."""
    member = member._replace(client_id=client_id, client_host=client_host)
    if request.rack_id is not None:
        member = member._replace(rack_id=request.rack_id)
    if request.subscribed_topic_names is not None:
        member = member._replace(topics=frozenset(request.subscribed_topic_names))
    return member


def _assignment(member: ShareMember) -> m.ShareGroupHeartbeatResponse.Assignment:
    return m.ShareGroupHeartbeatResponse.Assignment(
        topic_partitions=[
            m.ShareGroupHeartbeatResponse.TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in member.assigned.items()
        ]
    )
