# cython: language_level=3, annotation_typing=False, binding=False
"""The purgatory: holds requests until a partition changes or their time-out ends.

A waiting request is a `DelayedOperation` registered under the keys that it watches. `touch(key)` reports a change. All
touches of one turn are handled together when it ends, so a thousand produces wake a fetcher once. It is a turn of
`network.receive_pass`, which is open while requests are received, or else of the event loop.
Each operation ends exactly once: when `try_complete` returns True, at its deadline, or when it is cancelled because its
connection has closed.

One timer serves all operations, where Apache Kafka has a hierarchy of timing wheels: most operations complete long
before their deadline. An operation that waits again and again may be paused meanwhile. Then it goes on, with its time
running, or it waits for something new, with a new deadline.
Compiled, since every produce and fetch that waits passes it; it also runs uncompiled.
"""

import asyncio
import heapq
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Protocol

from headrace.network.answer_order import Waiter
from headrace.network.receive_pass import Turn

_STALE_SHARE_MAX = 4
_STALE_MIN = 64


class DelayedOperation(Protocol):
    """A waiting request."""

    def try_complete(self) -> bool:
        """Answers the request if possible; returns True when the operation is complete."""

    def expire(self) -> None:
        """Answers the request at its deadline, with what there is."""


class DelayedRequest(Waiter):
    """A `DelayedOperation` that compiled code calls directly, if it is compiled too."""

    __slots__ = ()

    def try_complete(self) -> bool:
        """See `DelayedOperation`."""
        raise NotImplementedError

    def expire(self) -> None:
        """See `DelayedOperation`."""
        raise NotImplementedError


class WaitingOperation:
    """A waiting operation with its keys; the handle to cancel it."""

    __slots__ = ("deadline", "due", "is_done", "is_paused", "keys", "look", "operation", "request")

    def __init__(self, operation: DelayedOperation, keys: tuple[Hashable, ...], deadline: float) -> None:
        """`deadline` is in seconds of the event loop's clock."""
        self.operation: DelayedOperation | None = operation
        """None once it is done: it has this handle, and a circle is freed by the collector only."""
        self.request = operation if isinstance(operation, DelayedRequest) else None
        """The same, if it is one."""
        self.keys = keys
        self.deadline = self.due = deadline
        """When it expires, and when the timer looks at it: one that has waited again expires later."""
        self.is_done = self.is_paused = False
        self.look = 0
        """The number of the last look that has found it."""


