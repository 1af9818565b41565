"""Deadlines by key: a heap that returns the keys that are due.

A key has one deadline. Moving it later, which every heartbeat does, costs one dictionary write: the heap keeps the
earlier entry, and pushes the key again with its current deadline when that entry comes up.

    at_ms:  key -> deadline          the current deadlines
    heap:   (time, serial, key)      at least one entry per key, at or before its deadline; others are stale

There is no clock here: the caller reads `next_ms`, sleeps, and calls `pop_due` with its own time in milliseconds.
"""

from collections.abc import Hashable
from heapq import heappop, heappush
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Deadlines(Generic[Key]):
    """At most one deadline per key. Time is whatever the caller passes."""

    __slots__ = ("_at_ms", "_heap", "_heaped_ms", "_serial")

    def __init__(self) -> None:
        self._at_ms: dict[Key, int] = {}
        self._heaped_ms: dict[Key, int] = {}  # the earliest heap entry of a key
        self._heap: list[tuple[int, int, Key]] = []
        self._serial = 0  # breaks ties by age, so that keys are never compared

    def __len__(self) -> int:
        return len(self._at_ms)

    def __contains__(self, key: Key) -> bool:
        return key in self._at_ms

    def set(self, key: Key, at_ms: int) -> None:
        """Sets the deadline of `key`, in place of an earlier one."""
        self._at_ms[key] = at_ms
        heaped = self._heaped_ms.get(key)
        if heaped is None or at_ms < heaped:
            self._push(key, at_ms)

    def postpone(self, key: Key, at_ms: int) -> bool:
        """As `set`, for a key whose deadline does not come earlier by this. False, with nothing done, for another."""
        known_ms = self._at_ms.get(key)
        if known_ms is None or at_ms < known_ms:
            return False
        self._at_ms[key] = at_ms
        return True

    def cancel(self, key: Key) -> None:
        """Removes the deadline of `key`, if it has one."""
        self._at_ms.pop(key, None)

    def shift(self, by_ms: int) -> None:
        """Moves every deadline, because the caller's clock was set."""
        self._at_ms = {key: at_ms + by_ms for key, at_ms in self._at_ms.items()}
        self._heap.clear()
        self._heaped_ms.clear()
        for key, at_ms in self._at_ms.items():
            self._push(key, at_ms)

    def next_ms(self) -> int | None:
        """The time at which to call `pop_due`; None without deadlines."""
        heap = self._heap
        while heap and self._is_stale(*heap[0]):
            self._settle(*heappop(heap))
        return heap[0][0] if heap else None

    def pop_due(self, now_ms: int) -> Key | None:
        """Removes and returns the key with the earliest deadline at or before `now_ms`; None if none is due.

        It returns one key at a time, because handling the first may cancel the second.
        """
        next_ms = self.next_ms()
        if next_ms is None or next_ms > now_ms:
            return None
        _, _, key = heappop(self._heap)
        del self._at_ms[key], self._heaped_ms[key]
        return key

    def _is_stale(self, time_ms: int, _serial: int, key: Key) -> bool:
        return self._at_ms.get(key) != time_ms or self._heaped_ms.get(key) != time_ms

    def _settle(self, time_ms: int, _serial: int, key: Key) -> None:
        """Pushes the key of a stale entry again, at its current deadline, if it has one."""
        if self._heaped_ms.get(key) != time_ms:
            return  # the heap has an earlier entry of this key
        del self._heaped_ms[key]
        at_ms = self._at_ms.get(key)
        if at_ms is not None:
            self._push(key, at_ms)

    def _push(self, key: Key, at_ms: int) -> None:
        self._serial += 1
        self._heaped_ms[key] = at_ms
        heappush(self._heap, (at_ms, self._serial, key))
