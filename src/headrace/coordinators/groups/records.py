"""The codec of the records of `__consumer_offsets`: keys and values of offsets and groups.

    key     version int16 | body      0, 1: an offset (group, topic, partition)      2: a group (group)
    value   version int16 | body      null: a tombstone
            offset   written as 3, as 1 when it carries its own expiry, as 4 with a topic id; read 0-4
            group    written as 3; read 0-4

A key of another version belongs to one of Kafka's newer group types, which this coordinator ignores.
Source: Kafka's `GroupMetadataManager` and the record schemas of its group coordinator.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import NamedTuple

from headrace.coordinators.groups.group import Group
from headrace.coordinators.groups.members import Member
from headrace.coordinators.groups.offsets import NO_EXPIRY, NO_TOPIC_ID, CommittedOffset
from headrace.errors import CorruptMessage
from headrace.protocol import messages as m
from headrace.types import TopicPartition

OFFSET_KEY_VERSIONS = range(2)
GROUP_KEY_VERSION = 2
VALUE_VERSIONS = range(5)

_VERSION = Struct(">h")
_NO_TIMESTAMP = -1


class OffsetKey(NamedTuple):
    """The key of a committed offset."""

    group_id: str
    partition: TopicPartition


class GroupKey(NamedTuple):
    """The key of a group's metadata."""

    group_id: str


def read_key(key: bytes) -> OffsetKey | GroupKey | None:
    """Decodes a key; None for another version. Raises `CorruptMessage` on a key without a version."""
    version = _read_version(key)
    if version in OFFSET_KEY_VERSIONS:
        offset, _ = m.OffsetCommitKey.decode(version, key, 2)
        return OffsetKey(offset.group, TopicPartition(offset.topic, offset.partition))
    if version == GROUP_KEY_VERSION:
        group, _ = m.GroupMetadataKey.decode(version, key, 2)
        return GroupKey(group.group)
    return None


def write_offset_key(group_id: str, partition: TopicPartition) -> bytes:
    key = m.OffsetCommitKey(group=group_id, topic=partition.topic, partition=partition.partition)
    return _VERSION.pack(1) + key.encode(1)


def write_group_key(group_id: str) -> bytes:
    return _VERSION.pack(GROUP_KEY_VERSION) + m.GroupMetadataKey(group=group_id).encode(GROUP_KEY_VERSION)


def write_offset(committed: CommittedOffset) -> bytes:
    """The value of a committed offset."""
    has_expiry = committed.expire_timestamp_ms != NO_EXPIRY
    version = 1 if has_expiry else 3 if committed.topic_id == NO_TOPIC_ID else 4
    value = m.OffsetCommitValue(
        offset=committed.offset,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        leader_epoch=-1 if has_expiry else committed.leader_epoch,  # version 1 has no field for it
        expire_timestamp=committed.expire_timestamp_ms,
        topic_id=NO_TOPIC_ID if has_expiry else committed.topic_id,
    )
    return _VERSION.pack(version) + value.encode(version)


def read_offset(value: bytes, record_offset: int) -> CommittedOffset:
    """Raises `CorruptMessage` on a version that is not known."""
    decoded, _ = m.OffsetCommitValue.decode(_value_version(value), value, 2)
    return CommittedOffset(
        decoded.offset,
        decoded.leader_epoch,
        decoded.metadata,
        decoded.commit_timestamp,
        decoded.expire_timestamp,
        record_offset,
        decoded.topic_id,
    )


def write_group(group: Group, assignments: Mapping[str, bytes]) -> bytes:
    """The value of a group's metadata. `assignments` has an entry for every member."""
    protocol = group.protocol_name
    value = m.GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=protocol,
        leader=group.leader_id,
        current_state_timestamp=_NO_TIMESTAMP if group.state_since_ms is None else group.state_since_ms,
        members=[
            m.GroupMetadataValue.MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(protocol or ""),
                assignment=assignments[member.member_id],
            )
            for member in group.members.values()
        ],
    )
    return _VERSION.pack(3) + value.encode(3)


def read_group(group_id: str, partition: int, value: bytes) -> Group:
    """Raises `CorruptMessage` on a version that is not known."""
    version = _value_version(value)
    decoded, _ = m.GroupMetadataValue.decode(version, value, 2)
    protocol = decoded.protocol
    members = [
        Member(
            each.member_id,
            each.group_instance_id,
            each.client_id,
            each.client_host,
            each.session_timeout,
            each.rebalance_timeout if version >= 1 else each.session_timeout,
            ((protocol or "", bytes(each.subscription)),),
            bytes(each.assignment),
        )
        for each in decoded.members
    ]
    since_ms = decoded.current_state_timestamp
    return Group.loaded(
        group_id,
        partition,
        generation=decoded.generation,
        protocol_type=decoded.protocol_type,
        protocol_name=protocol,
        leader_id=decoded.leader,
        state_since_ms=None if since_ms == _NO_TIMESTAMP else since_ms,
        members=members,
    )


def _read_version(data: bytes) -> int:
    if len(data) < 2:
        raise CorruptMessage(f"{len(data)} bytes are too few for a key or value of __consumer_offsets")
    version: int = _VERSION.unpack_from(data)[0]
    return version


def _value_version(value: bytes) -> int:
    version = _read_version(value)
    if version not in VALUE_VERSIONS:
        raise CorruptMessage(f"a value of __consumer_offsets has the unknown version {version}: versions are 0 to 4")
    return version
