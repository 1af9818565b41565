"""The records of share groups in `__consumer_offsets`: what each changes in a group, and Kafka's schema.

    10    a member: its subscription             13    a member's target assignment
    11    the group: epoch, metadata hash        14    a member: epoch, assigned partitions
    12    the target assignment's epoch          15    the topics whose share partitions have state

A record without content is a tombstone. `apply` returns the record that restores what it replaced. Version 9, of an
earlier Kafka, is skipped. Source: Kafka's `GroupCoordinatorRecordHelpers`, `GroupMetadataManager.replay`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from headrace.coordinators.assignors.assignor import NO_PARTITIONS, Partitions
from headrace.coordinators.groups.modern.modern_group import FIRST_EPOCH, NO_TIMESTAMP
from headrace.coordinators.groups.share.group import LEFT_EPOCH, STABLE, ShareGroup, ShareMember
from headrace.coordinators.groups.share.share_topics import ShareTopic, ShareTopics
from headrace.errors import CorruptMessage
from headrace.protocol import messages as m

if TYPE_CHECKING:
    from headrace.coordinators.runtime import KeyValue

_VERSION = Struct(">h")
_VALUE_VERSION = 0
KEY_VERSIONS = range(10, 16)


class MemberRecord(NamedTuple):
    """A member's subscription; without one the member leaves."""

    member_id: str
    subscription: ShareMember | None

    def encode(self, group_id: str) -> KeyValue:
        key = m.ShareGroupMemberMetadataKey(group_id=group_id, member_id=self.member_id)
        member = self.subscription
        if member is None:
            return _key(10, key), None
        value = m.ShareGroupMemberMetadataValue(
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.topics),
        )
        return _key(10, key), _value(value)

    def apply(self, group: ShareGroup) -> Restored:
        known = group.members.get(self.member_id)
        given = self.subscription
        if given is None:
            group.remove_member(self.member_id)
        elif known is None:
            group.put_member(ShareMember(self.member_id, *given[1:5]))
        else:
            group.put_member(ShareMember(self.member_id, *given[1:5], *known[5:]))
        return Restored(self.member_id, known)


class Restored(NamedTuple):
    """Takes back what was done to a member. Never written."""

    member_id: str
    member: ShareMember | None

    def encode(self, group_id: str) -> KeyValue:
        raise AssertionError("a record that takes back another is not written")

    def apply(self, group: ShareGroup) -> Restored:
        if self.member is None:
            return Restored(self.member_id, group.remove_member(self.member_id))
        return Restored(self.member_id, group.put_member(self.member))


class EpochRecord(NamedTuple):
    """The group epoch, and the metadata hash of its topics."""

    epoch: int | None
    metadata_hash: int = 0

    def encode(self, group_id: str) -> KeyValue:
        key = _key(11, m.ShareGroupMetadataKey(group_id=group_id))
        if self.epoch is None:
            return key, None
        return key, _value(m.ShareGroupMetadataValue(epoch=self.epoch, metadata_hash=self.metadata_hash))

    def apply(self, group: ShareGroup) -> EpochRecord:
        before = EpochRecord(group.epoch, group.metadata_hash)
        group.epoch = FIRST_EPOCH if self.epoch is None else self.epoch
        group.metadata_hash = self.metadata_hash
        return before


class TargetEpochRecord(NamedTuple):
    """The epoch of the target assignment."""

    epoch: int | None
    timestamp_ms: int = NO_TIMESTAMP

    def encode(self, group_id: str) -> KeyValue:
        key = _key(12, m.ShareGroupTargetAssignmentMetadataKey(group_id=group_id))
        if self.epoch is None:
            return key, None
        value = m.ShareGroupTargetAssignmentMetadataValue(
            assignment_epoch=self.epoch, assignment_timestamp=self.timestamp_ms
        )
        return key, _value(value)

    def apply(self, group: ShareGroup) -> TargetEpochRecord:
        before = TargetEpochRecord(group.target_epoch, group.target_timestamp_ms)
        group.target_epoch = FIRST_EPOCH if self.epoch is None else self.epoch
        group.target_timestamp_ms = self.timestamp_ms
        return before


class TargetRecord(NamedTuple):
    """The target assignment of a member."""

    member_id: str
    partitions: Partitions | None

    def encode(self, group_id: str) -> KeyValue:
        key = _key(13, m.ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=self.member_id))
        if self.partitions is None:
            return key, None
        topics = [
            m.ShareGroupTargetAssignmentMemberValue.TopicPartition(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in self.partitions.items()
        ]
        return key, _value(m.ShareGroupTargetAssignmentMemberValue(topic_partitions=topics))

    def apply(self, group: ShareGroup) -> TargetRecord:
        before = group.target.pop(self.member_id, None)
        if self.partitions is not None:
            group.target[self.member_id] = self.partitions
        return TargetRecord(self.member_id, before)


class CurrentRecord(NamedTuple):
    """The epoch of a member, and its partitions. Without them the member is leaving."""

    member_id: str
    current: ShareMember | None

    def encode(self, group_id: str) -> KeyValue:
        key = _key(14, m.ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=self.member_id))
        member = self.current
        if member is None:
            return key, None
        value = m.ShareGroupCurrentMemberAssignmentValue(
            member_epoch=member.member_epoch,
            previous_member_epoch=member.previous_epoch,
            state=STABLE,
            assigned_partitions=[
                m.ShareGroupCurrentMemberAssignmentValue.TopicPartitions(
                    topic_id=topic_id, partitions=sorted(partitions)
                )
                for topic_id, partitions in member.assigned.items()
            ],
        )
        return key, _value(value)

    def apply(self, group: ShareGroup) -> Restored:
        known = group.members.get(self.member_id)
        now = self.current
        if now is not None:
            base = known or ShareMember(self.member_id)
            group.put_member(ShareMember(*base[:5], *now[5:]))
        elif known is not None:
            left = known._replace(member_epoch=LEFT_EPOCH, previous_epoch=LEFT_EPOCH, assigned=NO_PARTITIONS)
            group.put_member(left)
        return Restored(self.member_id, known)


