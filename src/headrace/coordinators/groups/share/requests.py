"""The requests of share groups, and the life of their groups.

Heartbeats and the administration of offsets have modules of their own. Source: Kafka's `GroupMetadataManager`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from headrace.coordinators.groups.group_event import GroupEvent, Timer, TimerKind
from headrace.coordinators.groups.share.group import ShareGroup, ShareMember
from headrace.coordinators.groups.share.heartbeats import ShareHeartbeats
from headrace.coordinators.groups.share.offsets import ShareOffsets
from headrace.coordinators.groups.share.records import (
    CurrentRecord,
    EpochRecord,
    MemberRecord,
    ShareRecord,
    TargetEpochRecord,
    TargetRecord,
    TopicsRecord,
)
from headrace.coordinators.groups.share.results import RequestRefused
from headrace.errors import ErrorCode
from headrace.protocol import messages as m

if TYPE_CHECKING:
    from headrace.coordinators.runtime import KeyValue

log = logging.getLogger(__name__)

ASSIGNOR = "simple"


class ShareGroups(ShareHeartbeats, ShareOffsets):
    """The share groups of a coordinator."""

    __slots__ = ()

    def describe(self, group_id: str) -> m.ShareGroupDescribeResponse.DescribedGroup:
        """ShareGroupDescribe of one group."""
        described = m.ShareGroupDescribeResponse.DescribedGroup(group_id=group_id)
        try:
            group = self._existing(group_id)
        except RequestRefused as refused:
            described.error_code, described.error_message = refused.error, refused.message
            return described
        described.group_state, described.group_epoch = group.state_name, group.epoch
        described.assignment_epoch, described.assignor_name = group.target_epoch, ASSIGNOR
        described.members = [self._described(each) for each in group.members.values()]
        return described

    def _described(self, member: ShareMember) -> m.ShareGroupDescribeResponse.Member:
        topics = self._groups.topics
        return m.ShareGroupDescribeResponse.Member(
            member_id=member.member_id,
            rack_id=member.rack_id,
            member_epoch=member.member_epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.topics),
            assignment=m.ShareGroupDescribeResponse.Assignment(
                topic_partitions=[
                    m.ShareGroupDescribeResponse.TopicPartitions(
                        topic_id=topic_id, topic_name=topic.name, partitions=sorted(partitions)
                    )
                    for topic_id, partitions in member.assigned.items()
                    if (topic := topics.by_id(topic_id)) is not None
                ]
            ),
        )

    # As a kind of groups

    def tombstones(self, group: ShareGroup) -> list[KeyValue]:
        """The tombstones of all records of a group."""
        members = list(group.members)
        records: list[ShareRecord] = [
            *(CurrentRecord(each, None) for each in members),
            *(TargetRecord(each, None) for each in {*members, *group.target}),
            TargetEpochRecord(None),
            *(MemberRecord(each, None) for each in members),
            TopicsRecord(None),
            EpochRecord(None),
        ]
        return [*group.writes.unwritten(), *(each.encode(group.group_id) for each in records)]

    def loaded(self, group: ShareGroup, group_event: GroupEvent) -> None:
        """Begins the sessions of the members of a group that was loaded."""
        group.session_timeout_ms = self._number(group.group_id, "share.session.timeout.ms")
        group.taken_back(group_event)

    def unload(self, group: ShareGroup, error: ErrorCode, group_event: GroupEvent) -> None:
        """Ends the sessions of a group that this broker no longer serves, or that is deleted."""
        group.writes.is_over = True
        for member_id in group.members:
            group_event.stop(TimerKind.SESSION, group, member_id)

    def timed_out(self, group: ShareGroup, timer: Timer, group_event: GroupEvent) -> None:
        """Removes a member whose heartbeats have ended."""
        if timer.member_id in group.members:
            log.info("share group %s: the session of member %s has expired", group.group_id, timer.member_id)
            group.writes.write(self._left(group, timer.member_id), group_event)
