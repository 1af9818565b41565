"""Replay of the records of share groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.coordinators.groups.share.group import ShareGroup
from headrace.coordinators.groups.share.records import EpochRecord, read_record

if TYPE_CHECKING:
    from headrace.coordinators.groups.loading import GroupLoading


def replay(loading: GroupLoading, key_version: int, key: bytes, value: bytes | None) -> None:
    """Replays one record. A tombstone of the group's epoch removes the group; a record of a group that another kind
    has taken the place of is skipped."""
    group_id, record = read_record(key_version, key, value)
    known = loading.groups.get(group_id)
    if isinstance(record, EpochRecord) and record.epoch is None:
        if isinstance(known, ShareGroup):
            del loading.groups[group_id]
        return
    if value is None and not isinstance(known, ShareGroup):
        return
    if not isinstance(known, ShareGroup):
        known = loading.groups[group_id] = ShareGroup(group_id, loading.partition)
    record.apply(known)