class Purgatory(Turn):
    """Every waiting request of one broker."""

    __slots__ = (
        "_call_soon", "_deadlines", "_look_at_touched", "_looks", "_loop", "_order", "_time", "_timer", "_timer_due",
        "_touched", "_waiting", "_watched", "watched",
    )  # fmt: skip

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop, self._time, self._call_soon = loop, loop.time, loop.call_soon
        # Of each key the one that watches it, or all. Dicts, not sets: they keep the order of arrival, so operations
        # that waited longest are tried first and a simulation replays.
        self._watched: dict[Hashable, WaitingOperation | dict[WaitingOperation, None]] = {}
        self.watched: Mapping[Hashable, object] = self._watched
        """By the keys that are watched; empty while nothing waits."""
        self._touched: dict[Hashable, None] = {}
        self._look_at_touched = self._look
        self._deadlines: list[tuple[float, int, WaitingOperation]] = []
        self._order = 0  # of the last one in `_deadlines`
        self._looks = 0
        self._timer: asyncio.Handle | None = None
        self._timer_due = 0.0  # kept here: uvloop's handle cannot tell once its time has come
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def operations(self) -> Iterator[DelayedOperation]:
        """All waiting operations."""
        waiting = [entry for _, _, entry in self._deadlines if not (entry.is_done or entry.is_paused)]
        return iter([entry.operation for entry in waiting if entry.operation is not None])

    def wait(self, operation: DelayedOperation, keys: Iterable[Hashable], timeout_ms: int) -> WaitingOperation:
        """Holds `operation` until it completes after a touch of one of `keys`, at most for `timeout_ms`."""
        deadline = self._time() + timeout_ms / 1000.0
        entry = WaitingOperation(operation, tuple(keys), deadline)
        self._watch(entry)
        self._put(entry)
        if self._timer is None or self._timer_due > deadline:
            self._set_timer(deadline)
        return entry

    def cancel(self, entry: WaitingOperation) -> None:
        """Removes a waiting operation; neither of its methods is called again."""
        if not entry.is_done:
            self._end(entry)

    def pause(self, entry: WaitingOperation) -> None:
        """Lets a waiting operation watch nothing until it is resumed; its time passes."""
        if not (entry.is_done or entry.is_paused):
            entry.is_paused = True
            self._unwatch(entry)

    def resume(self, entry: WaitingOperation) -> bool:
        """Lets a paused operation wait as before, behind those that wait. False if it is over by now."""
        if entry.is_paused:
            entry.is_paused = False
            self._watch(entry)
        return not entry.is_done

    def wait_again(self, entry: WaitingOperation, timeout_ms: int) -> bool:
        """Lets a paused operation wait as if it had come now, at most for `timeout_ms`. False, with nothing done, if it
        is over, or is not paused, or has to expire before the timer looks at it."""
        deadline = self._time() + timeout_ms / 1000.0
        if not entry.is_paused or deadline < entry.due:
            return False
        entry.deadline, entry.is_paused = deadline, False
        self._watch(entry)
        return True

    def touch(self, key: Hashable) -> None:
        """Reports a change at `key`: operations that watch it are tried when this turn of the event loop ends."""
        if key in self._watched:
            if not (self._touched or self.is_open):
                self._call_soon(self._look_at_touched)
            self._touched[key] = None

    def flush(self) -> None:
        """See `Turn`: tries what was touched. Whatever that touches is tried when the event loop's turn ends."""
        if self._touched:
            self._look()

    def _look(self) -> None:
        found: list[WaitingOperation] = []
        self._looks += 1
        for key in self._touched:
            watching = self._watched.get(key)
            if isinstance(watching, dict):
                for entry in watching:
                    self._find(entry, found)
            elif watching is not None:
                self._find(watching, found)
        self._touched.clear()
        for entry in found:
            operation, request = entry.operation, entry.request
            if operation is None or entry.is_paused:  # over, or it waits no more
                continue
            is_over = operation.try_complete() if request is None else request.try_complete()
            if is_over and not entry.is_done:
                self._end(entry)

    def _find(self, entry: WaitingOperation, found: list[WaitingOperation]) -> None:
        """Puts an operation among the others of this look, once."""
        if entry.look != self._looks:
            entry.look = self._looks
            found.append(entry)

    def _watch(self, entry: WaitingOperation) -> None:
        for key in entry.keys:
            watching = self._watched.get(key)
            if watching is None:
                self._watched[key] = entry
            elif isinstance(watching, dict):
                watching[entry] = None
            else:
                self._watched[key] = {watching: None, entry: None}
        self._waiting += 1

    def _unwatch(self, entry: WaitingOperation) -> None:
        self._waiting -= 1
        for key in entry.keys:
            watching = self._watched.get(key)
            if isinstance(watching, dict):
                watching.pop(entry, None)
                if not watching:
                    del self._watched[key]
            elif watching is entry:
                del self._watched[key]
        if len(self._deadlines) > _STALE_MIN + _STALE_SHARE_MAX * self._waiting:
            self._drop_stale()

    def _end(self, entry: WaitingOperation) -> None:
        """Ends an operation that is not over. It may have been paused by what it did last."""
        entry.is_done, entry.operation, entry.request = True, None, None
        if entry.is_paused:
            entry.is_paused = False
        else:
            self._unwatch(entry)

    def _drop_stale(self) -> None:
        """Forgets the deadlines of operations that are over, or paused."""
        left = []
        for each in self._deadlines:
            entry = each[2]
            if entry.is_paused:
                self._end(entry)
            elif not entry.is_done:
                left.append(each)
        heapq.heapify(left)
        self._deadlines = left

    def _put(self, entry: WaitingOperation) -> None:
        """Lets the timer look at an operation when its time is up."""
        entry.due = entry.deadline
        self._order += 1
        heapq.heappush(self._deadlines, (entry.due, self._order, entry))

    def _set_timer(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._expire)
        self._timer_due = deadline

    def _expire(self) -> None:
        self._timer = None
        now = self._time()
        while self._deadlines:
            entry = self._deadlines[0][2]
            if not entry.is_done and entry.due > now:
                break
            heapq.heappop(self._deadlines)
            if entry.is_paused:
                self._end(entry)
            elif entry.is_done:
                continue
            elif entry.deadline > now:  # it has waited again
                self._put(entry)
            else:
                operation = entry.operation
                self._end(entry)
                operation.expire()  # type: ignore[union-attr]
        if self._deadlines:
            self._set_timer(self._deadlines[0][0])
