"""The records of consumer groups in `__consumer_offsets`, their effect on a group, and their replay.

    key   3   group                       the group epoch, and the hash of the topics' metadata
          4   group                       topics' metadata of Apache Kafka before 4.1; only its tombstone is written
          5   group, member               the member's subscription
          6   group                       the epoch and the time of the target assignment
          7   group, member               the member's target assignment
          8   group, member               the member's epoch, state and partitions
          16  group, regular expression   the topics that it matches

Each value is written as version 0. Source: Kafka's `GroupCoordinatorRecordHelpers`, `GroupMetadataManager.replay`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from headrace.coordinators.assignors.assignor import Partitions
from headrace.coordinators.groups.consumer.group import ConsumerGroup
from headrace.coordinators.groups.consumer.members import (
    LEAVING_EPOCH,
    ClassicMember,
    ConsumerMember,
    MemberState,
)
from headrace.coordinators.groups.consumer.regular_expressions import NEVER_RESOLVED, ResolvedRegularExpression
from headrace.coordinators.groups.group import GroupKind
from headrace.coordinators.groups.modern.partition_arrays import NO_TAGS, write_owned, write_partitions
from headrace.coordinators.groups.records import VERSION, value_version
from headrace.errors import CorruptMessage
from headrace.protocol import messages as m

if TYPE_CHECKING:
    from headrace.coordinators.groups.loading import GroupLoading
    from headrace.coordinators.groups.modern.writes import GroupRecord
    from headrace.coordinators.runtime import KeyValue

    Record: TypeAlias = GroupRecord[ConsumerGroup]

VALUE_VERSIONS = range(1)
_EPOCHS_AND_STATE = Struct(">iib")  # the member's epoch and the previous one
REMOVED_TARGET_EPOCH = -1


class _Encoded(Protocol):
    def encode(self, version: int, /) -> bytes | bytearray: ...


def _record(version: int, key: _Encoded, value: _Encoded | None) -> KeyValue:
    encoded = None if value is None else VERSION.pack(0) + value.encode(0)
    return VERSION.pack(version) + key.encode(version), encoded


class Epoch(NamedTuple):
    """The group epoch."""

    epoch: int
    metadata_hash: int

    def encode(self, group_id: str) -> KeyValue:
        value = m.ConsumerGroupMetadataValue(epoch=self.epoch, metadata_hash=self.metadata_hash)
        return _record(3, m.ConsumerGroupMetadataKey(group_id=group_id), value)

    def apply(self, group: ConsumerGroup) -> Record:
        replaced = Epoch(group.epoch, group.metadata_hash)
        group.epoch, group.metadata_hash = self
        return replaced


class EpochGone(NamedTuple):
    """The tombstone of the group epoch, the last record of a group."""

    def encode(self, group_id: str) -> KeyValue:
        return _record(3, m.ConsumerGroupMetadataKey(group_id=group_id), None)

    def apply(self, group: ConsumerGroup) -> Record:
        return Epoch(group.epoch, group.metadata_hash)


class ConsumerGroupPartitionMetadata(NamedTuple):
    """The old record of topics' metadata."""

    is_there: bool = False

    def encode(self, group_id: str) -> KeyValue:
        return _record(4, m.ConsumerGroupPartitionMetadataKey(group_id=group_id), None)

    def apply(self, group: ConsumerGroup) -> Record:
        replaced = ConsumerGroupPartitionMetadata(group.has_partition_metadata)
        group.has_partition_metadata = self.is_there
        return replaced


class Metadata(NamedTuple):
    """A member's subscription; the rest of `member` does not count."""

    member: ConsumerMember

    def encode(self, group_id: str) -> KeyValue:
        member, value = self.member, m.ConsumerGroupMemberMetadataValue
        classic = None
        if member.classic is not None:
            classic = value.ClassicMemberMetadata(
                session_timeout_ms=member.classic.session_timeout_ms,
                supported_protocols=[
                    value.ClassicProtocol(name=name, metadata=metadata) for name, metadata in member.classic.protocols
                ],
            )
        return _record(
            5,
            m.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
            value(
                instance_id=member.instance_id,
                rack_id=member.rack_id,
                client_id=member.client_id,
                client_host=member.client_host,
                subscribed_topic_names=_sorted(member.topics),
                subscribed_topic_regex=member.regex,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                server_assignor=member.assignor,
                classic_member_metadata=classic,
            ),
        )

    def apply(self, group: ConsumerGroup) -> Record:
        known = group.members.get(self.member.member_id)
        present = ConsumerMember(self.member.member_id) if known is None else known
        group.put_member(present.with_metadata_of(self.member))
        return _Restored(self.member.member_id, known)


class MetadataGone(NamedTuple):
    """The tombstone of a member's subscription: the member is gone."""

    member_id: str

    def encode(self, group_id: str) -> KeyValue:
        return _record(5, m.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=self.member_id), None)

    def apply(self, group: ConsumerGroup) -> Record:
        return _Restored(self.member_id, group.remove_member(self.member_id))


