"""Requests that wait for something to happen to a partition, or for their time to run out.

A waiting request is an `Operation` under the keys that it watches. `touch(key)` says that something happened
there; all touches of one loop turn are looked at together when it ends, so a thousand produces wake a fetcher
once. Each operation ends exactly once: when `try_complete` says so, at its deadline, or when it is cancelled because
nobody waits for its answer any more.
"""

import asyncio
import heapq
from collections.abc import Hashable, Iterable, Iterator
from itertools import count
from typing import Protocol

_STALE_SHARE_MAX = 4


class Operation(Protocol):
    """A request that waits."""

    def try_complete(self) -> bool:
        """Answers if it can now; True when the request is done with."""

    def expire(self) -> None:
        """Answers with what there is: the time is up."""


class Entry:
    """An operation in its place, to be cancelled by."""

    __slots__ = ("is_done", "keys", "operation")

    def __init__(self, operation: Operation, keys: tuple[Hashable, ...]) -> None:
        self.operation, self.keys, self.is_done = operation, keys, False


class Purgatory:
    """Every waiting request of one broker."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # Both are in the order of coming, which a set's would not be: who waited longer is looked at first, every time.
        self._watched: dict[Hashable, dict[Entry, None]] = {}
        self._touched: dict[Hashable, None] = {}
        self._deadlines: list[tuple[float, int, Entry]] = []
        self._order = count()
        self._timer: asyncio.Handle | None = None
        self._timer_due = 0.0  # kept here: uvloop's handle of a time that has come already cannot tell
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def operations(self) -> Iterator[Operation]:
        """All that wait."""
        return (entry.operation for _, _, entry in self._deadlines if not entry.is_done)

    def wait(self, operation: Operation, keys: Iterable[Hashable], timeout_ms: int) -> Entry:
        """Keeps `operation` until one of `keys` is touched and it can complete, or for `timeout_ms`."""
        entry = Entry(operation, tuple(keys))
        for key in entry.keys:
            self._watched.setdefault(key, {})[entry] = None
        self._waiting += 1
        deadline = self._loop.time() + timeout_ms / 1000
        heapq.heappush(self._deadlines, (deadline, next(self._order), entry))
        if self._timer is None or self._timer_due > deadline:
            self._set_timer(deadline)
        return entry

    def cancel(self, entry: Entry) -> None:
        """Forgets an operation that waits; neither of its methods is called again."""
        if not entry.is_done:
            self._end(entry)

    def touch(self, key: Hashable) -> None:
        """Something happened at `key`: whoever waits there is looked at when this loop turn ends."""
        if key in self._watched:
            if not self._touched:
                self._loop.call_soon(self._look)
            self._touched[key] = None

    def _look(self) -> None:
        touched, self._touched = self._touched, {}
        for entry in {entry: None for key in touched for entry in self._watched.get(key, ())}:
            if not entry.is_done and entry.operation.try_complete():
                self._end(entry)

    def _end(self, entry: Entry) -> None:
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
