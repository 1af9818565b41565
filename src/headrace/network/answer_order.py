# cython: language_level=3, annotation_typing=False, binding=False
"""The order of a connection's answers: that of its requests.

A request that must wait (a long poll, a join, acks=all) keeps its place as a `Slot`. The answers behind it wait for it.
Compiled with the connection; it also runs uncompiled.
"""

from collections import deque
from collections.abc import Callable

from headrace.network.outbound import Chunks
from headrace.network.request_times import Timed

_NO_SLOTS: "deque[Slot]" = deque()
"""Of everybody for whom nothing waits: an empty one of their own would take 0.6 kB of each idle connection."""


class Slot:
    """The place of one request in the order of a connection's responses."""

    __slots__ = ("abandon", "chunks", "memory", "request", "size")

    def __init__(self) -> None:
        self.chunks: Chunks | None = None
        self.request: Timed | None = None  # set with the chunks
        self.size = 0  # of the chunks, in bytes
        self.memory = 0  # the same, without file ranges
        self.abandon: Callable[[], None] | None = None  # called if the connection closes before the response exists


class AnswerOrder:
    """The places of one connection's requests whose answers are not queued to be sent."""

    __slots__ = ("slots", "waiting_bytes", "waiting_memory")

    def __init__(self) -> None:
        self.slots = _NO_SLOTS
        self.waiting_bytes = 0
        """Of responses that wait for an earlier one."""
        self.waiting_memory = 0
        """The same, without file ranges."""

    def place(self) -> Slot:
        """Reserves the next place."""
        slot = Slot()
        if self.slots is _NO_SLOTS:
            self.slots = deque()
        self.slots.append(slot)
        return slot

    def fill(self, slot: Slot, chunks: Chunks, request: Timed | None) -> None:
        """Gives a request its answer; without chunks it has none (acks=0)."""
        slot.chunks, slot.request, slot.abandon = chunks, request, None
        slot.memory = sum([len(chunk) for chunk in chunks if isinstance(chunk, bytes)])
        slot.size = slot.memory + sum([chunk.size for chunk in chunks if not isinstance(chunk, bytes)])
        self.waiting_bytes += slot.size
        self.waiting_memory += slot.memory

    def take(self) -> Slot | None:
        """Takes out the first place, if it has its answer."""
        slots = self.slots
        if not slots or slots[0].chunks is None:
            return None
        slot = slots.popleft()
        self.waiting_bytes -= slot.size
        self.waiting_memory -= slot.memory
        if not slots:
            self.slots = _NO_SLOTS
        return slot

    def abandon(self) -> None:
        """Tells who works on the answers that nobody waits for them."""
        for slot in self.slots:
            if slot.abandon is not None:
                slot.abandon()
        self.slots = _NO_SLOTS