class TargetEpoch(NamedTuple):
    """The epoch of the target assignment, and the time at which it was computed."""

    epoch: int
    timestamp_ms: int

    def encode(self, group_id: str) -> KeyValue:
        value = None
        if self.epoch != REMOVED_TARGET_EPOCH:
            value = m.ConsumerGroupTargetAssignmentMetadataValue(
                assignment_epoch=self.epoch, assignment_timestamp=self.timestamp_ms
            )
        return _record(6, m.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), value)

    def apply(self, group: ConsumerGroup) -> Record:
        replaced = TargetEpoch(group.target_epoch, group.target_timestamp_ms)
        group.target_epoch, group.target_timestamp_ms = self
        return replaced


class Target(NamedTuple):
    """A member's target assignment; None removes it."""

    member_id: str
    partitions: Partitions | None

    def encode(self, group_id: str) -> KeyValue:
        value = None
        if self.partitions is not None:
            value = VERSION.pack(0) + write_partitions(self.partitions) + NO_TAGS
        key = m.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=self.member_id)
        return VERSION.pack(7) + key.encode(7), value

    def apply(self, group: ConsumerGroup) -> Record:
        known = group.target.pop(self.member_id, None)
        if self.partitions is not None:
            group.target[self.member_id] = self.partitions
        return Target(self.member_id, known)


class Current(NamedTuple):
    """A member's epoch, state and partitions; the rest of `member` does not count."""

    member: ConsumerMember

    def encode(self, group_id: str) -> KeyValue:
        member = self.member
        key = m.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
        epochs = _EPOCHS_AND_STATE.pack(member.epoch, member.previous_epoch, member.state)
        value = VERSION.pack(0) + epochs + write_owned(member.assigned) + write_owned(member.revoking) + NO_TAGS
        return VERSION.pack(8) + key.encode(8), value

    def apply(self, group: ConsumerGroup) -> Record:
        member_id = self.member.member_id
        known = group.members.get(member_id)
        group.put_member(self.member.with_metadata_of(ConsumerMember(member_id) if known is None else known))
        return _Restored(member_id, known)


class CurrentGone(NamedTuple):
    """The tombstone of a member's epoch and partitions: it owns nothing."""

    member_id: str

    def encode(self, group_id: str) -> KeyValue:
        key = m.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=self.member_id)
        return _record(8, key, None)

    def apply(self, group: ConsumerGroup) -> Record:
        known = group.members.get(self.member_id)
        if known is not None:
            gone = ConsumerMember(self.member_id, LEAVING_EPOCH, LEAVING_EPOCH)
            group.put_member(gone.with_metadata_of(known))
        return _Restored(self.member_id, known)


class Resolved(NamedTuple):
    """The topics that a regular expression matches; None: no member subscribes to it any more."""

    regex: str
    resolved: ResolvedRegularExpression | None

    def encode(self, group_id: str) -> KeyValue:
        value = None
        if self.resolved is not None:
            value = m.ConsumerGroupRegularExpressionValue(
                topics=_sorted(self.resolved.topics),
                version=self.resolved.version,
                timestamp=self.resolved.timestamp_ms,
            )
        key = m.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=self.regex)
        return _record(16, key, value)

    def apply(self, group: ConsumerGroup) -> Record:
        return Resolved(self.regex, group.put_resolved(self.regex, self.resolved))


class _Restored(NamedTuple):
    """A member as it was. Never written."""

    member_id: str
    member: ConsumerMember | None

    def encode(self, group_id: str) -> KeyValue:
        raise AssertionError("a change that is taken back is not written")

    def apply(self, group: ConsumerGroup) -> Record:
        known = group.remove_member(self.member_id)
        if self.member is not None:
            group.put_member(self.member)
        return _Restored(self.member_id, known)


# Several records


def gone(member_id: str) -> list[Record]:
    """The tombstones of a member, in Kafka's order."""
    return [CurrentGone(member_id), Target(member_id, None), MetadataGone(member_id)]


def tombstones(group: ConsumerGroup) -> list[Record]:
    """The tombstones of all records of a group, in Kafka's order."""
    members = list(group.members)
    return [
        *(CurrentGone(each) for each in members),
        *(Target(each, None) for each in members),
        TargetEpoch(REMOVED_TARGET_EPOCH, 0),
        *(MetadataGone(each) for each in members),
        *(Resolved(each, None) for each in group.resolved),
        ConsumerGroupPartitionMetadata(),
        EpochGone(),
    ]


# Replay


def replay(loading: GroupLoading, key_version: int, key: bytes, value: bytes | None) -> None:
    """Replays one record. A tombstone of a group that does not exist changes nothing."""
    if value is not None:
        value_version(value, VALUE_VERSIONS)
    group_id, record = read_record(key_version, key, value)
    known = loading.groups.get(group_id)
    if known is not None and known.kind is not GroupKind.CONSUMER:
        if value is None:
            return
        known = None  # its tombstone is behind a compacted record, or comes in the same batch
    if record is None:
        if known is not None:
            del loading.groups[group_id]
        return
    if known is None:
        if value is None:
            return
        known = loading.groups[group_id] = ConsumerGroup(group_id, loading.partition)
    assert isinstance(known, ConsumerGroup)
    record.apply(known)


