"""One stream of a connector: an iterator over the records of the partitions that its thread owns.

    user's thread    iterate: fetch, decode, hand out        each stream has its own connections
    connector        grant partitions, revoke them, read positions

A record counts as consumed when its thread asks for the next one, so that a consumer that dies has lost nothing.
(Kafka's consumer counts it when it is handed out.) `revoke` stops the delivery at once, and waits a while for the
thread to finish its record; then no other consumer reads it again. Source: Kafka 0.8.2's `ConsumerIterator`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping

from headrace.client.consumer.fetched_batches import ChunkRecords, ConsumerRecord
from headrace.client.consumer.fetcher import CompletedFetch, Fetcher
from headrace.client.consumer.fetching import READ_UNCOMMITTED
from headrace.client.core.cluster import Cluster
from headrace.client.core.settings import Address
from headrace.client.core.timing import Deadline
from headrace.client.operations.admin import Admin
from headrace.client.zookeeper_consumer.settings import RESETS, ConnectorSettings
from headrace.types import Offset, TopicPartition

_RECORDS_AT_ONCE = 1_000
_LOOK_MS = 100
"""How long a fetch may keep the thread from noticing new partitions."""
_CERTAIN_MS = 5
"""How long the thread waits for the answer whether the session still lives."""


class _Grant:
    """A partition that the stream owns, and the offset of the next record to hand out."""

    __slots__ = ("is_fetched", "position")

    def __init__(self, position: Offset) -> None:
        self.position = position
        self.is_fetched = False


class Stream:
    """The records of some partitions; `for record in stream` in one thread."""

    def __init__(
        self,
        name: str,
        make_cluster: Callable[[], Cluster],
        settings: ConnectorSettings,
        may_deliver: Callable[[], bool],
    ) -> None:
        """`may_deliver` is asked before each batch of records."""
        self.name = name
        self._may_deliver = may_deliver
        self._make_cluster = make_cluster
        self._settings = settings
        self._changed = threading.Condition()
        self._grants: dict[TopicPartition, _Grant] = {}
        self._version = 0  # of `_grants`
        self._closed = threading.Event()
        self._is_fetching = False
        self._taken_version = 0
        """The version at which `_rest` was found to be wanted."""
        self._thread: int | None = None
        self._iterator: Iterator[ConsumerRecord] | None = None
        self._cluster: Cluster | None = None
        self._fetcher: Fetcher | None = None
        self._chunk: tuple[CompletedFetch, ChunkRecords, _Grant] | None = None
        self._rest: Iterator[ConsumerRecord] = iter(())
        self._current: ConsumerRecord | None = None  # handed out, and not finished

    def __repr__(self) -> str:
        return f"Stream({self.name!r})"

    # -- the user's thread

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """The records from here on, until the connector is shut down or `consumer_timeout_ms` has passed."""
        while self._advance():
            version = self._taken_version
            for record in self._rest:
                self._current = record
                yield record
                if self._version != version:
                    break

    def __next__(self) -> ConsumerRecord:
        if self._iterator is None:
            self._iterator = iter(self)
        try:
            return next(self._iterator)
        except StopIteration:
            self._iterator = None
            raise

    def _advance(self) -> bool:
        """Finish the record, and find more for `_rest`. Returns False when the iteration is to end."""
        self.finish()
        wait_ms = self._settings.consumer_timeout_ms
        deadline = Deadline.after_ms(wait_ms) if wait_ms >= 0 else None
        while not self._take_records():
            if self._closed.is_set():
                return False
            if deadline is not None and deadline.expired:
                return False
            look = Deadline.after_ms(_LOOK_MS) if deadline is None else deadline.sooner(_LOOK_MS)
            if self._chunk is not None:
                look.sleep_ms(_CERTAIN_MS)
            else:
                self._fetch(look)
        return True

    def finish(self) -> None:
        """Count the record that was handed out as consumed. By the thread that reads the stream."""
        with self._changed:
            self._thread = threading.get_ident()
            current, self._current = self._current, None
            if current is not None and self._chunk is not None:
                self._chunk[2].position = Offset(current.offset + 1)
            self._changed.notify_all()

    def _take_records(self) -> bool:
        """Whether `_rest` has records: those left of a batch, or the next of the chunk. If not, and there is a chunk,
        then it may not be delivered yet."""
        if self._chunk is None:
            return False
        chunk, records, grant = self._chunk
        if not self._may_deliver() and self._grants.get(chunk.partition) is grant and not self._closed.is_set():
            return False
        left = list(self._rest) or records.take(_RECORDS_AT_ONCE)
        with self._changed:
            if self._closed.is_set() or self._grants.get(chunk.partition) is not grant:
                self._chunk, self._rest = None, iter(())
                return False
            if left:
                self._rest = iter(left)
                self._current, self._taken_version = left[0], self._version
                return True
            grant.position = chunk.following
            self._chunk = None
            return False

    def _fetch(self, deadline: Deadline) -> None:
        """Wait for a chunk of an owned partition. Raises KafkaErrors that are not retriable, such as CorruptMessage."""
        with self._changed:
            if not self._grants or self._closed.is_set():
                self._changed.wait(deadline.remaining_s)
                return
            self._is_fetching = True
        try:
            chunk = self._next_chunk(deadline)
        finally:
            with self._changed:
                self._is_fetching = False
                if self._closed.is_set():
                    self._close_connections()
        if chunk is None:
            return
        with self._changed:
            grant = self._grants.get(chunk.partition)
            if grant is not None and grant.is_fetched:
                records = ChunkRecords(chunk.partition, chunk.answer, chunk.position, READ_UNCOMMITTED)
                self._chunk = chunk, records, grant

    def _next_chunk(self, deadline: Deadline) -> CompletedFetch | None:
        fetcher = self._opened()
        with self._changed:
            fetcher.keep_only(self._grants)
            for partition, grant in self._grants.items():
                if not grant.is_fetched:
                    fetcher.seek(partition, grant.position)
                    grant.is_fetched = True
        chunk = fetcher.next_chunk(deadline)
        if lost := fetcher.take_out_of_range():
            self._reset(list(lost))
        return chunk if chunk is not None and fetcher.is_current(chunk) else None

    def _opened(self) -> Fetcher:
        if self._cluster is None or self._fetcher is None:
            self._cluster = self._make_cluster()
            self._fetcher = Fetcher(self._cluster, self._settings.sizes, READ_UNCOMMITTED)
        return self._fetcher

    def _reset(self, lost: list[TopicPartition]) -> None:
        """Go to where `auto_offset_reset` says, as the offsets are gone."""
        assert self._cluster is not None
        where = RESETS[self._settings.auto_offset_reset]
        found = Admin(self._cluster).list_offsets(dict.fromkeys(lost, where))
        with self._changed:
            for partition, place in found.items():
                if grant := self._grants.get(partition):
                    grant.position, grant.is_fetched = place.offset, False

    def _close_connections(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            if self._fetcher is not None:
                self._fetcher.close()
            self._cluster = self._fetcher = None

    # -- the connector

    @property
    def is_read_here(self) -> bool:
        """Whether the calling thread reads this stream."""
        return self._thread == threading.get_ident()

    def grant(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Deliver these partitions from these offsets on."""
        with self._changed:
            self._grants.update((partition, _Grant(offset)) for partition, offset in offsets.items())
            self._version += 1
            self._changed.notify_all()

    def stop(self, partitions: set[TopicPartition]) -> None:
        """Hand out no further record of these partitions, bar one that is on its way. `revoke` follows."""
        with self._changed:
            if partitions & self._grants.keys():
                self._version += 1

    def revoke(self, partitions: set[TopicPartition], deadline: Deadline) -> dict[TopicPartition, Offset]:
        """Deliver these partitions no more. Returns the offsets of their next records.

        Waits for the thread to finish its record, if it is of these partitions. After the deadline that record counts
        as not consumed, and is read again by the next owner.
        """
        with self._changed:
            gone = partitions & self._grants.keys()
            if not gone:
                return {}
            self._version += 1
            if not self.is_read_here:
                self._changed.wait_for(lambda: self._partition_out() not in gone, deadline.remaining_s)
            found = {partition: offset for partition, offset in self.positions().items() if partition in gone}
            for partition in gone:
                del self._grants[partition]
            return found

    def positions(self) -> dict[TopicPartition, Offset]:
        """The offset of the first record that is not consumed, by partition."""
        with self._changed:
            found = {partition: grant.position for partition, grant in self._grants.items()}
            out, current = self._partition_out(), self._current
            if out in found and current is not None:
                found[out] = Offset(current.offset)
            return found

    def _partition_out(self) -> TopicPartition | None:
        """The partition of the record that is handed out and not finished."""
        if self._current is None or self._chunk is None:
            return None
        partition = self._chunk[0].partition
        return partition if self._grants.get(partition) is self._chunk[2] else None

    def use_brokers(self, addresses: list[Address]) -> None:
        """Begin with these brokers when the known ones do not answer."""
        cluster = self._cluster
        if cluster is not None:
            cluster.bootstrap = addresses

    def close(self) -> None:
        """End the iteration."""
        with self._changed:
            self._closed.set()
            self._version += 1
            self._changed.notify_all()
            if not self._is_fetching:
                self._close_connections()
