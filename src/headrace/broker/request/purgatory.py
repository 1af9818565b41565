"""The purgatory: holds requests until a partition changes or their time-out ends.

A waiting request is an `DelayedOperation` registered under the keys that it watches. `touch(key)` reports a change. All
touches of one turn of the event loop are handled together when it ends, so a thousand produces wake a fetcher once.
Each operation ends exactly once: when `try_complete` returns True, at its deadline, or when it is cancelled because its
connection has closed.

One timer serves all operations, where Apache Kafka has a hierarchy of timing wheels: most operations complete long
before their deadline.
"""

import asyncio
import heapq
from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import count
from typing import Protocol

_STALE_SHARE_MAX = 4


class DelayedOperation(Protocol):
    """A waiting request."""

    def try_complete(self) -> bool:
        """Answers the request if possible; returns True when the operation is complete."""

    def expire(self) -> None:
        """Answers the request at its deadline, with what there is."""


class WaitingOperation:
    """A waiting operation with its keys; the handle to cancel it."""

    __slots__ = ("is_done", "keys", "operation")

    def __init__(self, operation: DelayedOperation, keys: tuple[Hashable, ...]) -> None:
        self.operation, self.keys, self.is_done = operation, keys, False


class Purgatory:
    """Every waiting request of one broker."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # Dicts, not sets: they keep the order of arrival, so operations that waited longest are tried first and a
        # simulation replays.
        self._watched: dict[Hashable, dict[WaitingOperation, None]] = {}
        self.watched: Mapping[Hashable, object] = self._watched
        """By the keys that are watched; empty while nothing waits."""
        self._touched: dict[Hashable, None] = {}
        self._deadlines: list[tuple[float, int, WaitingOperation]] = []
        self._order = count()
        self._timer: asyncio.Handle | None = None
        self._timer_due = 0.0  # kept here: uvloop's handle cannot tell once its time has come
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def operations(self) -> Iterator[DelayedOperation]:
        """All waiting operations."""
        return (entry.operation for _, _, entry in self._deadlines if not entry.is_done)

    def wait(self, operation: DelayedOperation, keys: Iterable[Hashable], timeout_ms: int) -> WaitingOperation:
        """Holds `operation` until it completes after a touch of one of `keys`, at most for `timeout_ms`."""
        entry = WaitingOperation(operation, tuple(keys))
        for key in entry.keys:
            self._watched.setdefault(key, {})[entry] = None
        self._waiting += 1
        deadline = self._loop.time() + timeout_ms / 1000
        heapq.heappush(self._deadlines, (deadline, next(self._order), entry))
        if self._timer is None or self._timer_due > deadline:
            self._set_timer(deadline)
        return entry

    def cancel(self, entry: WaitingOperation) -> None:
        """Removes a waiting operation; neither of its methods is called again."""
        if not entry.is_done:
            self._end(entry)

    def touch(self, key: Hashable) -> None:
        """Reports a change at `key`: operations that watch it are tried when this turn of the event loop ends."""
        if key in self._watched:
            if not self._touched:
                self._loop.call_soon(self._look)
            self._touched[key] = None

    def _look(self) -> None:
        touched, self._touched = self._touched, {}
        for entry in {entry: None for key in touched for entry in self._watched.get(key, ())}:
            if not entry.is_done and entry.operation.try_complete():
                self._end(entry)

    def _end(self, entry: WaitingOperation) -> None:
        entry.is_done = True
        self._waiting -= 1
        for key in entry.keys:
            watchers = self._watched.get(key)
            if watchers is not None:
                watchers.pop(entry, None)
                if not watchers:
                    del self._watched[key]
        if len(self._deadlines) > 64 + _STALE_SHARE_MAX * self._waiting:
            self._deadlines = [each for each in self._deadlines if not each[2].is_done]
            heapq.heapify(self._deadlines)

    def _set_timer(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._expire)
        self._timer_due = deadline

    def _expire(self) -> None:
        self._timer = None
        now = self._loop.time()
        while self._deadlines and (self._deadlines[0][2].is_done or self._deadlines[0][0] <= now):
            entry = heapq.heappop(self._deadlines)[2]
            if not entry.is_done:
                self._end(entry)
                entry.operation.expire()
        if self._deadlines:
            self._set_timer(self._deadlines[0][0])