def read_record(version: int, key: bytes, value: bytes | None) -> tuple[str, Record | None]:
    """The group id, and the record; None for the tombstone of the group."""
    at = VERSION.size
    match version:
        case 3:
            epoch_key, _ = m.ConsumerGroupMetadataKey.decode(version, key, at)
            if value is None:
                return epoch_key.group_id, None
            epoch, _ = m.ConsumerGroupMetadataValue.decode(0, value, at)
            return epoch_key.group_id, Epoch(epoch.epoch, epoch.metadata_hash)
        case 4:
            partition_key, _ = m.ConsumerGroupPartitionMetadataKey.decode(version, key, at)
            return partition_key.group_id, ConsumerGroupPartitionMetadata(value is not None)
        case 5:
            member_key, _ = m.ConsumerGroupMemberMetadataKey.decode(version, key, at)
            return member_key.group_id, _read_metadata(member_key.member_id, value)
        case 6:
            target_key, _ = m.ConsumerGroupTargetAssignmentMetadataKey.decode(version, key, at)
            if value is None:
                return target_key.group_id, TargetEpoch(REMOVED_TARGET_EPOCH, 0)
            target, _ = m.ConsumerGroupTargetAssignmentMetadataValue.decode(0, value, at)
            return target_key.group_id, TargetEpoch(target.assignment_epoch, target.assignment_timestamp)
        case 7:
            assignment_key, _ = m.ConsumerGroupTargetAssignmentMemberKey.decode(version, key, at)
            return assignment_key.group_id, Target(assignment_key.member_id, _read_target(value))
        case 8:
            current_key, _ = m.ConsumerGroupCurrentMemberAssignmentKey.decode(version, key, at)
            return current_key.group_id, _read_current(current_key.member_id, value)
        case 16:
            regex_key, _ = m.ConsumerGroupRegularExpressionKey.decode(version, key, at)
            return regex_key.group_id, Resolved(regex_key.regular_expression, _read_resolved(value))
    raise CorruptMessage(f"a key of consumer groups has the unknown version {version}: versions are 3 to 8 and 16")


def _read_metadata(member_id: str, value: bytes | None) -> Record:
    if value is None:
        return MetadataGone(member_id)
    read, _ = m.ConsumerGroupMemberMetadataValue.decode(0, value, VERSION.size)
    classic = None
    if read.classic_member_metadata is not None:
        classic = ClassicMember(
            read.classic_member_metadata.session_timeout_ms,
            tuple((each.name, bytes(each.metadata)) for each in read.classic_member_metadata.supported_protocols),
        )
    return Metadata(
        ConsumerMember(
            member_id,
            instance_id=read.instance_id,
            rack_id=read.rack_id,
            client_id=read.client_id,
            client_host=read.client_host,
            topics=frozenset(read.subscribed_topic_names),
            regex=read.subscribed_topic_regex or "",
            assignor=read.server_assignor,
            rebalance_timeout_ms=read.rebalance_timeout_ms,
            classic=classic,
        )
    )


def _read_target(value: bytes | None) -> Partitions | None:
    if value is None:
        return None
    read, _ = m.ConsumerGroupTargetAssignmentMemberValue.decode(0, value, VERSION.size)
    return {each.topic_id: frozenset(each.partitions) for each in read.topic_partitions}


def _read_current(member_id: str, value: bytes | None) -> Record:
    if value is None:
        return CurrentGone(member_id)
    read, _ = m.ConsumerGroupCurrentMemberAssignmentValue.decode(0, value, VERSION.size)
    known_states = MemberState._value2member_map_
    return Current(
        ConsumerMember(
            member_id,
            read.member_epoch,
            read.previous_member_epoch,
            MemberState(read.state) if read.state in known_states else MemberState.UNKNOWN,
            _read_owned(read.assigned_partitions, read.member_epoch),
            _read_owned(read.partitions_pending_revocation, read.member_epoch),
        )
    )


def _read_resolved(value: bytes | None) -> ResolvedRegularExpression | None:
    if value is None:
        return None
    read, _ = m.ConsumerGroupRegularExpressionValue.decode(0, value, VERSION.size)
    return ResolvedRegularExpression(frozenset(read.topics), NEVER_RESOLVED, read.timestamp)


def _read_owned(
    topics: Iterable[m.ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions], member_epoch: int
) -> Mapping[bytes, Mapping[int, int]]:
    """The partitions with the epochs in which they were assigned; records before Kafka 4.3 have none, and then the
    member's epoch counts."""
    owned = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [max(member_epoch, 0)] * len(topic.partitions)
        owned[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return owned


def _sorted(names: Collection[str]) -> list[str]:
    """Names in Java's order, which differs from Python's beyond the basic plane only."""
    return sorted(names, key=None if all(map(str.isascii, names)) else _utf16)


def _utf16(text: str) -> bytes:
    """The order in which Java sorts strings."""
    return text.encode("utf-16-be", "surrogatepass")