class TopicsRecord(NamedTuple):
    """The topics whose share partitions have state."""

    topics: ShareTopics | None

    def encode(self, group_id: str) -> KeyValue:
        key = _key(15, m.ShareGroupStatePartitionMetadataKey(group_id=group_id))
        if self.topics is None:
            return key, None
        value = m.ShareGroupStatePartitionMetadataValue(
            initializing_topics=_infos(self.topics.initializing),
            initialized_topics=_infos(self.topics.initialized),
            deleting_topics=[
                m.ShareGroupStatePartitionMetadataValue.TopicInfo(topic_id=topic_id, topic_name=name)
                for topic_id, name in self.topics.deleting.items()
            ],
        )
        return key, _value(value)

    def apply(self, group: ShareGroup) -> TopicsRecord:
        before, group.share_topics = group.share_topics, self.topics
        return TopicsRecord(before)


ShareRecord: TypeAlias = (
    MemberRecord | EpochRecord | TargetEpochRecord | TargetRecord | CurrentRecord | TopicsRecord | Restored
)


def read_record(key_version: int, key: bytes, value: bytes | None) -> tuple[str, ShareRecord]:
    """The group id and the record. Raises `CorruptMessage`."""
    at = _VERSION.size
    if value is not None and (len(value) < at or _VERSION.unpack_from(value)[0] != _VALUE_VERSION):
        raise CorruptMessage(f"a value of a share group's record with key version {key_version} is not of version 0")
    if key_version == 10:
        member_key, _ = m.ShareGroupMemberMetadataKey.decode(key_version, key, at)
        if value is None:
            return member_key.group_id, MemberRecord(member_key.member_id, None)
        member, _ = m.ShareGroupMemberMetadataValue.decode(_VALUE_VERSION, value, at)
        topics = frozenset(member.subscribed_topic_names)
        subscription = ShareMember(member_key.member_id, member.rack_id, member.client_id, member.client_host, topics)
        return member_key.group_id, MemberRecord(member_key.member_id, subscription)
    if key_version == 11:
        group_key, _ = m.ShareGroupMetadataKey.decode(key_version, key, at)
        if value is None:
            return group_key.group_id, EpochRecord(None)
        group, _ = m.ShareGroupMetadataValue.decode(_VALUE_VERSION, value, at)
        return group_key.group_id, EpochRecord(group.epoch, group.metadata_hash)
    if key_version == 12:
        target_key, _ = m.ShareGroupTargetAssignmentMetadataKey.decode(key_version, key, at)
        if value is None:
            return target_key.group_id, TargetEpochRecord(None)
        target, _ = m.ShareGroupTargetAssignmentMetadataValue.decode(_VALUE_VERSION, value, at)
        return target_key.group_id, TargetEpochRecord(target.assignment_epoch, target.assignment_timestamp)
    if key_version == 13:
        assigned_key, _ = m.ShareGroupTargetAssignmentMemberKey.decode(key_version, key, at)
        if value is None:
            return assigned_key.group_id, TargetRecord(assigned_key.member_id, None)
        assigned, _ = m.ShareGroupTargetAssignmentMemberValue.decode(_VALUE_VERSION, value, at)
        return assigned_key.group_id, TargetRecord(assigned_key.member_id, _partitions(assigned.topic_partitions))
    if key_version == 14:
        current_key, _ = m.ShareGroupCurrentMemberAssignmentKey.decode(key_version, key, at)
        if value is None:
            return current_key.group_id, CurrentRecord(current_key.member_id, None)
        current, _ = m.ShareGroupCurrentMemberAssignmentValue.decode(_VALUE_VERSION, value, at)
        found = ShareMember(
            current_key.member_id,
            member_epoch=current.member_epoch,
            previous_epoch=current.previous_member_epoch,
            assigned=_partitions(current.assigned_partitions),
        )
        return current_key.group_id, CurrentRecord(current_key.member_id, found)
    topics_key, _ = m.ShareGroupStatePartitionMetadataKey.decode(key_version, key, at)
    if value is None:
        return topics_key.group_id, TopicsRecord(None)
    states, _ = m.ShareGroupStatePartitionMetadataValue.decode(_VALUE_VERSION, value, at)
    share_topics = ShareTopics(
        _topics(states.initializing_topics),
        _topics(states.initialized_topics),
        {each.topic_id: each.topic_name for each in states.deleting_topics},
    )
    return topics_key.group_id, TopicsRecord(share_topics)


def _key(version: int, key: Any) -> bytes:
    encoded: bytes = _VERSION.pack(version) + key.encode(version)
    return encoded


def _value(value: Any) -> bytes:
    encoded: bytes = _VERSION.pack(_VALUE_VERSION) + value.encode(_VALUE_VERSION)
    return encoded


def _partitions(topics: Iterable[Any]) -> Partitions:
    return {each.topic_id: frozenset(each.partitions) for each in topics}


def _infos(
    topics: Mapping[bytes, ShareTopic],
) -> list[m.ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo]:
    return [
        m.ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo(
            topic_id=topic_id, topic_name=each.name, partitions=sorted(each.partitions)
        )
        for topic_id, each in topics.items()
    ]


def _topics(
    infos: Iterable[m.ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo],
) -> dict[bytes, ShareTopic]:
    return {each.topic_id: ShareTopic(each.topic_name, frozenset(each.partitions)) for each in infos}
