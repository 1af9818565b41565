"""A queue of the least loaded first, with the order of `java.util.PriorityQueue` among equal loads.

Kafka's task assignor takes the first of equally loaded processes, so its result depends on how its queue orders them.
`heapq` orders them otherwise, hence the binary heap here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class LoadQueue(Generic[T]):
    """A binary heap by `load_of`. An element's load may change only while it is not in the queue."""

    __slots__ = ("_heap", "_load_of")

    def __init__(self, elements: Iterable[T], load_of: Callable[[T], float]) -> None:
        self._load_of = load_of
        self._heap: list[tuple[float, T]] = []
        for each in elements:
            self.add(each)

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, element: T) -> None:
        """Adds an element behind those of the same load on its way up."""
        heap, load = self._heap, self._load_of(element)
        position = len(heap)
        heap.append((load, element))
        while position > 0:
            parent = (position - 1) >> 1
            if load >= heap[parent][0]:
                break
            heap[position] = heap[parent]
            position = parent
        heap[position] = (load, element)

    def take(self) -> T:
        """Removes and returns the least loaded element. Raises `IndexError` on an empty queue."""
        heap = self._heap
        moved = heap.pop()
        if not heap:
            return moved[1]
        taken, position, count = heap[0][1], 0, len(heap)
        while (child := 2 * position + 1) < count:
            right = child + 1
            if right < count and heap[child][0] > heap[right][0]:
                child = right
            if moved[0] <= heap[child][0]:
                break
            heap[position] = heap[child]
            position = child
        heap[position] = moved
        return taken
