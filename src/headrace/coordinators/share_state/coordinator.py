"""The share coordinator: keeps the share partitions whose partition of `__share_group_state` this broker leads.

Its input is values of requests, each for one share partition and with a reply token; its output is actions. It is a
`Coordinator` of `coordinators.runtime`. No clock, no IO: the caller passes the time.

    submit(requests) ─▶ answers                         of those that need no record, or are refused
                     └▶ one batch for each partition ─▶ appended ─▶ answers ─▶ the next requests of the same partitions

At most one record of a share partition is being written. Requests that come meanwhile wait for it, so that records are
in the log in the order of their decisions, and each request sees what those before it have stored.

    PRUNE       each interval: the records before the oldest snapshot that is needed are deleted
    COLD        each interval: share partitions with an old snapshot get a new one, which lets others be pruned
    FORGET      state of a deleted topic is removed, some of it in each tick

`deciding` has the rules of each request. Source: Kafka's `ShareCoordinatorService`, `ShareCoordinatorShard`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from itertools import islice

from headrace.coordinators.deadlines import Deadlines
from headrace.coordinators.runtime import APPEND_ERRORS, Answer, Append, Effect, KeyValue, OwnedPartitions
from headrace.coordinators.share_state.deciding import ShareStateRefused, decide
from headrace.coordinators.share_state.loading import ShareStateLoading
from headrace.coordinators.share_state.persister import PersisterOutcome, SharePartitionKey
from headrace.coordinators.share_state.requests import (
    Action,
    Actions,
    Forget,
    Prune,
    RecordsWritten,
    RecordWrite,
    Request,
    SnapshotCold,
)
from headrace.coordinators.share_state.settings import ShareStateSettings
from headrace.coordinators.share_state.state import CoordinatedState
from headrace.errors import ErrorCode
from headrace.limits import (
    ELEMENTS_PER_SLICE,
    SHARE_STATE_BATCH_BYTES_MAX,
    SHARE_STATE_WAITING_MAX,
    SHARE_STATES_PER_TICK_MAX,
)

AGAIN_MS = 10
"""The time until the rest of a long piece of periodic work."""

IN_THE_LOG = (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
"""The ends of a write after which its record is in the log. After an error it may be lost with this broker, but while
this broker leads, its state is what its log says."""


class Work(Enum):
    """The periodic work."""

    PRUNE = "prune"
    COLD = "snapshot cold partitions"
    FORGET = "forget deleted topics"


class ShareCoordinator:
    """The share partitions of one broker."""

    __slots__ = (
        "_by_topic", "_cold", "_deadlines", "_deleted", "_entries", "_partition_count", "_partition_for", "_settings",
        "_tombstones", "_waiting", "partitions",
    )  # fmt: skip

    def __init__(
        self,
        settings: ShareStateSettings,
        partition_for: Callable[[SharePartitionKey], int],
        partition_count: Callable[[bytes], int],
        now_ms: int,
    ) -> None:
        """`partition_for` maps a share partition to its partition of `__share_group_state`. `partition_count` returns
        the number of partitions of a topic id, 0 if it does not exist."""
        self._settings, self._partition_for, self._partition_count = settings, partition_for, partition_count
        self.partitions = OwnedPartitions(lambda partition: ShareStateLoading(partition, settings.updates_per_snapshot))
        self._entries: dict[int, dict[SharePartitionKey, CoordinatedState]] = {}  # by partition of __share_group_state
        self._by_topic: dict[bytes, dict[SharePartitionKey, None]] = {}
        self._waiting: dict[SharePartitionKey, deque[Request]] = {}
        self._tombstones: dict[int, int] = {}  # partition -> the offset of its last tombstone
        self._cold: deque[int] = deque()
        self._deleted: deque[SharePartitionKey] = deque()
        self._deadlines: Deadlines[Work] = Deadlines()
        self._deadlines.set(Work.PRUNE, now_ms + settings.prune_interval_ms)
        self._deadlines.set(Work.COLD, now_ms + settings.cold_snapshot_interval_ms)

    # Partitions of __share_group_state

    def loaded(self, replay: ShareStateLoading, now_ms: int) -> Iterator[Actions]:
        """Takes over the share partitions of a loaded partition, some in each step."""
        entries = self._entries[replay.partition] = {}
        if replay.tombstone_offset >= 0:
            self._tombstones[replay.partition] = replay.tombstone_offset
        found = iter(replay.entries.items())
        while some := list(islice(found, ELEMENTS_PER_SLICE)):
            for key, entry in some:
                entries[key] = entry
                self._by_topic.setdefault(key.topic_id, {})[key] = None
            yield []

    def unloaded(self, partition: int, now_ms: int) -> Actions:
        """Drops the share partitions of a partition that another broker leads now."""
        actions: Actions = []
        for key in self._entries.pop(partition, ()):
            self._drop_from_topic(key)
            for request in self._waiting.pop(key, ()):
                actions.append(_failed(request, ErrorCode.NOT_COORDINATOR))
        self._tombstones.pop(partition, None)
        return actions

    def _drop_from_topic(self, key: SharePartitionKey) -> None:
        keys = self._by_topic.get(key.topic_id)
        if keys is not None:
            keys.pop(key, None)
            if not keys:
                del self._by_topic[key.topic_id]

    # Requests

    def submit(self, requests: Iterable[Request], now_ms: int) -> Actions:
        """Handles requests. The records of one call go into as few batches as possible."""
        actions: Actions = []
        batches: dict[int, _Batch] = {}
        for request in requests:
            partition = self._partition_for(request.key)
            error = self.partitions.availability(partition)
            if error is not ErrorCode.NONE:
                actions.append(_failed(request, error))
                continue
            entries = self._entries[partition]
            entry = entries.get(request.key)
            if entry is not None and entry.is_busy:
                waiting = self._waiting.setdefault(request.key, deque())
                if len(waiting) >= SHARE_STATE_WAITING_MAX:
                    actions.append(_failed(request, ErrorCode.COORDINATOR_NOT_AVAILABLE))
                else:
                    waiting.append(request)
                continue
            count = self._partition_count(request.key.topic_id)
            try:
                decision = decide(request, entry, count, self._settings.updates_per_snapshot, now_ms)
            except ShareStateRefused as refused:
                actions.append(request.failed(refused.error, refused.message))
                continue
            if decision.record is None:
                actions.append(Answer(request.reply, decision.result))
                continue
            if entry is None:
                entry = entries[request.key] = CoordinatedState(partition)
                self._by_topic.setdefault(request.key.topic_id, {})[request.key] = None
            entry.is_busy = True
            batch = batches.get(partition)
            if batch is None:
                batch = batches[partition] = _Batch(partition, now_ms)
            if full := batch.add(RecordWrite(request, entry, decision.content, decision.result), decision.record):
                actions.append(full)
        actions += [batch.append() for batch in batches.values()]
        return actions

    def appended(self, then: RecordsWritten, error: ErrorCode, record_offset: int, now_ms: int) -> Actions:
        """Takes in the end of a write: answers its requests, and begins with those that waited for it."""
        actions: Actions = []
        next_requests: list[Request] = []
        for request, entry, content, result in then.writes:
            key = request.key
            entries = self._entries.get(entry.partition, {})
            if entries.get(key) is entry:
                entry.is_busy = False
                if error in IN_THE_LOG:
                    known_offset = record_offset if error is ErrorCode.NONE else None
                    if content is None:
                        self._remove(key, entry, known_offset)
                    else:
                        entry.apply(content, known_offset, self._settings.updates_per_snapshot)
                elif entry.state is None:
                    self._remove(key, entry, None)
                waiting = self._waiting.get(key)
                if waiting:
                    next_requests.append(waiting.popleft())
                    if not waiting:
                        del self._waiting[key]
            if error is ErrorCode.NONE:
                actions.append(Answer(request.reply, result))
            else:
                actions.append(_failed(request, APPEND_ERRORS.get(error, error)))
        actions += self._submit_waiting(next_requests, now_ms)
        return actions

    def _submit_waiting(self, requests: list[Request], now_ms: int) -> Actions:
        """Begins with requests that have waited, up to the first of each share partition that writes a record."""
        actions: Actions = []
        while requests:
            actions += self.submit(requests, now_ms)
            again: list[Request] = []
            for request in requests:
                entry = self._entries.get(self._partition_for(request.key), {}).get(request.key)
                waiting = self._waiting.get(request.key)
                if waiting and (entry is None or not entry.is_busy):
                    again.append(waiting.popleft())
                    if not waiting:
                        del self._waiting[request.key]
            requests = again
        return actions

    def _remove(self, key: SharePartitionKey, entry: CoordinatedState, tombstone_offset: int | None) -> None:
        self._entries[entry.partition].pop(key, None)
        self._drop_from_topic(key)
        if tombstone_offset is not None:
            self._tombstones[entry.partition] = tombstone_offset

    def forget_topics(self, topic_ids: Iterable[bytes], now_ms: int) -> Actions:
        """Removes the state of deleted topics, in the next ticks."""
        for topic_id in topic_ids:
            self._deleted.extend(self._by_topic.get(topic_id, ()))
        if self._deleted:
            self._deadlines.set(Work.FORGET, now_ms)
        return []

    @property
    def share_partitions(self) -> int:
        """The number of share partitions that this broker keeps."""
        return sum(map(len, self._entries.values()))

    # Time

    def next_deadline_ms(self) -> int | None:
        """The time at which to call `tick`."""
        return self._deadlines.next_ms()

    def clock_was_set(self, by_ms: int) -> None:
        """Shifts deadlines by a jump of the caller's clock."""
        self._deadlines.shift(by_ms)

    def tick(self, now_ms: int) -> Actions:
        """Does the periodic work that is due; of long work some, and the rest in the next ticks."""
        actions: Actions = []
        while (work := self._deadlines.pop_due(now_ms)) is not None:
            if work is Work.PRUNE:
                self._deadlines.set(work, now_ms + self._settings.prune_interval_ms)
                actions += self._prune()
            elif work is Work.COLD:
                self._cold = self._cold or deque(self._entries)
                actions += self._snapshot_cold(now_ms)
                wait_ms = AGAIN_MS if self._cold else self._settings.cold_snapshot_interval_ms
                self._deadlines.set(work, now_ms + wait_ms)
            else:
                some = [self._deleted.popleft() for _ in range(min(len(self._deleted), SHARE_STATES_PER_TICK_MAX))]
                if self._deleted:
                    self._deadlines.set(work, now_ms + AGAIN_MS)
                actions += self.submit([Request(key, Forget(), _ignore) for key in some], now_ms)
        return actions

    def _prune(self) -> list[Action]:
        """For each partition the oldest snapshot that is needed; without any, the last tombstone."""
        actions: list[Action] = []
        for partition, entries in self._entries.items():
            if self.partitions.availability(partition) is not ErrorCode.NONE:
                continue
            needed = min(
                (each.snapshot_offset for each in entries.values()), default=self._tombstones.get(partition, 0)
            )
            if needed > 0:
                actions.append(Effect(Prune(partition, needed)))
        return actions

    def _snapshot_cold(self, now_ms: int) -> Actions:
        """Snapshots of share partitions whose last one is old, in partitions where anything has changed since. Where
        nothing has, new snapshots would let nothing be pruned."""
        requests: list[Request] = []
        looked = 0
        oldest_ms = now_ms - self._settings.cold_snapshot_interval_ms
        while self._cold and looked < SHARE_STATES_PER_TICK_MAX:
            partition = self._cold[0]
            entries = self._entries.get(partition, {})
            looked += len(entries)
            if any(
                each.state is not None and each.state.created_ms == each.state.written_ms for each in entries.values()
            ):
                cold = (
                    key
                    for key, each in entries.items()
                    if not each.is_busy and each.state is not None and each.state.written_ms <= oldest_ms
                )
                some = list(islice(cold, SHARE_STATES_PER_TICK_MAX))
                requests += [Request(key, SnapshotCold(), _ignore) for key in some]
                if len(some) == SHARE_STATES_PER_TICK_MAX:
                    break  # the others of this partition follow in the next tick
            self._cold.popleft()
        return self.submit(requests, now_ms)


