"""Reads a range of offsets of one partition as columns: what Spark's executors and `headrace consume` stand on.

    ask for 2 MB ─▶ answer ─▶ ask for the next 2 MB ─▶ decode and yield the first ─▶ answer ─▶ ...

The next request is sent before the answer at hand is decoded, so that the broker and the network work meanwhile.
A leader that moved, or a connection that broke, is followed; OffsetOutOfRange says that records of the range were
deleted (or never existed), and its message from where the log starts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headrace.client.chunks import READ_OPTIONS, ReadOptions, columns_of
from headrace.client.cluster import Cluster
from headrace.client.connection import Connection, Pending
from headrace.client.failures import DeadlineExceeded
from headrace.client.fetching import Fetched, Position, answers_by_partition, fetch_request, fetched, following_offset
from headrace.client.timing import Deadline
from headrace.errors import CorruptMessage, KafkaError
from headrace.protocol import messages as m
from headrace.records.columns import RecordColumns
from headrace.types import NO_EPOCH, Offset, TopicPartition

__all__ = ["ReadOptions", "read_range"]


def read_range(
    cluster: Cluster,
    partition: TopicPartition,
    start: int,
    end: int,
    options: ReadOptions = READ_OPTIONS,
) -> Iterator[RecordColumns]:
    """The records with offsets in [start, end), in chunks of about `batch_rows`, in order.

    A chunk holds whole batches, so it may be longer where a batch is. Offsets that compaction or transactions left
    empty are passed over. DeadlineExceeded when nothing comes for `api_timeout_ms` although `end` is not reached.
    """
    reader = _RangeReader(cluster, partition, Offset(end), options)
    return reader.chunks(Offset(start))


class _RangeReader:
    __slots__ = ("_cluster", "_end", "_options", "_partition")

    def __init__(self, cluster: Cluster, partition: TopicPartition, end: Offset, options: ReadOptions) -> None:
        self._cluster = cluster
        self._partition = partition
        self._end = end
        self._options = options

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
                raise CorruptMessage(f"{self._partition} at offset {position}: no complete batch in the answer")
            elif deadline.expired:
                raise DeadlineExceeded(
                    f"{self._partition}: no record at offset {position} came, asked up to {self._end}; "
                    f"its readable end is {answer.high_watermark}"
                )

    # -- one fetch

    def _receive(self, flight: _Flight | None, position: Offset, deadline: Deadline) -> Fetched:
        """The answer for `position`: of the request sent ahead, or, where that failed, of new ones."""
        if flight is not None:
            try:
                return flight.receive(deadline)
            except KafkaError as cause:
                if not cause.code.retriable:
                    raise
        return self._cluster.retry(lambda: self._ask(position, deadline).receive(deadline), deadline)

    def _ask_ahead(self, position: Offset, deadline: Deadline) -> _Flight | None:
        try:
            return self._ask(position, deadline)
        except KafkaError:
            return None  # asked again, with retries, when its turn comes

    def _ask(self, position: Offset, deadline: Deadline) -> _Flight:
        leader = self._cluster.leader(self._partition, deadline)
        limit = deadline.sooner(self._cluster.settings.request_timeout_ms)
        connection = self._cluster.connection(leader, limit)
        positions = {self._partition: Position(position, NO_EPOCH)}
        request = fetch_request(positions, self._options.sizes, self._options.isolation_level)
        pending = connection.send(request, m.FetchResponse, limit)
        timeout_ms = self._cluster.settings.request_timeout_ms
        return _Flight(connection, pending, self._partition, position, timeout_ms)


@dataclass(frozen=True, slots=True)
class _Flight:
    """A fetch that was sent."""

    connection: Connection
    pending: Pending[m.FetchResponse]
    partition: TopicPartition
    position: Offset
    timeout_ms: int

    def receive(self, deadline: Deadline) -> Fetched:
        answer = self.connection.wait(self.pending, deadline.sooner(self.timeout_ms))
        part = answers_by_partition(answer).get(self.partition)
        if part is None:
            raise KafkaError(f"{self.partition}: the broker's answer leaves it out")
        return fetched(self.partition, self.position, part)
