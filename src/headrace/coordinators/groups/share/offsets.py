"""Administration of the offsets of share groups, and of their share state.

It goes in steps: the machine notes what is about to happen, the caller asks the persister, the machine notes what has
happened. Source: Kafka's `GroupMetadataManager`, its share groups.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from headrace.coordinators.groups.group_event import Actions, GroupEvent
from headrace.coordinators.groups.share.group import ShareGroup
from headrace.coordinators.groups.share.lookup import ShareGroupLookup
from headrace.coordinators.groups.share.records import (
    EpochRecord,
    ShareRecord,
    TopicsRecord,
)
from headrace.coordinators.groups.share.results import Altered, RequestRefused, ToDelete
from headrace.coordinators.groups.share.share_topics import Partitions, ShareTopic, ShareTopics
from headrace.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.coordinators.groups.replies import Reply


class ShareOffsets(ShareGroupLookup):
    """The share partitions of share groups that have state."""

    __slots__ = ()

    def initialized_partitions(self, group_id: str) -> tuple[ErrorCode, Mapping[bytes, frozenset[int]]]:
        """The share partitions of a group that have state; none for a group that does not exist."""
        error = self._groups.unavailable(group_id, needs_name=False)
        group = self._groups.get(group_id)
        if error is not ErrorCode.NONE or not isinstance(group, ShareGroup) or group.share_topics is None:
            return error, {}
        return ErrorCode.NONE, group.share_topics.assignable

    def alter_offsets(self, group_id: str, partitions: Partitions, reply: Reply, now_ms: int) -> Actions:
        """AlterShareGroupOffsets, its first step: these share partitions begin anew. The caller has checked that they
        exist. The reply gets an `Altered`. A group that does not exist is created."""
        group_event = self._groups.event(now_ms)
        try:
            error = self._groups.unavailable(group_id)
            if error is not ErrorCode.NONE:
                raise RequestRefused(error)
            group = self._group(group_id, creates=True)
            if not group.is_empty:
                raise RequestRefused(ErrorCode.NON_EMPTY_GROUP)
        except RequestRefused as refused:
            group_event.answer(reply, Altered(refused.error))
            return group_event.actions
        topics = self._groups.topics
        added = {
            topic_id: ShareTopic(topic.name, each, now_ms)
            for topic_id, each in partitions.items()
            if (topic := topics.by_id(topic_id)) is not None
        }
        records: list[ShareRecord] = []
        known, epoch = group.share_topics or ShareTopics(), group.epoch
        if added and known.has_any(added):
            # A share partition may have begun in this epoch, in which the share coordinator takes no second beginning.
            epoch += 1
            records.append(EpochRecord(epoch, group.metadata_hash))
        if added:
            records.append(TopicsRecord(known.with_initializing(added)))
            if self._groups.get(group_id) is not group:
                self._groups.put(group)
        group.writes.write(records, group_event, reply, Altered(ErrorCode.NONE, epoch), Altered)
        return group_event.actions

    def delete_offsets(self, group_id: str, names: Iterable[str], reply: Reply, now_ms: int) -> Actions:
        """DeleteShareGroupOffsets, its first step: the state of these topics is about to be removed. The reply gets a
        `ToDelete`."""
        group_event = self._groups.event(now_ms)
        group = self._empty(group_id, reply, group_event)
        if group is None:
            return group_event.actions
        known, topics = group.share_topics, self._groups.topics
        if known is None:
            group_event.answer(reply, ToDelete())
            return group_event.actions
        wanted: dict[bytes, frozenset[int]] = {}
        unknown: list[str] = []
        for name in names:
            topic = topics.by_name(name)
            topic_id = b"" if topic is None else topic.topic_id
            if topic_id in known.initialized:
                wanted[topic_id] = known.initialized[topic_id].partitions
            elif topic is not None and topic_id in known.deleting:
                wanted[topic_id] = frozenset(range(topic.partition_count))
            else:
                unknown.append(name)
        after = TopicsRecord(known.with_deleting(wanted.keys()))
        answer = ToDelete(ErrorCode.NONE, wanted, tuple(unknown))
        group.writes.write([after], group_event, reply, answer, ToDelete)
        return group_event.actions

    def offsets_deleted(self, group_id: str, topic_ids: Collection[bytes], reply: Reply, now_ms: int) -> Actions:
        """DeleteShareGroupOffsets, its last step; the reply gets an error code."""
        group_event = self._groups.event(now_ms)
        group = self._groups.get(group_id)
        if not isinstance(group, ShareGroup) or group.share_topics is None:
            group_event.answer(reply, ErrorCode.NONE)
        else:
            after = TopicsRecord(group.share_topics.deleted(topic_ids))
            group.writes.write([after], group_event, reply, ErrorCode.NONE, ErrorCode)
        return group_event.actions

    def begin_deletion(self, group_id: str, reply: Reply, now_ms: int) -> Actions:
        """DeleteGroups, its first step: all state of the group is about to be removed. The reply gets a `ToDelete`."""
        group_event = self._groups.event(now_ms)
        group = self._empty(group_id, reply, group_event)
        if group is None:
            return group_event.actions
        if group.share_topics is None:
            group_event.answer(reply, ToDelete())
            return group_event.actions
        after, partitions = group.share_topics.all_deleting(self._groups.topics)
        answer = ToDelete(ErrorCode.NONE, partitions)
        group.writes.write([TopicsRecord(after)], group_event, reply, answer, ToDelete)
        return group_event.actions

    def _empty(self, group_id: str, reply: Reply, group_event: GroupEvent) -> ShareGroup | None:
        """A group without members; None if there is none, after the answer."""
        try:
            group = self._existing(group_id)
        except RequestRefused as refused:
            group_event.answer(reply, ToDelete(refused.error))
            return None
        if not group.is_empty:
            group_event.answer(reply, ToDelete(ErrorCode.NON_EMPTY_GROUP))
            return None
        return group

    def forget_topics(self, group: ShareGroup, names: Collection[str], group_event: GroupEvent) -> None:
        """Drops deleted topics from the list of those with state; their share coordinators remove the state itself."""
        known, topics = group.share_topics, self._groups.topics
        if known is None:
            return
        gone = {
            topic_id
            for held in (known.initializing, known.initialized)
            for topic_id, each in held.items()
            if each.name in names and topics.by_id(topic_id) is None
        }
        gone.update(each for each, name in known.deleting.items() if name in names and topics.by_id(each) is None)
        if gone:
            group.writes.write([TopicsRecord(known.without(gone))], group_event)
