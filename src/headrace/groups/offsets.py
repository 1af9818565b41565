"""One group's committed offsets: what counts, what is on its way to the log, and what has grown too old.

    committed           what OffsetFetch answers
    pending             being written; counts when the log has it. The newest per partition is remembered, so that
                        an older write which ends later does not win
    transactional       by producer id: written, and decided by the transaction's marker

`record_offset`, where in the log the commit stands, decides between two. Source: Kafka's `GroupMetadata`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.types import TopicPartition

NO_OFFSET = -1
NO_EXPIRY = -1
NO_TOPIC_ID = bytes(16)


class CommittedOffset(NamedTuple):
    """One partition's position in one group."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_EXPIRY  # set by OffsetCommit 2-4 only
    record_offset: int = NO_OFFSET
    topic_id: bytes = NO_TOPIC_ID  # where Apache Kafka 4 wrote one, it stays


@dataclass(slots=True)
class Offsets:
    """The offsets of one group."""

    committed: dict[TopicPartition, CommittedOffset] = field(default_factory=dict)
    pending: dict[TopicPartition, CommittedOffset] = field(default_factory=dict)
    transactional: dict[int, dict[TopicPartition, CommittedOffset]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.committed or self.pending or self.transactional)

    def prepare(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """A commit is on its way to the log."""
        self.pending.update(offsets)

    def appended(self, offsets: Mapping[TopicPartition, CommittedOffset], record_offset: int) -> None:
        """That commit is in the log at `record_offset`."""
        for partition, offset in offsets.items():
            if partition in self.pending:  # a partition deleted meanwhile stays forgotten
                self._keep_newer(partition, offset._replace(record_offset=record_offset))
            self._settle(partition, offset)

    def failed(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """That commit did not reach the log."""
        for partition, offset in offsets.items():
            self._settle(partition, offset)

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """The marker of a transaction is in the log."""
        for partition, offset in self.transactional.pop(producer_id, {}).items():
            if committed:
                self._keep_newer(partition, offset)

    def is_unstable(self, partition: TopicPartition) -> bool:
        """Whether a commit of that partition is not decided yet (KIP-447)."""
        return partition in self.pending or any(partition in offsets for offsets in self.transactional.values())

    def remove(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Forget these; those that were committed come back, to be written as tombstones."""
        removed = []
        for partition in partitions:
            self.pending.pop(partition, None)
            for offsets in self.transactional.values():
                offsets.pop(partition, None)
            if self.committed.pop(partition, None) is not None:
                removed.append(partition)
        return removed

    def expired(
        self,
        now_ms: int,
        retention_ms: int,
        since_ms: Callable[[CommittedOffset], int],
        subscribed: frozenset[str] = frozenset(),
    ) -> list[TopicPartition]:
        """Partitions whose offset is `retention_ms` older than `since_ms`, or past its own expiry."""

        def is_old(offset: CommittedOffset) -> bool:
            if offset.expire_timestamp_ms != NO_EXPIRY:
                return now_ms >= offset.expire_timestamp_ms
            return now_ms - since_ms(offset) >= retention_ms

        return [
            partition
            for partition, offset in self.committed.items()
            if partition.topic not in subscribed and partition not in self.pending and is_old(offset)
        ]

    def _keep_newer(self, partition: TopicPartition, offset: CommittedOffset) -> None:
        known = self.committed.get(partition)
        if known is None or known.record_offset < offset.record_offset:
            self.committed[partition] = offset

    def _settle(self, partition: TopicPartition, offset: CommittedOffset) -> None:
        if self.pending.get(partition) == offset:  # a newer commit may be on its way, and stays
            del self.pending[partition]
