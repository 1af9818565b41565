# cython: language_level=3, annotation_typing=False, binding=False
"""Batches in delivery to a partition, and the futures of their records. Compiled, since each record has a future.

A `Batch` is the unit that is encoded, sent, retried and acknowledged; a `Delivery` is one record's view of its batch.
Only the bytes and the time of a record are kept, so that a future costs one small object.

    OPEN ──full, linger, flush──▶ waiting ──▶ in flight ──▶ done (offset, or an error)
                                     ▲             │
                                     └──retriable──┘
"""

from __future__ import annotations

import logging
from _thread import TIMEOUT_MAX, allocate_lock
from array import array
from collections.abc import Callable, Generator, Iterable, Sequence
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from headrace.client.core.failures import DeadlineExceeded
from headrace.client.core.loops import complete, running_loop, set_done
from headrace.client.producer.lost_records import LOST
from headrace.errors import KafkaError
from headrace.records.format2.columns import BinaryColumn, HeadersColumn
from headrace.records.format2.rows import RowBuffer
from headrace.types import Offset, TopicPartition

if TYPE_CHECKING:
    import asyncio
    from threading import Lock

NO_SEQUENCE = -1
RECORD_OVERHEAD_BYTES = 12
"""What a record costs beside its key, value and headers: an estimate, on the safe side for small records."""

_log = logging.getLogger(__name__)

_callbacks_lock = allocate_lock()
"""One for all batches, held for an instant: a callback is called once, whichever thread is first."""


class RecordMetadata(NamedTuple):
    """The place of an acknowledged record; `offset` is -1 if the broker sent none (acks=0, or a duplicate)."""

    topic: str
    partition: int
    offset: Offset
    timestamp_ms: int


DeliveryCallback: TypeAlias = "Callable[[RecordMetadata | None, KafkaError | None], None]"


class ColumnSlice(NamedTuple):
    """Rows `start` to `stop` (exclusive) of columns in Arrow's layout, or of `order` if there is one."""

    keys: BinaryColumn | None
    values: BinaryColumn | None
    timestamps_ms: array[int] | memoryview
    headers: HeadersColumn | None
    start: int
    stop: int
    order: array[int] | None = None


class Helper(Protocol):
    """Sends batches. A thread that waits for one can help it."""

    def help(self, batch: Batch, timeout_s: float | None) -> float | None:
        """Wait, working; returns the time that is left. The batch may not be done then."""


class Batch:
    """Records of one partition that travel together."""

    def __init__(
        self,
        partition: TopicPartition,
        content: RowBuffer | ColumnSlice,
        number: int,
        opened_s: float,
        expires_s: float,
    ) -> None:
        self.partition: TopicPartition = partition
        self.content = content
        self.number: int = number
        self.opened_s: float = opened_s
        self.expires_s: float = expires_s
        self.count: int = 0
        self.size_bytes: int = 0
        self.attempts: int = 0
        self.base_sequence: int = NO_SEQUENCE
        self.encoded: bytearray | None = None
        self.base_offset: int = -1
        self.log_append_time_ms: int = -1
        self.error: KafkaError | None = None
        self._callbacks: list[tuple[int, DeliveryCallback]] = []
        self._waiters: list[asyncio.Future[None]] = []
        self._sleepers: list[Lock] = []
        self.is_done: bool = False
        """Whether the batch was acknowledged or has failed."""
        self.is_error_told: bool = False
        self.helper: Helper | None = None
        """The first thread that waits helps it."""

    def __del__(self) -> None:
        """Notes records that were lost although the program goes on: nobody can ask for their result any more."""
        if self.error is not None and self.is_done and not self.is_error_told:
            LOST.note(self.partition, self.count, self.error)

    def outcome(self, timeout_s: float | None) -> KafkaError | None:
        """Wait until the batch is done; returns its error or None. Raises DeadlineExceeded after the timeout."""
        if not self.wait_until(timeout_s):
            raise DeadlineExceeded(
                f"{self.partition}: not acknowledged within {timeout_s} s; the producer continues to retry"
            )
        self.is_error_told = True
        return self.error

    def wait_until(self, timeout_s: float | None) -> bool:
        """Wait until the batch is done; whether it is after the timeout."""
        helper = self.helper
        if helper is not None and not self.is_done:
            self.helper = None
            timeout_s = helper.help(self, timeout_s)
        with _callbacks_lock:
            if self.is_done:
                return True
            lock = allocate_lock()  # an Event is the same with more around it, which each batch would pay for
            lock.acquire()
            self._sleepers.append(lock)
        if timeout_s is None:
            return lock.acquire()
        return lock.acquire(timeout=min(max(timeout_s, 0.0), TIMEOUT_MAX)) or self.is_done

    def wait(self, timeout_s: float | None) -> None:
        """Wait until the batch is done; raises its error."""
        error = self.outcome(timeout_s)
        if error is not None:
            raise error

    def finish(self, base_offset: int, log_append_time_ms: int, error: KafkaError | None) -> None:
        """Acknowledge or fail the batch, drop its content, and run the callbacks."""
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self.error = error
        self.encoded = self.helper = None
        with _callbacks_lock:
            self.is_done = True
            sleepers, self._sleepers = self._sleepers, []
            callbacks, self._callbacks = self._callbacks, []
            waiters, self._waiters = self._waiters, []
        for lock in sleepers:
            lock.release()
        if waiters:
            complete(waiters)
        self.is_error_told |= any(_tells_caller(callback) for _, callback in callbacks)
        for index, callback in callbacks:
            self._call_back(index, callback)
        if isinstance(self.content, ColumnSlice):
            self.content = self.content._replace(keys=None, values=None, headers=None)
        else:
            self.content.data = bytearray()

    def add_callback(self, index: int, callback: DeliveryCallback) -> None:
        """Call when done, from the sender's thread, or at once if already done. Exceptions are logged."""
        with _callbacks_lock:
            if not self.is_done:
                self._callbacks.append((index, callback))
                return
            self.is_error_told |= _tells_caller(callback)
        self._call_back(index, callback)

    @property
    def has_callbacks(self) -> bool:
        """Whether callbacks wait for the end of the batch."""
        return bool(self._callbacks)

    def expect(self, callback: DeliveryCallback) -> None:
        """Call for the last record when done. The caller holds the lock under which the batch is open."""
        self._callbacks.append((self.count - 1, callback))

    def add_waiter(self, waiter: asyncio.Future[None]) -> None:
        """Complete `waiter` on its event loop when done; a loop is woken once for all that wait there."""
        with _callbacks_lock:
            if not self.is_done:
                self._waiters.append(waiter)
                return
        set_done([waiter])

    def metadata(self, index: int) -> RecordMetadata:
        """The place of record `index` of the batch."""
        offset = Offset(self.base_offset + index if self.base_offset >= 0 else -1)
        timestamp = self.log_append_time_ms if self.log_append_time_ms >= 0 else self._timestamp(index)
        return RecordMetadata(self.partition.topic, self.partition.partition, offset, timestamp)

    def _timestamp(self, index: int) -> int:
        if isinstance(self.content, RowBuffer):
            return self.content.timestamps_ms[index]
        rows = self.content
        row = rows.start + index if rows.order is None else rows.order[rows.start + index]
        return rows.timestamps_ms[row]

    def _call_back(self, index: int, callback: DeliveryCallback) -> None:
        try:
            callback(None if self.error else self.metadata(index), self.error)
        except BaseException as error:
            # SystemExit, as of sys.exit(), would end the sender's thread without a word, and nothing be sent any more.
            if not isinstance(error, Exception) and current_thread() is main_thread():
                raise
            _log.exception("a delivery callback for %s raised an exception", self.partition)


