"""Writes transaction markers to the partitions that this broker leads, durably.

    marker sender (own broker) ─┐
    WriteTxnMarkers ────────────┴▶ write ─▶ one control batch per producer and partition ─▶ all durable ─▶ error codes

A marker in a partition of `__consumer_offsets` also ends the transaction in the groups of that partition, once it is
durable. While the group coordinator does not serve the partition, the marker is refused with NOT_LEADER_OR_FOLLOWER, on
which transaction coordinators ask again: written before the groups are loaded, it would be missed by them.

A marker may come twice, since a coordinator repeats it when it does not know the outcome. The second one is written
too, ends nothing, and is answered NONE. Source: Kafka's `KafkaApis.handleWriteTxnMarkersRequest`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple, Protocol

from headrace.broker.partitions.durable_append import DurableAppends, PendingAppend
from headrace.broker.partitions.partition import ACKS_ALL
from headrace.broker.partitions.replica_manager import ReplicaManager
from headrace.broker.request.purgatory import Purgatory
from headrace.errors import ErrorCode, KafkaError, NotLeaderOrFollower, UnsupportedForMessageFormat
from headrace.limits import MARKERS_PER_TURN_MAX
from headrace.records.format2.control import ABORT, COMMIT, Marker
from headrace.records.format2.header import MAGIC
from headrace.topics import OFFSETS_TOPIC
from headrace.types import TopicPartition


class TransactionMarker(NamedTuple):
    """The end of one producer's transaction, to be written to `partitions`."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    partitions: Sequence[TopicPartition]
    transaction_version: int = 0


MarkerOutcome = dict[TopicPartition, ErrorCode]
"""An error code for each partition of one marker."""


class GroupTransactions(Protocol):
    """The part of the group service that ends transactions."""

    def availability(self, partition: int) -> ErrorCode:
        """NONE if the groups of a partition of `__consumer_offsets` are served, else the reason."""
        ...

    def end_transaction(self, producer_id: int, partition: int, *, is_commit: bool) -> None:
        """Commits or drops the offsets of a transaction in a partition of `__consumer_offsets`."""
        ...


class TransactionMarkers:
    """The markers that this broker writes."""

    def __init__(
        self,
        replicas: ReplicaManager,
        appends: DurableAppends,
        purgatory: Purgatory,
        groups: GroupTransactions,
        *,
        timeout_ms: int,
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
    ) -> None:
        """`timeout_ms` is the longest time that a marker waits for followers and flushes."""
        self._replicas, self._appends, self._purgatory, self._groups = replicas, appends, purgatory, groups
        self._timeout_ms, self._loop, self._now_ms = timeout_ms, loop, now_ms

    def write(self, markers: Iterable[TransactionMarker]) -> asyncio.Future[list[MarkerOutcome]]:
        """Writes markers; the future holds the outcome of each, in order. It never fails, and is done on return if
        everything is durable at once."""
        writing = _Writing(self, markers, self._loop)
        writing.step()
        return writing.written

    def append(self, marker: TransactionMarker, key: TopicPartition) -> PendingAppend | None:
        """Appends a marker to one partition. Returns None when it is durable at once. Raises `KafkaError`."""
        partition = self._replicas.leader(*key)
        if partition.log.config.magic < MAGIC:
            raise UnsupportedForMessageFormat(f"{key} stores a message format without transactions")
        if key.topic == OFFSETS_TOPIC and self._groups.availability(key.partition) is not ErrorCode.NONE:
            raise NotLeaderOrFollower(f"the groups of {key} are not served here yet")
        kind = COMMIT if marker.is_commit else ABORT
        now_ms = self._now_ms()
        appended = partition.append_marker(
            Marker(kind, marker.coordinator_epoch),
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            transaction_version=marker.transaction_version,
            now_ms=now_ms,
        )
        return self._appends.pending(partition, appended, acks=ACKS_ALL, now_ms=now_ms)

    def wait(self, appends: Sequence[PendingAppend], done: Callable[[Sequence[ErrorCode]], None]) -> None:
        """Calls `done` with an error code for each append, when all are durable or have failed."""
        keys = dict.fromkeys(each.partition.key for each in appends)
        self._purgatory.wait(self._appends.until_durable(appends, done), keys, self._timeout_ms)

    def ended(self, marker: TransactionMarker, key: TopicPartition) -> None:
        """Ends the transaction in the groups of a partition, if it has groups. The marker is durable."""
        if key.topic == OFFSETS_TOPIC:
            self._groups.end_transaction(marker.producer_id, key.partition, is_commit=marker.is_commit)


class _Writing:
    """One call of `write`. A transaction may touch thousands of partitions, so each turn of the event loop appends to
    some of them."""

    __slots__ = ("_left", "_loop", "_markers", "_open", "_outcomes", "written")

    def __init__(
        self, markers: TransactionMarkers, wanted: Iterable[TransactionMarker], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._markers, self._loop = markers, loop
        self._outcomes: list[MarkerOutcome] = []
        self._left = self._each_partition(wanted)
        self._open = 1
        """The waits that have not ended, and one for the appends that are still to be made."""
        self.written: asyncio.Future[list[MarkerOutcome]] = loop.create_future()

    def _each_partition(
        self, wanted: Iterable[TransactionMarker]
    ) -> Iterator[tuple[TransactionMarker, TopicPartition, MarkerOutcome]]:
        for marker in wanted:
            outcome: MarkerOutcome = {}
            self._outcomes.append(outcome)
            for key in marker.partitions:
                if key not in outcome:
                    yield marker, key, outcome

    def step(self) -> None:
        """Appends to the next partitions."""
        waiting: list[tuple[TransactionMarker, MarkerOutcome]] = []
        appends: list[PendingAppend] = []
        count = 0
        for marker, key, outcome in islice(self._left, MARKERS_PER_TURN_MAX):
            count += 1
            outcome[key] = ErrorCode.NONE
            try:
                pending = self._markers.append(marker, key)
            except KafkaError as error:
                outcome[key] = error.code
                continue
            if pending is None:
                self._markers.ended(marker, key)
            else:
                waiting.append((marker, outcome))
                appends.append(pending)
        if appends:
            self._open += 1
            self._markers.wait(appends, partial(self._durable, waiting, appends))
        if count == MARKERS_PER_TURN_MAX:
            self._loop.call_soon(self.step)
        else:
            self._end_one()

    def _durable(
        self,
        waiting: Sequence[tuple[TransactionMarker, MarkerOutcome]],
        appends: Sequence[PendingAppend],
        codes: Sequence[ErrorCode],
    ) -> None:
        for (marker, outcome), append, code in zip(waiting, appends, codes, strict=True):
            key = append.partition.key
            outcome[key] = code
            if code is ErrorCode.NONE:
                self._markers.ended(marker, key)
        self._end_one()

    def _end_one(self) -> None:
        self._open -= 1
        if not self._open and not self.written.done():
            self.written.set_result(self._outcomes)
