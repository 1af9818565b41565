"""Loading: builds share partitions from the records of one partition of `__share_group_state`.

A batch of records has one offset here, that of its first record. A snapshot may therefore seem to lie before its own
place, which only keeps records for longer. Source: Kafka's `ShareCoordinatorShard.replay`.
"""

from dataclasses import dataclass, field

from headrace.coordinators.share_state.persister import SharePartitionKey
from headrace.coordinators.share_state.records import read_record
from headrace.coordinators.share_state.state import CoordinatedState
from headrace.types import NO_PRODUCER


@dataclass(slots=True)
class ShareStateLoading:
    """The state of one partition while its records are read."""

    partition: int
    updates_per_snapshot: int
    entries: dict[SharePartitionKey, CoordinatedState] = field(default_factory=dict)
    tombstone_offset: int = -1
    """Where the last tombstone is."""

    def record(self, key: bytes, value: bytes | None, record_offset: int, producer_id: int = NO_PRODUCER) -> None:
        """Replays one record. Raises `CorruptMessage`."""
        record = read_record(key, value)
        if record is None:
            return
        if record.content is None:
            self.entries.pop(record.key, None)
            self.tombstone_offset = record_offset
            return
        entry = self.entries.get(record.key)
        if entry is None:
            entry = self.entries[record.key] = CoordinatedState(self.partition)
        entry.apply(record.content, record_offset, self.updates_per_snapshot)

    def marker(self, producer_id: int, committed: bool) -> None:
        """The topic has no transactions."""
