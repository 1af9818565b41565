# cython: language_level=3, annotation_typing=False, binding=False
"""The order of a connection's answers: that of its requests.

A request that must wait (a long poll, a join, acks=all) keeps its place as a `Slot`. The answers behind it wait for it.
Compiled with the connection; it also runs uncompiled.
"""

from collections.abc import Callable

try:
    import cython
except ImportError:
    from headrace import uncompiled as cython

from headrace.network.outbound import Chunks
from headrace.network.request_times import Timed


class Waiter:
    """Works on the answer to a request."""

    __slots__ = ()

    def abandon(self) -> None:
        """Gives the work up: the connection has closed."""
        raise NotImplementedError


class Slot:
    """The place of one request in the order of a connection's responses."""

    __slots__ = ("abandon", "chunks", "memory", "next", "request", "size", "waiter")

    def __init__(self) -> None:
        self.chunks: Chunks | None = None
        self.request: Timed | None = None  # set with the chunks
        self.size = 0  # of the chunks, in bytes
        self.memory = 0  # the same, without file ranges
        self.abandon: Callable[[], None] | None = None  # called if the connection closes before the response exists
        self.waiter: Waiter | None = None  # told the same
        self.next: Slot | None = None


class AnswerOrder:
    """The places of one connection's requests whose answers are not queued to be sent."""

    __slots__ = ("_last", "count", "first", "waiting_bytes", "waiting_memory")

    def __init__(self) -> None:
        self.first: Slot | None = None
        self._last: Slot | None = None
        self.count = 0
        """How many places there are."""
        self.waiting_bytes = 0
        """Of responses that wait for an earlier one."""
        self.waiting_memory = 0
        """The same, without file ranges."""

    def place(self) -> Slot:
        """Reserves the next place."""
        slot = Slot.__new__(Slot) if cython.compiled else Slot()  # compiled, all is None or 0 as it is
        if self._last is None:
            self.first = slot
        else:
            self._last.next = slot
        self._last = slot
        self.count += 1
        return slot

    def fill(self, slot: Slot, chunks: Chunks, request: Timed | None) -> None:
        """Gives a request its answer; without chunks it has none (acks=0)."""
        slot.chunks, slot.request, slot.abandon, slot.waiter = chunks, request, None, None
        memory = size = 0
        for chunk in chunks:
            if isinstance(chunk, bytes):
                memory += len(chunk)
            else:
                size += chunk.size
        size += memory
        slot.memory, slot.size = memory, size
        self.waiting_bytes += size
        self.waiting_memory += memory

    def take(self) -> Slot | None:
        """Takes out the first place, if it has its answer."""
        slot = self.first
        if slot is None or slot.chunks is None:
            return None
        self.waiting_bytes -= slot.size
        self.waiting_memory -= slot.memory
        self._take_first()
        return slot

    def take_only(self, slot: Slot) -> bool:
        """Takes out a place without an answer, if there is no other one. Whether it did."""
        if self.count != 1 or self.first is not slot:
            return False
        slot.abandon = slot.waiter = None
        self._take_first()
        return True

    def _take_first(self) -> None:
        slot = self.first
        assert slot is not None
        self.first = slot.next
        slot.next = None
        if self.first is None:
            self._last = None
        self.count -= 1

    def abandon(self) -> None:
        """Abandons the work on all answers: the connection has closed."""
        slot, self.first, self._last, self.count = self.first, None, None, 0
        while slot is not None:
            if slot.waiter is not None:
                slot.waiter.abandon()
            elif slot.abandon is not None:
                slot.abandon()
            slot.abandon = slot.waiter = None
            following, slot.next = slot.next, None
            slot = following
