"""The mirror: reads committed records of the source, writes them to the target, and commits its progress there.

    source ──read_committed──▶ columns ──▶ one transaction of the target: the records, and the offsets to go on at,
                                           as committed offsets of the group `headrace-mirror-NAME`

Records and progress are committed together or not at all. So after any death the mirror goes on where its last
transaction ended, and a reader of the target with read_committed sees each record once. The records of a partition keep
their order. Keys, values, headers and timestamps stay as they are; one more header says where the record came from.

One mirror runs for each name: a second one fences the first, which ends. To share the work, give each its own name and
topics.
"""

from __future__ import annotations

import logging
import threading
from array import array
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic

from headrace.client.consumer.consumer import Consumer
from headrace.client.consumer.fetched_batches import ReadOptions
from headrace.client.consumer.fetching import READ_COMMITTED
from headrace.client.consumer.settings import ConsumerSettings
from headrace.client.core.failures import DeadlineExceeded
from headrace.client.core.settings import ClientSettings
from headrace.client.operations.admin import Admin
from headrace.client.producer.delivery import ColumnsDelivery
from headrace.client.producer.producer import Producer
from headrace.client.producer.settings import ProducerSettings
from headrace.client.producer.transactions import FATAL
from headrace.errors import ErrorCode, InvalidConfig, KafkaError, OffsetOutOfRange
from headrace.mirror.failures import MirrorStopped
from headrace.mirror.progress import MirrorProgress
from headrace.mirror.source_header import marked, taken
from headrace.mirror.topics import Mirrored, Selection, topics_to_mirror
from headrace.records.format2.columns import RecordColumns
from headrace.types import Offset, TopicPartition

log = logging.getLogger(__name__)

_POLL_MS = 200
_PAUSE_MIN_S, _PAUSE_MAX_S = 0.2, 10.0
_REFRESH_S = 30.0
_CLOSE_MS = 5_000
_READ = ReadOptions(headers=True, isolation_level=READ_COMMITTED)

_FINAL = FATAL | {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.SASL_AUTHENTICATION_FAILED,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_CONFIG,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.INVALID_REPLICATION_FACTOR,
    ErrorCode.POLICY_VIOLATION,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
}
"""Errors that the next attempt would meet again."""


@dataclass(frozen=True, slots=True)
class MirrorCluster:
    """A cluster, and how to connect to it."""

    bootstrap: str
    client: ClientSettings


@dataclass(frozen=True, slots=True)
class MirrorSettings:
    """What to mirror, and how."""

    selection: Selection
    name: str | None = None
    """The name of the mirror and its source; None: the source's cluster id."""
    begins_at_end: bool = False
    """Whether a partition without progress is mirrored from its end on."""
    skips_lost: bool = False
    """Whether the mirror goes on where records were deleted before they were mirrored."""
    interval_ms: int = 500
    """The most time between two commits while there are records."""
    rows_max: int = 500_000
    """The most records of one transaction, roughly."""
    compression: str = "none"


@dataclass(slots=True)
class Totals:
    """What a mirror has done since it was made."""

    records: int = 0
    returned: int = 0
    """Records that came from the target itself, and were not sent back."""
    lost: int = 0
    """Offsets that were deleted before they were mirrored."""
    transactions: int = 0