class _Batch:
    """The records for one partition that are written together."""

    __slots__ = ("_bytes", "_now_ms", "_partition", "_records", "_writes")

    def __init__(self, partition: int, now_ms: int) -> None:
        self._partition, self._now_ms = partition, now_ms
        self._begin()

    def _begin(self) -> None:
        self._records: list[KeyValue] = []
        self._writes: list[RecordWrite] = []
        self._bytes = 0

    def add(self, write: RecordWrite, record: KeyValue) -> Append[RecordsWritten] | None:
        """Adds a record. Returns the batch so far if the record has no room in it."""
        size = len(record[0]) + len(record[1] or b"")
        full = None
        if self._records and (
            self._bytes + size > SHARE_STATE_BATCH_BYTES_MAX or len(self._records) >= ELEMENTS_PER_SLICE
        ):
            full = self.append()
            self._begin()
        self._records.append(record)
        self._writes.append(write)
        self._bytes += size
        return full

    def append(self) -> Append[RecordsWritten]:
        """The batch."""
        return Append(self._partition, tuple(self._records), self._now_ms, RecordsWritten(tuple(self._writes)))


def _failed(request: Request, error: ErrorCode) -> Answer:
    return request.failed(error, _MESSAGES.get(error, error.name))


def _ignore(_outcome: PersisterOutcome) -> None:
    """Nobody waits for periodic work."""


_MESSAGES = {
    ErrorCode.NOT_COORDINATOR: "This is not the correct coordinator.",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "The coordinator is loading and hence can't process requests.",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
}
