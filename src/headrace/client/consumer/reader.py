"""Reads a range of offsets of one partition as columns, for Spark executors and other bulk readers.

    ask for 2 MB ─▶ answer ─▶ ask for the next 2 MB ─▶ decode and yield the first ─▶ answer ─▶ ...

The next request is sent before the current answer is decoded, so that the broker and the network work meanwhile. The
reader follows a leader that moves, and reconnects after a broken connection. If the leader names a replica in the
reader's rack (KIP-392), it reads from there, and after any error from the leader to the end of the range.
OffsetOutOfRange means that records of the range were deleted (or never existed); its message has the log start offset.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headrace.client.consumer.fetched_batches import READ_OPTIONS, ReadOptions, columns_of
from headrace.client.consumer.fetching import (
    Fetched,
    Position,
    answers_by_partition,
    fetch_request,
    fetched,
    following_offset,
)
from headrace.client.core.cluster import Cluster
from headrace.client.core.connection import Connection, Pending
from headrace.client.core.failures import DeadlineExceeded
from headrace.client.core.timing import Deadline
from headrace.errors import CorruptMessage, KafkaError
from headrace.protocol import messages as m
from headrace.records.format2.columns import RecordColumns
from headrace.types import NO_EPOCH, NO_LEADER, BrokerId, Offset, TopicPartition

__all__ = ["ReadOptions", "read_range"]


def read_range(
    cluster: Cluster,
    partition: TopicPartition,
    start: int,
    end: int,
    options: ReadOptions = READ_OPTIONS,
) -> Iterator[RecordColumns]:
    """The records with offsets in [start, end), in chunks of about `batch_rows`, in order.

    A chunk holds whole batches, so a long batch makes a longer chunk. Offsets that compaction or transactions left
    empty are skipped. Raises DeadlineExceeded if no data arrives for `api_timeout_ms` before `end` is reached.
    """
    reader = _RangeReader(cluster, partition, Offset(end), options)
    return reader.chunks(Offset(start))


class _RangeReader:
    __slots__ = ("_cluster", "_end", "_options", "_partition", "_rack", "_replica")

    def __init__(self, cluster: Cluster, partition: TopicPartition, end: Offset, options: ReadOptions) -> None:
        self._cluster = cluster
        self._partition = partition
        self._end = end
        self._options = options
        self._rack = options.rack
        self._replica = NO_LEADER

    def chunks(self, start: Offset) -> Iterator[RecordColumns]:
        """Fetch ahead, decode, yield."""
        position = start
        flight: _Flight | None = None
        deadline = self._cluster.deadline()
        while position < self._end:
            answer = self._receive(flight, position, deadline)
            following = following_offset(answer.records, position)
            flight = self._ask_ahead(following, deadline) if position < following < self._end else None
            yield from columns_of(answer, position, self._end, self._options)
            if following > position:
                position, deadline = following, self._cluster.deadline()
            elif len(answer.records):
                raise CorruptMessage(f"{self._partition} at offset {position}: the response has no complete batch")
            elif deadline.expired:
                raise DeadlineExceeded(
                    f"{self._partition}: the records from offset {position} to {self._end} did not arrive in time; "
                    f"the high watermark is {answer.high_watermark}"
                )

    # -- one fetch

    def _receive(self, flight: _Flight | None, position: Offset, deadline: Deadline) -> Fetched:
        """The answer for `position`: of the request sent ahead or, if that failed, of new requests."""
        if flight is not None:
            try:
                return self._take(flight, deadline)
            except KafkaError as cause:
                if not self._back_to_leader() and not cause.code.retriable:
                    raise
        return self._cluster.retry(lambda: self._attempt(position, deadline), deadline)

    def _attempt(self, position: Offset, deadline: Deadline) -> Fetched:
        try:
            return self._take(self._ask(position, deadline), deadline)
        except KafkaError:
            if not self._back_to_leader():  # what a replica says is not final: it may lack what the leader has
                raise
            return self._take(self._ask(position, deadline), deadline)

    def _take(self, flight: _Flight, deadline: Deadline) -> Fetched:
        answer, replica = flight.receive(deadline)
        if replica >= 0:
            self._replica = BrokerId(replica)
        return answer

    def _back_to_leader(self) -> bool:
        """Read from the leader from now on; returns whether it was another replica.

        The leader is not told the rack any more: it would name the replica again, until that is out of the ISR.
        """
        replica, self._replica = self._replica, NO_LEADER
        if replica != NO_LEADER:
            self._rack = ""
        return replica != NO_LEADER

    def _ask_ahead(self, position: Offset, deadline: Deadline) -> _Flight | None:
        try:
            return self._ask(position, deadline)
        except KafkaError:
            return None  # `_receive` sends it again, with retries

    def _ask(self, position: Offset, deadline: Deadline) -> _Flight:
        leader = self._cluster.leader(self._partition, deadline)
        limit = deadline.sooner(self._cluster.settings.request_timeout_ms)
        broker = self._replica if self._replica in self._cluster.view.brokers else leader
        connection = self._cluster.connection(broker, limit)
        positions = {self._partition: Position(position, NO_EPOCH)}
        request = fetch_request(positions, self._options.sizes, self._options.isolation_level, self._rack)
        pending = connection.send(request, m.FetchResponse, limit)
        timeout_ms = self._cluster.settings.request_timeout_ms
        return _Flight(connection, pending, self._partition, position, timeout_ms)


@dataclass(frozen=True, slots=True)
class _Flight:
    """A fetch in flight."""

    connection: Connection
    pending: Pending[m.FetchResponse]
    partition: TopicPartition
    position: Offset
    timeout_ms: int

    def receive(self, deadline: Deadline) -> tuple[Fetched, int]:
        """The answer, and the replica that the leader prefers for this reader; -1 if there is none."""
        answer = self.connection.wait(self.pending, deadline.sooner(self.timeout_ms))
        part = answers_by_partition(answer).get(self.partition)
        if part is None:
            raise KafkaError(f"{self.partition} is missing from the broker's response")
        return fetched(self.partition, self.position, part), part.preferred_read_replica