class Mirror:
    """Copies from one cluster to another, on the caller's thread. Use `with` or `close`."""

    def __init__(
        self,
        source: MirrorCluster,
        target: MirrorCluster,
        settings: MirrorSettings,
        say: Callable[[str], None] = log.warning,
    ) -> None:
        """`say` is called with what goes wrong and is tried again. Raises `KafkaError` when a cluster cannot be
        reached, or both are the same."""
        self._settings = settings
        self._say = say
        self.totals: Totals = Totals()
        self._source, self._target = Admin(source.bootstrap, source.client), Admin(target.bootstrap, target.client)
        source_id, target_id = (each.describe_cluster().cluster_id or "" for each in (self._source, self._target))
        if source_id and source_id == target_id and not settings.selection.prefix:
            raise InvalidConfig(
                f"source and target are the same cluster, {source_id}: without a prefix a topic would be copied into "
                "itself"
            )
        self.name: str = settings.name or source_id
        if not self.name or "/" in self.name:
            raise InvalidConfig(f"the mirror's name {self.name!r} is empty or has a '/'")
        self._progress = MirrorProgress(self.name, self._target, settings.selection)
        self._source_id, self._target_id = source_id or self.name, target_id
        self._consumer = Consumer(
            source.bootstrap,
            ConsumerSettings(isolation_level="read_committed", auto_offset_reset="none", auto_commit=False),
            source.client,
        )
        self._producer = Producer(
            target.bootstrap,
            ProducerSettings(transactional_id=self._progress.group, compression=settings.compression, linger_ms=0),
            target.client,
        )
        self._mirrored = Mirrored()
        self._stopping = threading.Event()
        self._refreshed = 0.0

    def __enter__(self) -> Mirror:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections. What is not committed is aborted."""
        self._consumer.close()
        self._producer.close(_CLOSE_MS)
        for each in (self._source, self._target):
            each.close()

    def stop(self) -> None:
        """Ends `run` after the transaction under way. Any thread may call, and a signal's handler."""
        self._stopping.set()
        self._consumer.wakeup()

    def run(self, *, until_end: bool = False, on_commit: Callable[[Totals], None] = lambda totals: None) -> Totals:
        """Mirrors until `stop`, or until everything is mirrored that was there when it began. What may pass is tried
        again. Raises `MirrorStopped`."""
        ends: dict[TopicPartition, Offset] | None = None
        has_begun, pause = False, _PAUSE_MIN_S
        while not self._stopping.is_set():
            try:
                if not has_begun:
                    self._begin()
                    has_begun = True
                if until_end and ends is None:
                    ends = self._ends()
                if ends is not None and self._has_reached(ends):
                    break
                self._refresh()
                if self._copy():
                    on_commit(self.totals)
                pause = _PAUSE_MIN_S
            except OffsetOutOfRange as gone:
                self._recover(gone, has_begun=has_begun)
                self._go_on_after_loss(gone)
            except KafkaError as error:
                self._recover(error, has_begun=has_begun)
                self._say(f"{error}; tried again after {pause:g} s")
                self._stopping.wait(pause)
                pause = min(2 * pause, _PAUSE_MAX_S)
        return self.totals

    # Positions

    def _begin(self) -> None:
        """Fences an earlier mirror of this name, which ends its transaction, and finds out where to go on."""
        self._producer.init_transactions()
        self._refreshed = monotonic()
        self._rewind()

    def _refresh(self) -> None:
        """Looks for new topics and partitions at times."""
        if monotonic() - self._refreshed < _REFRESH_S:
            return
        self._refreshed = monotonic()
        if topics_to_mirror(self._source, self._target, self._settings.selection) != self._mirrored:
            self._rewind()

    def _rewind(self) -> None:
        """Reads on after what is committed in the target."""
        self._mirrored = topics_to_mirror(self._source, self._target, self._settings.selection)
        partitions = self._mirrored.partitions
        self._progress.read(partitions, self._mirrored.topic_ids)
        self._consumer.assign(partitions)
        new = [each for each in partitions if each not in self._progress.committed]
        if new and self._settings.begins_at_end:
            self._consumer.seek_to_end(*new)
        elif new:
            self._consumer.seek_to_beginning(*new)
        for partition, offset in self._progress.committed.items():
            self._consumer.seek(partition, offset)

    def _ends(self) -> dict[TopicPartition, Offset]:
        return self._consumer.end_offsets(self._mirrored.partitions) if self._mirrored.partitions else {}

    def _has_reached(self, ends: Mapping[TopicPartition, Offset]) -> bool:
        return all(self._consumer.position(each) >= end for each, end in ends.items())

    # One transaction

    def _copy(self) -> bool:
        """Mirrors what comes within the interval in one transaction; returns whether there was something."""
        if not self._mirrored.partitions:
            self._stopping.wait(_POLL_MS / 1000)
            return False
        found = self._consumer.poll_columns(_POLL_MS, _READ)
        moved = self._moved()
        if not found and not moved:
            return False
        self._producer.begin()
        deliveries: list[ColumnsDelivery] = []
        rows = returned = 0
        until = monotonic() + self._settings.interval_ms / 1000
        try:
            while True:
                for partition, columns in found:
                    sent = self._send(partition, columns, deliveries)
                    rows += sent
                    returned += columns.count - sent
                if rows >= self._settings.rows_max or monotonic() >= until or self._stopping.is_set():
                    break
                found = self._consumer.poll_columns(max(0.0, (until - monotonic()) * 1000), _READ)
            moved = self._moved()
            self._progress.send(self._producer, moved)
            self._commit()
        finally:
            for delivery in deliveries:
                with suppress(KafkaError):  # the transaction says it
                    delivery.result(0)
        self._progress.committed.update(moved)
        self.totals.records += rows
        self.totals.returned += returned
        self.totals.transactions += 1
        return True

    def _commit(self) -> None:
        """Commits. While the outcome is not known, nothing else can be done with the transaction."""
        while True:
            try:
                self._producer.commit()
                return
            except DeadlineExceeded as late:
                if self._stopping.is_set():
                    raise
                self._say(f"the commit is not acknowledged yet: {late}")

    def _moved(self) -> dict[TopicPartition, int]:
        """The positions that differ from what is committed."""
        return self._progress.moved({each: int(self._consumer.position(each)) for each in self._mirrored.partitions})

    def _send(self, partition: TopicPartition, columns: RecordColumns, deliveries: list[ColumnsDelivery]) -> int:
        """Sends records; returns how many. Those that came from the target are left out."""
        headers, kept = marked(columns, partition, self._source_id, self._target_id)
        keys, values, times = columns.keys, columns.values, memoryview(columns.timestamps_ms)
        count = columns.count
        if kept is not None:
            keys, values, count = taken(keys, kept), taken(values, kept), len(kept)
            times = memoryview(array("q", [columns.timestamps_ms[row] for row in kept]))
        if count:
            to = self._settings.selection.counterpart(partition)
            deliveries.append(self._producer.send_columns(to.topic, keys, values, times, to.partition, headers))
        return count

    # Failures

    def _recover(self, error: KafkaError, *, has_begun: bool) -> None:
        """Aborts the transaction and goes back to what is committed. Raises `MirrorStopped` for what cannot pass."""
        if isinstance(error, MirrorStopped):
            raise error
        cause = error.__cause__ if isinstance(error.__cause__, KafkaError) else error
        if {error.code, cause.code} & {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH}:
            raise MirrorStopped(
                f"another mirror named {self.name} has begun, or a transaction timed out: run one mirror for each name",
                cause.code,
            ) from error
        if cause.code in _FINAL and not isinstance(error, OffsetOutOfRange):
            raise MirrorStopped(cause.message or cause.code.name, cause.code) from error
        if not has_begun:
            return
        try:
            with suppress(KafkaError):  # most often there is no transaction
                self._producer.abort()
            self._rewind()
        except KafkaError as again:
            self._say(f"the last progress cannot be read: {again}")

    def _go_on_after_loss(self, gone: OffsetOutOfRange) -> None:
        """Skips what the source has deleted before it was mirrored. Raises `MirrorStopped` unless that is wanted."""
        starts, ends = self._consumer.beginning_offsets(self._mirrored.partitions), self._ends()
        for partition, offset in self._progress.committed.items():
            if offset > ends[partition]:
                raise MirrorStopped(
                    f"{partition} ends at offset {ends[partition]} in the source, but was mirrored up to {offset}: the "
                    "source has lost records, or its topic was created again",
                    gone.code,
                ) from gone
            if offset >= starts[partition]:
                continue
            if not self._settings.skips_lost:
                raise MirrorStopped(
                    f"{partition}: the source deleted offsets {offset} to {starts[partition] - 1} before they were "
                    "mirrored. Go on without them with --lost skip, and give the topic a longer retention",
                    gone.code,
                ) from gone
            self._say(
                f"{partition}: the source deleted offsets {offset} to {starts[partition] - 1} before they were mirrored"
            )
            self.totals.lost += starts[partition] - offset
            self._consumer.seek(partition, starts[partition])
