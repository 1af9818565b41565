"""The coordinator runtime: loads a coordinator's partitions, executes its actions, and fires its timers.

    request ─▶ coordinator ─actions─▶ reply(message)
                   ▲              ├─▶ perform(effect), of the service
                   ▲              └─▶ append to the coordinator's topic ─▶ durable or failed ─┐
                   └────────────────────────── appended(then, …) ◀────────────────────────────┘

    becomes leader        reads the partition's records in slices, so that other requests are served; then `loaded`
    stops leading         `unloaded`; the result of a load still in progress is dropped

The coordinator is a pure state machine (`coordinators.runtime.Coordinator`); the topic is a parameter. Its users are
`group_service` and `transaction_service`. Another one needs

    a machine     keys and values of its records, their replay (`Replay`), requests in, actions out, deadlines
    a topic       `InternalTopic(NewTopic(name, partitions, replicas, configs), …)`, and the partition of each key
    a service     creates both and a `CoordinatorRuntime`; runs `run(machine.request(…, runtime.now_ms()))` per request
    the wiring    `replicas.on_leadership(runtime.leadership_changed)`, and `FindCoordinator` names the topic's leaders

Actions are executed in the order in which the coordinator decided them, even if a write completes at once and leads to
more actions: the last record of a key in the log must be its last state. Everything here runs on the event loop, and
thousands of actions, such as those of a failover, are executed in slices.
Source: Kafka's `CoordinatorRuntime`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, cast

from headrace.broker.partitions.durable_append import NotDurable
from headrace.coordinators.runtime import Action, Answer, Append, Coordinator, Effect, Replay
from headrace.errors import CorruptMessage, ErrorCode, KafkaError
from headrace.limits import COORDINATOR_ACTIONS_PER_TURN_MAX, COORDINATOR_LOAD_CHUNK_BYTES
from headrace.log.segment.batch_scan import records_in
from headrace.records.any_format import any_crc_is_valid, iter_any_headers
from headrace.records.format2.build import batch_of_rows
from headrace.records.format2.control import read_marker
from headrace.records.format2.header import HEADER_BYTES
from headrace.records.format2.rows import RowBuffer
from headrace.types import NO_PRODUCER, TopicPartition

if TYPE_CHECKING:
    from headrace.broker.partitions.partition import Partition
    from headrace.log.partition_log import PartitionLog
    from headrace.log.producers.verification import Verification
    from headrace.records.format2.header import BatchHeader

log = logging.getLogger(__name__)

NOT_WRITTEN = -1
CLOCK_JUMP_MS = 1000
"""The drift between wall clock and monotonic clock, between two readings, above which the wall clock was set."""

R = TypeVar("R", bound=Replay)
Then = TypeVar("Then")


def _performs_nothing(effect: object) -> None:
    raise AssertionError(f"no service performs {effect!r}")


class Appends(Protocol):
    """The part of `DurableAppends` that a runtime needs."""

    def append(
        self, key: TopicPartition, batch: bytearray, *, timeout_ms: int, verification: Verification | None = None
    ) -> Awaitable[int]:
        """Appends with acks=all; returns the base offset, or raises `KafkaError`. A transactional batch has the
        `verification` that its partition's log issued, unless its transaction is open there.

        The result of an `asyncio.Future` that is done is used at once, without a turn of the event loop. The error
        is `NotDurable` if the batch was appended.
        """
        ...

    def high_watermark(self, key: TopicPartition) -> int:
        """The high watermark of a partition that this broker leads."""
        ...


class CoordinatorRuntime(Generic[R, Then]):
    """One coordinator of this broker, over one internal topic."""

    def __init__(
        self,
        topic: str,
        coordinator: Coordinator[R, Then],
        *,
        appends: Appends,
        append_timeout_ms: int,
        spawn: Callable[[Coroutine[object, object, None]], object],
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
        perform: Callable[[object], None] = _performs_nothing,
    ) -> None:
        """`spawn` runs a coroutine in the background; `perform` executes the coordinator's effects."""
        self._topic, self._coordinator = topic, coordinator
        self._appends, self._append_timeout_ms = appends, append_timeout_ms
        self._spawn, self._loop, self._wall_ms = spawn, loop, now_ms
        self._perform = perform
        self._seen_ms, self._seen_s = now_ms(), loop.time()
        self._led: dict[int, int] = {}  # partition -> the newest leader epoch in which this broker leads it
        self._queue: deque[Action[Then]] = deque()
        self._is_running = False
        self._left_in_turn = COORDINATOR_ACTIONS_PER_TURN_MAX
        self._next_turn: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._arm()

    def close(self) -> None:
        """Stops the timer, and executes nothing more."""
        for handle in (self._timer, self._next_turn):
            if handle is not None:
                handle.cancel()

    # Partitions of the topic

    def leadership_changed(self, key: TopicPartition, partition: Partition | None) -> None:
        """Loads or unloads a partition of the topic when its leader or epoch changes, or it is dropped (None)."""
        if key.topic != self._topic:
            return
        if partition is not None and partition.is_leader:
            led, epoch = self._led.get(key.partition), partition.leader_epoch
            if led is not None and epoch > led + 1:
                self.unload(key.partition)  # another broker may have led, and written, in the epochs between
            if led != epoch:
                self._led[key.partition] = epoch
                self._spawn(self.load(key.partition, partition.log, epoch))
        elif self._led.pop(key.partition, None) is not None:
            self.unload(key.partition)

    def load(self, partition: int, partition_log: PartitionLog, leader_epoch: int) -> Coroutine[object, object, None]:
        """Loads a partition that this broker leads. It is loading from this call on, and served once the returned
        coroutine is done. The coroutine never raises; a partition that cannot be read is not served."""
        return self._read(partition, partition_log, self._coordinator.partitions.begin(partition, leader_epoch))

    def unload(self, partition: int) -> None:
        """Stops serving a partition that this broker no longer leads."""
        self._coordinator.partitions.release(partition)
        late: list[Append[Then]] = []
        queue, self._queue = self._queue, deque()
        for action in queue:
            if isinstance(action, Append) and action.partition == partition:
                late.append(action)  # this broker may lead again before their turn, after others have written
            else:
                self._queue.append(action)
        self.run(self._coordinator.unloaded(partition, self.now_ms()))
        for append in late:
            self._ended(append.then, ErrorCode.NOT_LEADER_OR_FOLLOWER, NOT_WRITTEN)

    async def _read(self, partition: int, partition_log: PartitionLog, replay: R | None) -> None:
        if replay is None:
            return  # it is served or loading already: a new epoch of the same leader changes nothing
        partitions = self._coordinator.partitions
        try:
            offset = partition_log.log_start_offset
            while partitions.is_loading(partition, replay) and offset < (end_offset := partition_log.log_end_offset):
                size = COORDINATOR_LOAD_CHUNK_BYTES
                chunk = partition_log.read(offset, size, end_offset=end_offset, at_least_one=True)
                offset = self._feed(replay, partition, partition_log.read_bytes(chunk), offset)
                if offset < end_offset:
                    await asyncio.sleep(0)  # a long log must not stall the requests of other partitions
            if partitions.is_loading(partition, replay):
                for actions in self._coordinator.loaded(replay, self.now_ms()):
                    self.run(actions)
                    await asyncio.sleep(0)
                    if not partitions.is_loading(partition, replay):
                        return  # another broker leads it by now
        except Exception:  # whatever is in the log: every broker that leads it would stop, one after the other
            if partitions.fail(partition, replay):
                log.exception(
                    "%s-%d cannot be read: this broker does not coordinate the groups or ids stored in it",
                    self._topic,
                    partition,
                )
                self.run(self._coordinator.unloaded(partition, self.now_ms()))
        else:
            partitions.finish(partition, replay)

    def _feed(self, replay: R, partition: int, data: bytes, from_offset: int) -> int:
        """Replays the records of all complete batches in `data`; returns the offset after the last one. Raises
        `CorruptMessage` without a complete batch. Skips corrupt batches and records, since losing all others would be
        worse."""
        next_offset = from_offset
        for position, header in iter_any_headers(data):
            batch = memoryview(data)[position : position + header.size_bytes]
            next_offset = header.next_offset
            try:
                if not any_crc_is_valid(data, position, header):
                    raise CorruptMessage("the batch does not match its CRC")
                if header.is_control:
                    if header.record_count:  # compaction leaves empty batches
                        replay.marker(header.producer_id, read_marker(batch).is_commit)
                    continue
                self._replay(replay, partition, batch, header)
            except KafkaError as error:
                log.warning(
                    "%s-%d: the batch at offset %d is corrupt and is skipped: %s",
                    self._topic,
                    partition,
                    header.base_offset,
                    error,
                )
        if next_offset == from_offset:
            raise CorruptMessage(f"no complete batch begins at offset {from_offset}")
        return next_offset

    def _replay(self, replay: R, partition: int, batch: memoryview, header: BatchHeader) -> None:
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER
        skipped, first = 0, None
        for record in records_in(batch, header):
            try:
                replay.record(record.key or b"", record.value, header.base_offset, producer_id)
            except KafkaError as error:
                skipped, first = skipped + 1, first or error
        if first is not None:
            log.warning(
                "%s-%d: %d records of the batch at offset %d are corrupt and are skipped; the first: %s",
                self._topic,
                partition,
                skipped,
                header.base_offset,
                first,
            )

    # Actions

    @property
    def is_idle(self) -> bool:
        """Whether all that the coordinator decided is executed: what is appended now is behind it in the log."""
        return not (self._queue or self._is_running)

    def run(self, actions: Iterable[Action[Then]]) -> None:
        """Executes actions that the coordinator decided; of thousands, some now and the others in the next turns of the
        event loop."""
        self._queue.extend(actions)
        if self._is_running:
            return  # an outer call of `run` executes them, in order
        if self._next_turn is None and self._queue:
            self._next_turn = self._loop.call_soon(self._on_next_turn)
        self._is_running = True
        try:
            while self._queue and self._left_in_turn > 0:
                action = self._queue.popleft()
                self._left_in_turn -= len(action.records) if isinstance(action, Append) else 1
                if isinstance(action, Answer):
                    _answer(action)
                elif isinstance(action, Effect):
                    self._perform(action.what)
                else:
                    self._append(action)
        finally:
            self._is_running = False
        self._arm()

    def _on_next_turn(self) -> None:
        self._next_turn, self._left_in_turn = None, COORDINATOR_ACTIONS_PER_TURN_MAX
        self.run(())

    def _append(self, append: Append[Then]) -> None:
        rows = RowBuffer(HEADER_BYTES)
        for record_key, value in append.records:
            rows.append(record_key, value, append.timestamp_ms, ())
        key = TopicPartition(self._topic, append.partition)
        timeout_ms, producer = self._append_timeout_ms, append.producer
        if producer is None:
            appending = self._appends.append(key, batch_of_rows(rows), timeout_ms=timeout_ms)
        else:
            batch = batch_of_rows(
                rows,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                base_sequence=0,  # Apache Kafka's; nobody checks it, since a coordinator's batches have no sequences
                is_transactional=True,
            )
            verification = cast("Verification | None", producer.verification)
            appending = self._appends.append(key, batch, timeout_ms=timeout_ms, verification=verification)
        writing = asyncio.ensure_future(appending)
        if writing.done():
            self._written(append.then, writing)
        else:
            writing.add_done_callback(lambda _: self._written(append.then, writing))

    def _written(self, then: Then | None, writing: asyncio.Future[int]) -> None:
        error, record_offset = ErrorCode.NONE, NOT_WRITTEN
        try:
            record_offset = writing.result()
        except KafkaError as failure:
            error = failure.code
            if isinstance(failure, NotDurable):
                record_offset = failure.base_offset
            log.warning("a record could not be written to %s: %s", self._topic, failure)
        except asyncio.CancelledError:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER  # the broker is shutting down
        self._ended(then, error, record_offset)

    def _ended(self, then: Then | None, error: ErrorCode, record_offset: int) -> None:
        if then is not None:
            self.run(self._coordinator.appended(then, error, record_offset, self.now_ms()))

    # Time

    def now_ms(self) -> int:
        """Returns the wall clock. If the clock was set, the coordinator shifts its deadlines, so that no session ends
        early or late."""
        now_ms, now_s = self._wall_ms(), self._loop.time()
        jump_ms = now_ms - self._seen_ms - int((now_s - self._seen_s) * 1000)
        self._seen_ms, self._seen_s = now_ms, now_s
        if abs(jump_ms) > CLOCK_JUMP_MS:
            self._coordinator.clock_was_set(jump_ms)
        return now_ms

    def _arm(self) -> None:
        """Sets the timer to the next deadline or leaves an earlier one, which costs one extra check."""
        next_ms = self._coordinator.next_deadline_ms()
        if next_ms is None or (self._timer is not None and self._timer_ms <= next_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = next_ms
        self._timer = self._loop.call_later(max(next_ms - self.now_ms(), 0) / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.run(self._coordinator.tick(self.now_ms()))


def _answer(answer: Answer) -> None:
    """Sends one response. Logs a failure, so that other members of the group still get their responses."""
    try:
        answer.reply(answer.message)
    except Exception:
        log.exception("the response %r could not be sent", answer.message)
