"""Loading: builds groups from the records of one partition of `__consumer_offsets`.

The last record of a key counts; a tombstone removes it. Offsets written in a transaction wait for its marker; without
one, they stay pending in the group. A group with offsets but no metadata belongs to simple consumers, which commit
without joining. Source: Kafka's `GroupMetadataManager.doLoadGroupsAndOffsets`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from headrace.coordinators.groups.classic.group import ClassicGroup
from headrace.coordinators.groups.offsets import CommittedOffset
from headrace.coordinators.groups.records import (
    OFFSET_KEY_VERSIONS,
    OffsetKey,
    read_offset,
    read_offset_key,
    read_version,
)
from headrace.types import NO_PRODUCER

if TYPE_CHECKING:
    from headrace.coordinators.groups.group import Group

ReplayRecord: TypeAlias = "Callable[[GroupLoading, int, bytes, bytes | None], None]"
"""Replays one record of a group, given the version of its key: changes, creates or removes a group in its `groups`.
The value is None for a tombstone. Raises `CorruptMessage`."""

GroupOffsets = dict[OffsetKey, CommittedOffset]


@dataclass(slots=True)
class GroupLoading:
    """The state of one partition while its records are read."""

    partition: int
    replay_of: Callable[[int], ReplayRecord | None]
    """What replays the records of groups, by the version of their keys; None for versions that no kind has."""
    groups: dict[str, Group] = field(default_factory=dict)
    offsets: GroupOffsets = field(default_factory=dict)
    transactional: dict[int, GroupOffsets] = field(default_factory=dict)
    deleted_topics: set[str] = field(default_factory=set)
    """Names of topics that were deleted while the partition was read."""

    def record(self, key: bytes, value: bytes | None, record_offset: int, producer_id: int = NO_PRODUCER) -> None:
        """Replays one record; `producer_id` is that of a transactional batch. Raises `CorruptMessage`.

        `record_offset` is the base offset of the record's batch, by which commits are ordered.
        """
        version = read_version(key)
        if version not in OFFSET_KEY_VERSIONS:
            replay = self.replay_of(version)
            if replay is not None:
                replay(self, version, key, value)
            return
        offset_key = read_offset_key(key)
        if value is None:
            self._remove(offset_key)
        elif producer_id == NO_PRODUCER:
            self.offsets[offset_key] = read_offset(value, record_offset)
        else:
            self.transactional.setdefault(producer_id, {})[offset_key] = read_offset(value, record_offset)

    def _remove(self, key: OffsetKey) -> None:
        """Replays a tombstone: the offset was deleted, also those that transactions had not decided."""
        self.offsets.pop(key, None)
        for offsets in self.transactional.values():
            offsets.pop(key, None)

    def marker(self, producer_id: int, committed: bool) -> None:
        """Replays a transaction's marker."""
        for key, offset in self.transactional.pop(producer_id, {}).items():
            known = self.offsets.get(key)
            if committed and (known is None or known.record_offset < offset.record_offset):
                self.offsets[key] = offset

    def finish(self, now_ms: int) -> list[Group]:
        """The groups after the last record."""
        groups = dict(self.groups)

        def group_of(key: OffsetKey) -> Group:
            if key.group_id not in groups:
                groups[key.group_id] = ClassicGroup(key.group_id, self.partition, now_ms)
            return groups[key.group_id]

        for key, offset in self.offsets.items():
            group_of(key).offsets.committed[key.partition] = offset
        for producer_id, undecided in self.transactional.items():
            by_group: defaultdict[str, dict[OffsetKey, CommittedOffset]] = defaultdict(dict)
            for key, offset in undecided.items():
                by_group[key.group_id][key] = offset
            for offsets in by_group.values():
                group = group_of(next(iter(offsets)))
                group.offsets.transactional[producer_id] = {key.partition: each for key, each in offsets.items()}
        return list(groups.values())
