"""Iterates over long work in slices, so that the event loop serves other requests in between.

Slices are counted, not timed: a simulation that runs twice yields at the same elements.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Generator, Hashable, Iterable
from typing import TypeVar

from headrace.limits import ELEMENTS_PER_SLICE

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


async def in_slices(elements: Iterable[T], size: int = ELEMENTS_PER_SLICE) -> AsyncIterator[T]:
    """Yields the elements, and gives the event loop a turn after every `size` of them."""
    for number, each in enumerate(elements, 1):
        yield each
        if number % size == 0:
            await asyncio.sleep(0)


def finished(work: Generator[None, None, R]) -> R:
    """Does all slices of the work at once; returns its result."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: R = done.value
            return result


async def in_turns(work: Generator[None, None, R]) -> R:
    """Does the work, and gives the event loop a turn after each slice; returns its result."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: R = done.value
            return result
        await asyncio.sleep(0)


class Turns:
    """Counts the elements of several loops, nested or one after the other, and gives the event loop a turn after every
    `size` of them."""

    __slots__ = ("_left", "_size")

    def __init__(self, size: int = ELEMENTS_PER_SLICE) -> None:
        self._size = self._left = size

    async def count(self, elements: int = 1) -> None:
        """Call it after so many elements."""
        self._left -= elements
        if self._left <= 0:
            self._left = self._size
            await asyncio.sleep(0)


async def counted(keys: Iterable[K]) -> Counter[K]:
    """How often each key occurs, counted in slices."""
    counts: Counter[K] = Counter()
    async for key in in_slices(keys):
        counts[key] += 1
    return counts
