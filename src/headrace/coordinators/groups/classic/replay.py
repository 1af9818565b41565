"""Replay of the records of classic groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.coordinators.groups.classic.records import read_group, read_group_key
from headrace.coordinators.groups.group import GroupKind

if TYPE_CHECKING:
    from headrace.coordinators.groups.loading import GroupLoading


def replay(loading: GroupLoading, key_version: int, key: bytes, value: bytes | None) -> None:
    """Replays a group's metadata. A tombstone removes the group, unless one of another kind took its place."""
    group_id = read_group_key(key)
    if value is not None:
        loading.groups[group_id] = read_group(group_id, loading.partition, value)
    elif (known := loading.groups.get(group_id)) is not None and known.kind is GroupKind.CLASSIC:
        del loading.groups[group_id]
