"""The records of `__share_group_state`: keys and values in Kafka's schema.

    key      version 0: a snapshot; version 1: an update. Group, topic id, partition
    value    version 0 of each; a snapshot's key without a value removes the share partition

Both kinds of one share partition share no key, so the topic is not compacted: its coordinator deletes records before
the oldest snapshot that is needed.
Source: Kafka's `ShareCoordinatorRecordHelpers`, ShareSnapshotValue.json, ShareUpdateValue.json.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from headrace.coordinators.runtime import KeyValue
from headrace.coordinators.share_state.batches import merged
from headrace.coordinators.share_state.persister import NO_START_OFFSET, SharePartitionKey, StateBatch
from headrace.coordinators.share_state.state import ShareChange, ShareState
from headrace.errors import CorruptMessage
from headrace.protocol import messages as m

SNAPSHOT_KEY, UPDATE_KEY = 0, 1
VALUE_VERSION = 0

_VERSION = Struct(">h")


class ShareStateRecord(NamedTuple):
    """A record that was read. `content` is None if it removes the share partition."""

    key: SharePartitionKey
    content: ShareState | ShareChange | None


def write_snapshot(key: SharePartitionKey, state: ShareState) -> KeyValue:
    """The record with the whole state."""
    value = m.ShareSnapshotValue(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        create_timestamp=state.created_ms,
        write_timestamp=state.written_ms,
        state_batches=[
            m.ShareSnapshotValue.StateBatch(
                first_offset=first, last_offset=last, delivery_state=kind, delivery_count=count
            )
            for first, last, kind, count in state.state_batches
        ],
    )
    return _snapshot_key(key), _VERSION.pack(VALUE_VERSION) + value.encode(VALUE_VERSION)


def write_update(key: SharePartitionKey, change: ShareChange) -> KeyValue:
    """The record with a change."""
    value = m.ShareUpdateValue(
        snapshot_epoch=change.snapshot_epoch,
        leader_epoch=change.leader_epoch,
        start_offset=change.start_offset,
        delivery_complete_count=change.delivery_complete_count,
        state_batches=[
            m.ShareUpdateValue.StateBatch(
                first_offset=first, last_offset=last, delivery_state=kind, delivery_count=count
            )
            for first, last, kind, count in change.state_batches
        ],
    )
    written = m.ShareUpdateKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition)
    return (
        _VERSION.pack(UPDATE_KEY) + written.encode(UPDATE_KEY),
        _VERSION.pack(VALUE_VERSION) + value.encode(VALUE_VERSION),
    )


def write_tombstone(key: SharePartitionKey) -> KeyValue:
    """The record that removes a share partition."""
    return _snapshot_key(key), None


def read_record(key: bytes, value: bytes | None) -> ShareStateRecord | None:
    """Reads a record; None for a key of another version, or an update without a value. Raises `CorruptMessage`."""
    version = _version(key)
    if version == SNAPSHOT_KEY:
        snapshot_key, _ = m.ShareSnapshotKey.decode(version, key, _VERSION.size)
        share_partition = SharePartitionKey(snapshot_key.group_id, snapshot_key.topic_id, snapshot_key.partition)
        return ShareStateRecord(share_partition, None if value is None else _read_snapshot(value))
    if version == UPDATE_KEY and value is not None:
        update_key, _ = m.ShareUpdateKey.decode(version, key, _VERSION.size)
        share_partition = SharePartitionKey(update_key.group_id, update_key.topic_id, update_key.partition)
        return ShareStateRecord(share_partition, _read_update(value))
    return None


def _snapshot_key(key: SharePartitionKey) -> bytes:
    written = m.ShareSnapshotKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition)
    return _VERSION.pack(SNAPSHOT_KEY) + written.encode(SNAPSHOT_KEY)


def _read_snapshot(data: bytes) -> ShareState:
    value, _ = m.ShareSnapshotValue.decode(_value_version(data), data, _VERSION.size)
    return ShareState(
        value.snapshot_epoch,
        value.state_epoch,
        value.leader_epoch,
        value.start_offset,
        value.delivery_complete_count,
        merged((), _batches(value.state_batches), NO_START_OFFSET),
        value.create_timestamp,
        value.write_timestamp,
    )


def _read_update(data: bytes) -> ShareChange:
    value, _ = m.ShareUpdateValue.decode(_value_version(data), data, _VERSION.size)
    return ShareChange(
        value.snapshot_epoch,
        value.leader_epoch,
        value.start_offset,
        value.delivery_complete_count,
        _batches(value.state_batches),
    )


def _batches(
    stored: Iterable[m.ShareSnapshotValue.StateBatch] | Iterable[m.ShareUpdateValue.StateBatch],
) -> tuple[StateBatch, ...]:
    return tuple(
        StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count) for each in stored
    )


def _version(data: bytes) -> int:
    if len(data) < _VERSION.size:
        raise CorruptMessage(f"{len(data)} bytes are too short for a versioned key or value of __share_group_state")
    version: int = _VERSION.unpack_from(data)[0]
    return version


def _value_version(data: bytes) -> int:
    version = _version(data)
    if version != VALUE_VERSION:
        raise CorruptMessage(f"a value of __share_group_state has version {version}, known is {VALUE_VERSION}")
    return version
