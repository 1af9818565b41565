"""Records between the threaded consumer and the tasks that read: which were handed out, and which can go back.

    thread: poll ─▶ Ahead (position: before its first record) ─▶ task: one record, or many ─▶ handed out
                      ▲                                                                          │
                      └────── the position, before the next call of the thread ◀─────────────────┘

So a commit covers exactly the records that a task has received, whatever was read ahead. What is dropped, because the
reading task was cancelled or another one moves the position, is read again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.client.consumer import consumer as threaded
from headrace.client.consumer.fetched_batches import ConsumerRecord
from headrace.records.format2.columns import RecordColumns
from headrace.types import Offset, TopicPartition

Columns = list[tuple[TopicPartition, RecordColumns]]


class NextRecord(NamedTuple):
    """The next record of a partition."""

    partition: TopicPartition
    offset: Offset


class Ahead(NamedTuple):
    """Records of one partition that nobody has received yet, and the offset after them."""

    partition: TopicPartition
    records: Sequence[ConsumerRecord]
    following: Offset


class Core(threaded.Consumer):
    """The threaded consumer, with positions that follow what the tasks receive."""

    def read_ahead(self, timeout_ms: float, limit: int) -> Ahead | None:
        """Poll. The position stays before the records until they are `handed_out`."""
        return self._ahead(self._poll(timeout_ms, limit))

    def read_at_once(self, limit: int) -> Ahead | None:
        """As `read_ahead`, if it need not wait; the loop's thread may call while no other one does."""
        return self._ahead(self._poll_at_once(limit))

    def _ahead(self, records: list[ConsumerRecord]) -> Ahead | None:
        if not records:
            return None
        partition = TopicPartition(records[0].topic, records[0].partition)
        following = self._positions.following
        ahead = Ahead(partition, records, following[partition])
        following[partition] = Offset(records[0].offset)
        return ahead

    def intercepted(self, found: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """What the interceptors make of records that a task is to receive; called on the loop's thread."""
        return self._intercepted(found)

    @property
    def has_interceptors(self) -> bool:
        """Whether there are any."""
        return self._interceptors is not None

    def handed_out(self, place: NextRecord) -> None:
        """Tasks have received the records before this place."""
        if place.partition in self._positions.following:
            self._positions.following[place.partition] = place.offset

    def put_back(self, place: NextRecord) -> None:
        """Read again from this place on, if the partition is still assigned."""
        if place.partition in self._positions.assigned:
            self._positions.seek(*place)

    def put_back_ahead(self, found: Ahead | None) -> None:
        """Read these again."""
        if found is not None:
            self.put_back(NextRecord(found.partition, Offset(found.records[0].offset)))

    def put_back_columns(self, found: Columns) -> None:
        """Read these again."""
        if found:
            partition, columns = found[0]
            self.put_back(NextRecord(partition, Offset(columns.offsets[0])))

    def interrupt(self) -> None:
        """Fail what waits for a broker. Any thread may call."""
        self._cluster.interrupt()

    @property
    def is_forked(self) -> bool:
        """Whether this process is a fork of the one that made the consumer."""
        return self._cluster.is_forked


class Buffer:
    """The records that were read ahead, on the loop's side."""

    __slots__ = ("_ahead", "_next", "_noted", "_records")

    def __init__(self) -> None:
        self._records: Sequence[ConsumerRecord] = ()
        self._ahead: Ahead | None = None
        self._next = self._noted = 0

    @property
    def is_empty(self) -> bool:
        """Whether everything was handed out."""
        return self._next == len(self._records)

    def fill(self, ahead: Ahead) -> None:
        """Hand these out next; there is nothing left."""
        self._ahead, self._records = ahead, ahead.records
        self._next = self._noted = 0

    def take_one(self) -> ConsumerRecord | None:
        """The next record."""
        at = self._next
        if at == len(self._records):
            return None
        self._next = at + 1
        return self._records[at]

    def take(self, limit: int) -> list[ConsumerRecord]:
        """The next records, at most `limit`."""
        at = self._next
        found = [*self._records[at : at + limit]]
        self._next = at + len(found)
        return found

    def news(self) -> NextRecord | None:
        """Where the position is now, if records were handed out since this was asked last."""
        if self._ahead is None or self._next == self._noted:
            return None
        self._noted = self._next
        partition, records, following = self._ahead
        offset = following if self._next == len(records) else Offset(records[self._next - 1].offset + 1)
        return NextRecord(partition, offset)

    def take_rest(self) -> NextRecord | None:
        """Drop what was not handed out; returns where it begins."""
        ahead, at = self._ahead, self._next
        self._ahead, self._records, self._next, self._noted = None, (), 0, 0
        if ahead is None or at == len(ahead.records):
            return None
        return NextRecord(ahead.partition, Offset(ahead.records[at].offset))
