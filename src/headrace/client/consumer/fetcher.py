"""The fetcher of a consumer: keeps fetches in flight for its partitions, and returns the answers chunk by chunk.

Each leader has one Fetch in flight at a time, for its partitions that hold less than two chunks: the next chunk arrives
while the last one is consumed, and no more are held. Fetches are incremental (`fetch_session`). A chunk is one
partition's part of one answer. Each partition has a generation that changes when its position is set, so that the
answer to an older request is recognised and dropped.
Source: Kafka's `Fetcher`, `FetchBuffer`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import NamedTuple

from headrace.client.consumer.fetch_session import FetchSessionHandler
from headrace.client.consumer.fetch_sources import FetchSources
from headrace.client.consumer.fetching import (
    Fetched,
    FetchSizes,
    Position,
    answers_by_partition,
    fetched,
    following_offset,
)
from headrace.client.core.cluster import Cluster
from headrace.client.core.connection import Connection, Pending, pump_any
from headrace.client.core.failures import TopicCreatedAnew
from headrace.client.core.timing import Backoff, Deadline
from headrace.client.core.wakeup import Wakeup
from headrace.client.metrics.consuming import ConsumerMetrics
from headrace.errors import CorruptMessage, KafkaError, OffsetOutOfRange
from headrace.protocol import messages as m
from headrace.types import NO_EPOCH, BrokerId, Offset, TopicPartition

_CHUNKS_HELD = 2
_LAST_REQUEST_MS = 100


class CompletedFetch(NamedTuple):
    """One partition's part of one answer, from `position` on."""

    partition: TopicPartition
    position: Offset
    following: Offset
    answer: Fetched
    generation: int


class _Question(NamedTuple):
    position: Offset
    generation: int


class _Flight(NamedTuple):
    leader: BrokerId
    connection: Connection
    pending: Pending[m.FetchResponse]
    requested: dict[TopicPartition, _Question]
    deadline: Deadline


