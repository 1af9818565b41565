"""The offsets of one group: committed, being written, and written in transactions.

    committed           returned by OffsetFetch
    pending             being written; committed once in the log
    late                in the log, and not durable in time: the client was told so. Committed once the high watermark
                        has passed it, so that memory ends as the log does
    transactional       by producer id; being written or written, and committed or dropped by the transaction's marker

Of two commits, the one with the larger `record_offset`, its position in the log, wins. A commit whose partition was
deleted while it was pending does not count: the tombstone is behind it in the log.

Source: Kafka's `OffsetMetadataManager`, which applies what it has appended, and returns what the high watermark has
passed; a write that times out is applied as any other. Its older `GroupMetadata` forgets such a write.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.types import TopicPartition

NO_OFFSET = -1
NO_EXPIRY = -1
NO_TOPIC_ID = bytes(16)


class CommittedOffset(NamedTuple):
    """The committed offset of one partition in one group."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_EXPIRY  # set by OffsetCommit 2-4 only
    record_offset: int = NO_OFFSET
    topic_id: bytes = NO_TOPIC_ID  # of OffsetCommit 10+ only


@dataclass(slots=True)
class GroupOffsets:
    """The offsets of one group."""

    committed: dict[TopicPartition, CommittedOffset] = field(default_factory=dict)
    pending: dict[TopicPartition, list[CommittedOffset]] = field(default_factory=dict)
    late: dict[TopicPartition, CommittedOffset] = field(default_factory=dict)
    transactional: dict[int, dict[TopicPartition, CommittedOffset]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.committed or self.pending or self.late or self.transactional)

    def prepare(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Notes a commit that is being written. It ends with the same values."""
        for partition, offset in offsets.items():
            known = self.pending.get(partition)
            if known is None:
                self.pending[partition] = [offset]
            else:
                known.append(offset)

    def appended(self, offsets: Mapping[TopicPartition, CommittedOffset], record_offset: int) -> None:
        """Takes over a commit that is in the log at `record_offset`, which its offsets may have already."""
        for partition, offset in offsets.items():
            if self._settle(partition, offset):
                _keep_newer(self.committed, partition, _placed(offset, record_offset))

    def delayed(self, offsets: Mapping[TopicPartition, CommittedOffset], record_offset: int) -> None:
        """Notes that a commit is in the log at `record_offset`, and was not durable in time."""
        for partition, offset in offsets.items():
            if self._settle(partition, offset):
                _keep_newer(self.late, partition, _placed(offset, record_offset))

    def committed_to(self, high_watermark: int) -> None:
        """Takes over the late commits that the high watermark has passed. A batch of records is passed as a whole."""
        for partition, offset in list(self.late.items()):
            if offset.record_offset < high_watermark:
                _keep_newer(self.committed, partition, offset)
                del self.late[partition]

    def stored(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Takes over a commit that went to the log at once; it has its `record_offset`, and was never pending."""
        for partition, offset in offsets.items():
            _keep_newer(self.committed, partition, offset)

    def failed(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Drops a commit whose write failed."""
        for partition, offset in offsets.items():
            self._settle(partition, offset)

    def prepare_in_transaction(
        self, producer_id: int, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> dict[TopicPartition, CommittedOffset]:
        """Notes a transactional commit that is being written. Returns the offsets that it replaces in its
        transaction."""
        known = self.transactional.setdefault(producer_id, {})
        replaced = {partition: known[partition] for partition in offsets if partition in known}
        known.update(offsets)
        return replaced

    def appended_in_transaction(
        self, producer_id: int, offsets: Mapping[TopicPartition, CommittedOffset], record_offset: int
    ) -> None:
        """Takes over a transactional commit that is in the log at `record_offset`, unless the transaction is over."""
        known = self.transactional.get(producer_id, {})
        for partition, offset in offsets.items():
            if known.get(partition) is offset:
                known[partition] = offset._replace(record_offset=record_offset)

    def failed_in_transaction(
        self,
        producer_id: int,
        offsets: Mapping[TopicPartition, CommittedOffset],
        replaced: Mapping[TopicPartition, CommittedOffset],
    ) -> None:
        """Drops a transactional commit whose write failed; the offsets that it replaced count again."""
        known = self.transactional.get(producer_id, {})
        for partition, offset in offsets.items():
            if known.get(partition) is offset:
                del known[partition]
                if partition in replaced:
                    known[partition] = replaced[partition]
        if not known:
            self.transactional.pop(producer_id, None)

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """Commits or drops the offsets of a transaction.

        The producer id suffices, as in Apache Kafka: the log accepts no marker of an older epoch, and a producer has
        one transaction at a time.
        """
        for partition, offset in self.transactional.pop(producer_id, {}).items():
            if not committed:
                continue
            if offset.record_offset == NO_OFFSET:  # the marker is behind it in the log, and was seen first
                self.committed[partition] = offset
            else:
                _keep_newer(self.committed, partition, offset)

    def is_unstable(self, partition: TopicPartition) -> bool:
        """Whether a transactional commit of the partition is not decided yet (KIP-447)."""
        return any(partition in offsets for offsets in self.transactional.values())

    def partitions(self) -> list[TopicPartition]:
        """The partitions that have an offset of any kind."""
        kinds: list[Mapping[TopicPartition, object]] = [self.committed, self.pending, self.late]
        kinds += self.transactional.values()
        return list(dict.fromkeys(each for offsets in kinds for each in offsets))

    def of_topics(self, names: Collection[str]) -> list[TopicPartition]:
        """The partitions of these topics that have an offset of any kind."""
        return [each for each in self.partitions() if each.topic in names]

    def remove(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Removes these offsets. Returns the partitions that need a tombstone: the log has or gets their offset."""
        removed = []
        for partition in partitions:
            is_written = self.pending.pop(partition, None) is not None
            is_written |= self.late.pop(partition, None) is not None
            for producer_id, offsets in list(self.transactional.items()):
                is_written |= offsets.pop(partition, None) is not None
                if not offsets:
                    del self.transactional[producer_id]
            if self.committed.pop(partition, None) is not None or is_written:
                removed.append(partition)
        return removed

    def expired(
        self, now_ms: int, retention_ms: int, since_ms: Callable[[CommittedOffset], int]
    ) -> list[TopicPartition]:
        """The partitions whose offset is older than `retention_ms`, or past its own expiry."""

        def is_old(offset: CommittedOffset) -> bool:
            if offset.expire_timestamp_ms != NO_EXPIRY:
                return now_ms >= offset.expire_timestamp_ms
            return now_ms - since_ms(offset) >= retention_ms

        return [
            partition
            for partition, offset in self.committed.items()
            if is_old(offset)
            and partition not in self.pending
            and partition not in self.late
            and not self.is_unstable(partition)
        ]

    def _settle(self, partition: TopicPartition, offset: CommittedOffset) -> bool:
        """Whether this very commit was pending, which it is no more."""
        known = self.pending.get(partition, ())
        for index, each in enumerate(known):
            if each is offset:
                if len(known) == 1:
                    del self.pending[partition]
                else:
                    del self.pending[partition][index]
                return True
        return False


def _placed(offset: CommittedOffset, record_offset: int) -> CommittedOffset:
    return offset if offset.record_offset == record_offset else offset._replace(record_offset=record_offset)


def _keep_newer(of: dict[TopicPartition, CommittedOffset], partition: TopicPartition, offset: CommittedOffset) -> None:
    known = of.get(partition)
    if known is None or known.record_offset < offset.record_offset:
        of[partition] = offset
