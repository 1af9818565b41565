"""Deadlines by key: a heap that is told when, and says what is due.

A key has one deadline. Moving it later, which every heartbeat does, costs one dictionary write: the heap keeps
the earlier entry, and when that comes up it is pushed again at the time that counts.

    at_ms:  key -> deadline          what counts
    heap:   (time, serial, key)      at least one entry per key, at or before its deadline; others are stale

Knows no clock: the caller asks `next_ms`, sleeps, and calls `pop_due` with its own time in milliseconds.
"""

from collections.abc import Hashable
from heapq import heappop, heappush
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Deadlines(Generic[Key]):
    """At most one deadline per key; time only moves as far as the caller says."""

    __slots__ = ("_at_ms", "_heap", "_heaped_ms", "_serial")

    def __init__(self) -> None:
        self._at_ms: dict[Key, int] = {}
        self._heaped_ms: dict[Key, int] = {}  # the earliest heap entry of a key
        self._heap: list[tuple[int, int, Key]] = []
        self._serial = 0  # ties go to who came first; keys are never compared

    def __len__(self) -> int:
        return len(self._at_ms)

    def __contains__(self, key: Key) -> bool:
        return key in self._at_ms

    def set(self, key: Key, at_ms: int) -> None:
        """`key` is due at `at_ms`, whatever was set for it before."""
        self._at_ms[key] = at_ms
        heaped = self._heaped_ms.get(key)
        if heaped is None or at_ms < heaped:
            self._push(key, at_ms)

    def cancel(self, key: Key) -> None:
        """`key` is never due; nothing when it was not set."""
        self._at_ms.pop(key, None)

    def shift(self, by_ms: int) -> None:
        """The caller's clock was set: every deadline moves with it."""
        self._at_ms = {key: at_ms + by_ms for key, at_ms in self._at_ms.items()}
        self._heap.clear()
        self._heaped_ms.clear()
        for key, at_ms in self._at_ms.items():
            self._push(key, at_ms)

    def next_ms(self) -> int | None:
        """When the caller should come again; None when nothing is set."""
        heap = self._heap
        while heap and self._is_stale(*heap[0]):
            self._settle(*heappop(heap))
        return heap[0][0] if heap else None

    def pop_due(self, now_ms: int) -> Key | None:
        """The earliest key whose deadline is at or before `now_ms`, no longer set; None when there is none.

        One at a time, because what the first one does may cancel the second.
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
        """A stale entry has left the heap: put its key where it belongs now, if anywhere."""
        if self._heaped_ms.get(key) != time_ms:
            return  # an earlier entry of this key is in the heap, and counts
        del self._heaped_ms[key]
        at_ms = self._at_ms.get(key)
        if at_ms is not None:
            self._push(key, at_ms)

    def _push(self, key: Key, at_ms: int) -> None:
        self._serial += 1
        self._heaped_ms[key] = at_ms
        heappush(self._heap, (at_ms, self._serial, key))