def _tells_caller(callback: DeliveryCallback) -> bool:
    """Whether the program hears of an error by it; that of an interceptor may be beside the program."""
    return bool(getattr(callback, "tells_caller", True))


class Delivery:
    """The future of one record: `result()` in a thread, `await delivery` in a coroutine."""

    __slots__ = ("_batch", "_index")

    _batch: Batch
    _index: int

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        """The place of the record. Raises KafkaError if it could not be delivered."""
        batch = self._batch
        if not batch.is_done:
            waiter = running_loop().create_future()
            batch.add_waiter(waiter)
            yield from waiter
        if batch.error is not None:
            batch.wait(0)
        return batch.metadata(self._index)

    def done(self) -> bool:
        """Whether the record was acknowledged or has failed."""
        return self._batch.is_done

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Wait for the place of the record. Raises KafkaError if it could not be delivered."""
        self._batch.wait(timeout_s)
        return self._batch.metadata(self._index)

    def exception(self, timeout_s: float | None = None) -> KafkaError | None:
        """Wait for the result; returns the error if the record could not be delivered, else None."""
        return self._batch.outcome(timeout_s)

    def add_done_callback(self, callback: DeliveryCallback) -> None:
        """Call `callback(metadata, error)`, one of them None, when the result is known."""
        self._batch.add_callback(self._index, callback)


def delivery_of(batch: Batch, index: int) -> Delivery:
    """The future of record `index` of the batch."""
    delivery = Delivery.__new__(Delivery)  # a call of the class makes a tuple of its arguments first
    delivery._batch = batch
    delivery._index = index
    return delivery


class ColumnsDelivery:
    """The future of one `send_columns`."""

    __slots__ = ("batches",)

    def __init__(self, batches: Sequence[Batch]) -> None:
        self.batches: Sequence[Batch] = batches

    def __await__(self) -> Generator[Any, None, list[RecordMetadata]]:
        """As `result`, in a coroutine."""
        yield from settled(self.batches).__await__()
        return self.result(0)

    @property
    def count(self) -> int:
        """The number of its records."""
        return sum(batch.count for batch in self.batches)

    def done(self) -> bool:
        """Whether every batch was acknowledged or has failed."""
        return all(batch.is_done for batch in self.batches)

    def result(self, timeout_s: float | None = None) -> list[RecordMetadata]:
        """The place of the first record of each batch; raises the first failure."""
        for batch in self.batches:
            error = batch.outcome(timeout_s)
            if error is not None:
                for each in self.batches:
                    each.is_error_told = True
                raise error
        return [batch.metadata(0) for batch in self.batches]


async def settled(batches: Iterable[Batch]) -> None:
    """Wait on the running event loop until all batches are done, whatever their outcome."""
    for batch in batches:
        if not batch.is_done:
            waiter = running_loop().create_future()
            batch.add_waiter(waiter)
            await waiter
