"""From the records of one partition of `__consumer_offsets` to the groups that live in it.

The last record of a key counts; a tombstone removes it. Offsets that were written inside a transaction wait for
its marker, and stay with the group as undecided when there is none yet. A group with offsets and no metadata is
one of simple consumers, which commit without joining. Source: Kafka's `GroupMetadataManager.doLoadGroupsAndOffsets`.
"""

from collections import defaultdict
from dataclasses import dataclass, field

from headrace.groups.group import Group
from headrace.groups.offsets import CommittedOffset
from headrace.groups.records import GroupKey, OffsetKey, read_group, read_key, read_offset
from headrace.types import NO_PRODUCER

GroupOffsets = dict[OffsetKey, CommittedOffset]


@dataclass(slots=True)
class Loading:
    """One partition while it is read, from its first record to its last."""

    partition: int
    groups: dict[str, Group] = field(default_factory=dict)
    offsets: GroupOffsets = field(default_factory=dict)
    transactional: dict[int, GroupOffsets] = field(default_factory=dict)

    def record(self, key: bytes, value: bytes | None, record_offset: int, producer_id: int = NO_PRODUCER) -> None:
        """One record; `producer_id` is that of a transactional batch. Raises `CorruptMessage`.

        `record_offset` is the base offset of its batch, since that is what decides between two commits.
        """
        match read_key(key):
            case OffsetKey() as offset_key:
                offsets = self.offsets if producer_id == NO_PRODUCER else self.transactional.setdefault(producer_id, {})
                if value is None:
                    offsets.pop(offset_key, None)
                else:
                    offsets[offset_key] = read_offset(value, record_offset)
            case GroupKey(group_id):
                if value is None:
                    self.groups.pop(group_id, None)
                else:
                    self.groups[group_id] = read_group(group_id, self.partition, value)
            case None:
                pass  # another coordinator's record

    def marker(self, producer_id: int, committed: bool) -> None:
        """The end of a transaction."""
        for key, offset in self.transactional.pop(producer_id, {}).items():
            known = self.offsets.get(key)
            if committed and (known is None or known.record_offset < offset.record_offset):
                self.offsets[key] = offset

    def finish(self, now_ms: int) -> list[Group]:
        """The groups as of the end of the partition."""
        groups = dict(self.groups)

        def group_of(key: OffsetKey) -> Group:
            if key.group_id not in groups:
                groups[key.group_id] = Group(key.group_id, self.partition, now_ms)
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
