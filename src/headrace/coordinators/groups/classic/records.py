"""The codec of the records of classic groups in `__consumer_offsets`.

    key     2 | group            value   written as version 3, read 0-4; null: a tombstone

Source: Kafka's `GroupMetadataKey` and `GroupMetadataValue`.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.coordinators.groups.classic.group import ClassicGroup
from headrace.coordinators.groups.classic.members import Member
from headrace.coordinators.groups.records import VALUE_VERSIONS, VERSION, value_version
from headrace.protocol import messages as m

GROUP_KEY_VERSION = 2
_NO_TIMESTAMP = -1


def read_group_key(key: bytes) -> str:
    """The group id of a key of version `GROUP_KEY_VERSION`."""
    decoded, _ = m.GroupMetadataKey.decode(GROUP_KEY_VERSION, key, VERSION.size)
    return decoded.group


def write_group_key(group_id: str) -> bytes:
    return VERSION.pack(GROUP_KEY_VERSION) + m.GroupMetadataKey(group=group_id).encode(GROUP_KEY_VERSION)


def write_group(group: ClassicGroup, assignments: Mapping[str, bytes]) -> bytes:
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
    return VERSION.pack(3) + value.encode(3)


def read_group(group_id: str, partition: int, value: bytes) -> ClassicGroup:
    """Raises `CorruptMessage` on a version that is not known."""
    version = value_version(value, VALUE_VERSIONS)
    decoded, _ = m.GroupMetadataValue.decode(version, value, VERSION.size)
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
    return ClassicGroup.loaded(
        group_id,
        partition,
        generation=decoded.generation,
        protocol_type=decoded.protocol_type,
        protocol_name=protocol,
        leader_id=decoded.leader,
        state_since_ms=None if since_ms == _NO_TIMESTAMP else since_ms,
        members=members,
    )