class Fetcher:
    """Fetches for the partitions that have a position; used by one thread."""

    def __init__(self, cluster: Cluster, sizes: FetchSizes, isolation_level: int, rack: str | None = None) -> None:
        self.paused: set[TopicPartition] = set()
        self.high_watermarks: dict[TopicPartition, Offset] = {}
        self.wakeup: Wakeup = Wakeup()
        self._cluster = cluster
        self._sizes = sizes
        self._isolation_level = isolation_level
        self._next: dict[TopicPartition, Offset] = {}
        self._generations: dict[TopicPartition, int] = {}
        self._flights: list[_Flight] = []
        self._sessions: dict[BrokerId, FetchSessionHandler] = {}
        self._chunks: deque[CompletedFetch] = deque()
        self._lost_positions: dict[TopicPartition, OffsetOutOfRange] = {}
        self._sources = FetchSources(cluster, rack)
        self._backoff = Backoff(cluster.settings.retry_backoff_ms, cluster.settings.retry_backoff_max_ms)
        self._pause_until: Deadline | None = None
        self.metrics: ConsumerMetrics | None = None

    def end_sessions(self) -> None:
        """Tell the brokers, which remember the partitions, to forget them. Waits for nothing."""
        for broker, session in self._sessions.items():
            connection = self._cluster.held(broker)
            request = session.last_request(self._sizes, self._isolation_level)
            if connection is not None and connection.usable and request is not None:
                with suppress(KafkaError):
                    connection.send(request, m.FetchResponse, Deadline.after_ms(_LAST_REQUEST_MS))
        self._sessions.clear()

    def close(self) -> None:
        """Close what it waits with; the connections are the cluster's."""
        self.wakeup.close()

    # -- positions

    def seek(self, partition: TopicPartition, offset: Offset) -> None:
        """Fetch from `offset` on. Chunks and answers of an earlier position are dropped."""
        self._generations[partition] = self._generations.get(partition, 0) + 1
        self._next[partition] = offset
        self._chunks = deque(chunk for chunk in self._chunks if chunk.partition != partition)

    def keep_only(self, partitions: Collection[TopicPartition]) -> None:
        """Stop fetching every other partition."""
        for partition in [known for known in self._next if known not in partitions]:
            self.seek(partition, Offset(0))
            del self._next[partition]
            self.paused.discard(partition)
            self._sources.forget(partition)
        self._sources.keep_only({partition.topic for partition in partitions})

    def is_current(self, chunk: CompletedFetch) -> bool:
        """Whether the chunk is still valid: the position of its partition was not set since."""
        return self._generations.get(chunk.partition) == chunk.generation and chunk.partition in self._next

    def take_out_of_range(self) -> dict[TopicPartition, OffsetOutOfRange]:
        """Partitions whose position the broker refused, with the errors. Their positions are removed."""
        lost, self._lost_positions = self._lost_positions, {}
        return lost

    # -- chunks

    def next_chunk(self, deadline: Deadline) -> CompletedFetch | None:
        """The oldest chunk of a partition that is not paused; None if none arrives in time, or after `wakeup.set()`.

        Raises KafkaErrors that are not retriable, such as CorruptMessage.
        """
        while True:
            self._send_fetches()
            chunk = self._take()
            if chunk is not None:
                self._send_fetches()
                return chunk
            if self._lost_positions:
                return None
            self._wait(deadline)
            self._collect()
            if not self._has_chunk() and (self.wakeup.take() or deadline.expired):
                return None

    def _has_chunk(self) -> bool:
        return any(chunk.partition not in self.paused for chunk in self._chunks)

    def _take(self) -> CompletedFetch | None:
        for index, chunk in enumerate(self._chunks):
            if chunk.partition not in self.paused:
                del self._chunks[index]
                return chunk
        return None

    def _wait(self, deadline: Deadline) -> None:
        """Wait for an answer, unless one was received with that to another request, such as for the ends."""
        if any(flight.pending.done for flight in self._flights):
            return
        limit = deadline
        if self._pause_until is not None and not self._pause_until.expired:
            limit = deadline.sooner(self._pause_until.remaining_s * 1000)
        elif not self._flights:
            limit = deadline.sooner(self._cluster.settings.retry_backoff_ms)
        pump_any([flight.connection for flight in self._flights], limit.remaining_s, self.wakeup.fileno())

    def _collect(self) -> None:
        done = [flight for flight in self._flights if flight.pending.done]
        for flight in self._flights:
            if not flight.pending.done and flight.deadline.expired:
                flight.connection.give_up()
                done.append(flight)
        self._flights = [flight for flight in self._flights if flight not in done]
        for flight in done:
            session = self._sessions[flight.leader]
            try:
                answer = flight.pending.result()
            except KafkaError as cause:
                session.failed()
                self._failed(cause, flight.requested)
                continue
            if not session.answered(answer):
                continue  # again, with all partitions
            try:
                parts = answers_by_partition(answer)
            except KafkaError as cause:
                self._failed(cause, flight.requested)
                continue
            flight.connection.throttle(answer.throttle_time_ms)
            if self.metrics is not None:
                if answer.throttle_time_ms:
                    self.metrics.throttled.record(answer.throttle_time_ms)
                self.metrics.fetched(flight.pending.sent_s, sum(len(part.records or b"") for part in parts.values()))
            for partition, part in parts.items():
                self._take_part(partition, part, flight.requested)

    def _take_part(
        self,
        partition: TopicPartition,
        part: m.FetchResponse.PartitionData,
        requested: dict[TopicPartition, _Question],
    ) -> None:
        question = requested.get(partition)
        if question is None or self._generations.get(partition) != question.generation:
            return
        try:
            answer = fetched(partition, question.position, part)
        except OffsetOutOfRange as cause:
            if not self._sources.forget(partition):  # a follower may lack what the leader has
                self._lose(partition, cause)
            return
        except KafkaError as cause:
            self._failed(cause, [partition])
            return
        self._backoff.reset()
        if part.preferred_read_replica >= 0:
            self._sources.prefer(partition, part.preferred_read_replica)
        self.high_watermarks[partition] = answer.high_watermark
        following = following_offset(answer.records, question.position)
        if following > question.position:
            self._next[partition] = following
            if self.metrics is not None:
                self.metrics.chunk(following - question.position)
            self._chunks.append(CompletedFetch(partition, question.position, following, answer, question.generation))
        elif len(answer.records):
            raise CorruptMessage(f"{partition} at offset {question.position}: the response has no complete batch")

    def _failed(self, cause: KafkaError, partitions: Iterable[TopicPartition]) -> None:
        """Request metadata and back off, or raise an error that is not retriable."""
        if not cause.code.retriable:
            raise cause
        for partition in partitions:
            self._sources.forget(partition)
            self._cluster.forget(partition.topic)
        self._pause_until = Deadline.after_ms(self._backoff.next_ms())

    # -- asking

    def _send_fetches(self) -> None:
        if self._pause_until is not None and not self._pause_until.expired:
            return
        self._pause_until = None
        fetchable = self._fetchable()
        for topic in self._sources.take_anew():
            for partition in [known for known in self._next if known.topic == topic]:
                where = f"{partition} at offset {self._next[partition]}"
                self.seek(partition, Offset(0))  # drops what was fetched
                self._lose(partition, TopicCreatedAnew(f"{where}: the topic was deleted and created anew"))
            fetchable = {}
        for leader, requested in fetchable.items():
            self._send(leader, requested)

    def _lose(self, partition: TopicPartition, cause: OffsetOutOfRange) -> None:
        """The position means nothing; `take_out_of_range` tells."""
        self._next.pop(partition, None)
        self._lost_positions[partition] = cause

    def _fetchable(self) -> dict[BrokerId, dict[TopicPartition, _Question]]:
        """Partitions with no fetch in flight and room for a chunk, by leaders that have no request in flight."""
        out = {partition for flight in self._flights for partition in flight.requested}
        busy = {flight.leader for flight in self._flights}
        held: dict[TopicPartition, int] = {}
        for chunk in self._chunks:
            held[chunk.partition] = held.get(chunk.partition, 0) + 1
        fetchable: dict[BrokerId, dict[TopicPartition, _Question]] = {}
        for partition, offset in self._next.items():
            if partition in out or partition in self.paused or held.get(partition, 0) >= _CHUNKS_HELD:
                continue
            leader = self._leader(partition)
            if leader is not None and leader not in busy and not self._is_throttled(leader):
                fetchable.setdefault(leader, {})[partition] = _Question(offset, self._generations[partition])
        return fetchable

    def _is_throttled(self, leader: BrokerId) -> bool:
        connection = self._cluster.held(leader)
        return connection is not None and connection.throttled_s > 0

    def _leader(self, partition: TopicPartition) -> BrokerId | None:
        deadline = Deadline.after_ms(self._cluster.settings.request_timeout_ms)
        try:
            return self._sources.broker(partition, deadline)
        except KafkaError as cause:
            self._failed(cause, [partition])  # also a partition that is newer than the metadata
            return None

    def _send(self, leader: BrokerId, requested: dict[TopicPartition, _Question]) -> None:
        deadline = Deadline.after_ms(self._cluster.settings.request_timeout_ms)
        positions = {partition: Position(question.position, NO_EPOCH) for partition, question in requested.items()}
        session = self._sessions.setdefault(leader, FetchSessionHandler())
        try:
            connection = self._cluster.connection(leader, deadline)
            request = session.request(positions, self._sizes, self._isolation_level, self._sources.rack)
            pending = connection.send(request, m.FetchResponse, deadline)
        except KafkaError as cause:
            session.failed()
            self._failed(cause, requested)
            return
        self._flights.append(_Flight(leader, connection, pending, requested, deadline))
        for partition in requested:  # to the end, so that every partition is served first in turn
            self._next[partition] = self._next.pop(partition)
