"""The queue of the asynchronous event producer, and the thread that sends from it.

A batch goes to the event handler when it has `batch_size` events, or `queue_time_ms` after the last batch. An event
handler that fails loses its batch: the failure is logged, as in Kafka 0.7. Source: 0.7's `AsyncProducer`,
`ProducerSendThread`.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence

from headrace.client.core.failures import BufferExhausted, ClientClosed
from headrace.client.core.timing import Deadline
from headrace.client.event_producer.handlers import CallbackHandler, Event

_log = logging.getLogger(__name__)


class SendQueue:
    """Up to `size` events that wait to be sent."""

    def __init__(
        self,
        size: int,
        batch_size: int,
        queue_time_ms: int,
        callbacks: CallbackHandler,
        handle: Callable[[Sequence[Event]], None],
    ) -> None:
        self._events: queue.Queue[Event | None] = queue.Queue(size)
        self._batch_size = batch_size
        self._queue_time_ms = queue_time_ms
        self._callbacks = callbacks
        self._handle = handle
        self._closed = threading.Event()
        self._closing = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="headrace-event-producer", daemon=True)
        self._thread.start()

    def put(self, event: Event, timeout_ms: int) -> None:
        """Add an event. If the queue is full: waits so long, not at all (0), or without end (-1), and then raises
        BufferExhausted."""
        if self._closed.is_set():
            raise ClientClosed("the producer is closed")
        event = self._callbacks.before_enqueue(event)
        try:
            if timeout_ms == 0:
                self._events.put_nowait(event)
            else:
                self._events.put(event, timeout=None if timeout_ms < 0 else timeout_ms / 1000)
        except queue.Full:
            self._callbacks.after_enqueue(event, False)
            raise BufferExhausted(
                f"{self._events.maxsize} events wait to be sent, and this one is dropped: set queue_size higher, or "
                "enqueue_timeout_ms to wait (-1: without end)"
            ) from None
        self._callbacks.after_enqueue(event, True)

    def close(self) -> None:
        """Send what is queued, and end the thread."""
        with self._closing:
            if self._closed.is_set():
                return
            self._closed.set()
        self._events.put(None)
        self._thread.join()
        self._callbacks.close()

    def _run(self) -> None:
        batch: list[Event] = []
        due = Deadline.after_ms(self._queue_time_ms)
        while True:
            try:
                event = self._events.get(timeout=due.remaining_s)
                is_end, is_due = event is None, False
            except queue.Empty:
                event, is_end, is_due = None, False, True
            if is_end:
                self._send([*batch, *self._callbacks.last_batch_before_close()])
                return
            batch += self._callbacks.after_dequeuing(event)
            if is_due or len(batch) >= self._batch_size:
                self._send(batch)
                batch, due = [], Deadline.after_ms(self._queue_time_ms)

    def _send(self, batch: Sequence[Event]) -> None:
        try:
            if batch and (left := self._callbacks.before_sending(batch)):
                self._handle(left)
        except Exception:  # the user's code, or the broker's answer
            _log.exception("a batch of %d events is lost", len(batch))
