"""The codec of the records of `__consumer_offsets`: the form of all, and keys and values of offsets.

    key     version int16 | body      0, 1: an offset (group, topic, partition)      2: a classic group
                                      3-8, 16: a consumer group      9-15: a share group      17-23: a streams group
    value   version int16 | body      null: a tombstone
            offset   written as 3, as 1 when it carries its own expiry, as 4 with a topic id; read 0-4

The version of a key is the type of the record; that of a value is the version of its schema.
Source: Kafka's `CoordinatorRecordSerde` and the record schemas of its group coordinator.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from headrace.coordinators.groups.offsets import NO_EXPIRY, NO_TOPIC_ID, CommittedOffset
from headrace.errors import CorruptMessage
from headrace.limits import INT16_MAX
from headrace.protocol import messages as m
from headrace.types import TopicPartition

OFFSET_KEY_VERSIONS = range(2)
VALUE_VERSIONS = range(5)

VERSION = Struct(">h")
_KEY_HEAD, _VALUE_HEAD, _INT32, _INT64 = Struct(">hh"), Struct(">hqih"), Struct(">i"), Struct(">q")


class OffsetKey(NamedTuple):
    """The key of a committed offset."""

    group_id: str
    partition: TopicPartition


def read_version(data: bytes) -> int:
    """The version of a key or value. Raises `CorruptMessage` on one without a version."""
    if len(data) < VERSION.size:
        raise CorruptMessage(f"{len(data)} bytes are too few for a key or value of __consumer_offsets")
    version: int = VERSION.unpack_from(data)[0]
    return version


def value_version(value: bytes, versions: range) -> int:
    """The version of a value whose schema has these versions. Raises `CorruptMessage` on another."""
    version = read_version(value)
    if version not in versions:
        raise CorruptMessage(
            f"a value of __consumer_offsets has the unknown version {version}: versions are {versions[0]} to "
            f"{versions[-1]}"
        )
    return version


def read_offset_key(key: bytes) -> OffsetKey:
    """Decodes a key of a version in `OFFSET_KEY_VERSIONS`."""
    offset, _ = m.OffsetCommitKey.decode(read_version(key), key, VERSION.size)
    return OffsetKey(offset.group, TopicPartition(offset.topic, offset.partition))


def write_offset_key(group_id: str, partition: TopicPartition) -> bytes:
    group, topic = group_id.encode(), partition.topic.encode()
    if len(group) > INT16_MAX or len(topic) > INT16_MAX:
        key = m.OffsetCommitKey(group=group_id, topic=partition.topic, partition=partition.partition)
        return VERSION.pack(1) + key.encode(1)
    # Without a message object: each committed offset is a record.
    return _KEY_HEAD.pack(1, len(group)) + group + VERSION.pack(len(topic)) + topic + _INT32.pack(partition.partition)


def write_offset(committed: CommittedOffset) -> bytes:
    """The value of a committed offset."""
    has_expiry = committed.expire_timestamp_ms != NO_EXPIRY
    version = 1 if has_expiry else 3 if committed.topic_id == NO_TOPIC_ID else 4
    if version == 3 and len(metadata := committed.metadata.encode()) <= INT16_MAX:
        head = _VALUE_HEAD.pack(version, committed.offset, committed.leader_epoch, len(metadata))
        return head + metadata + _INT64.pack(committed.commit_timestamp_ms)
    value = m.OffsetCommitValue(
        offset=committed.offset,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        leader_epoch=-1 if has_expiry else committed.leader_epoch,  # version 1 has no field for it
        expire_timestamp=committed.expire_timestamp_ms,
        topic_id=NO_TOPIC_ID if has_expiry else committed.topic_id,
    )
    return VERSION.pack(version) + value.encode(version)


def read_offset(value: bytes, record_offset: int) -> CommittedOffset:
    """Raises `CorruptMessage` on a version that is not known."""
    decoded, _ = m.OffsetCommitValue.decode(value_version(value, VALUE_VERSIONS), value, VERSION.size)
    return CommittedOffset(
        decoded.offset,
        decoded.leader_epoch,
        decoded.metadata,
        decoded.commit_timestamp,
        decoded.expire_timestamp,
        record_offset,
        decoded.topic_id,
    )
