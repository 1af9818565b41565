"""Rare garbage collections while many objects are built that stay; objects that stay are left out of later ones.

The garbage collector looks at young objects after every few hundred allocations, and at all objects after the old
ones have grown by a quarter. Where tens of thousands of objects are built that live on, it finds nothing, for a quarter
of the time that building them takes.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

ALLOCATIONS = 200_000
"""Between two collections: some 20 MB of small objects."""
ALLOCATIONS_OF_REQUESTS = 50_000
"""While a large request is decoded and applied: one collection of so many objects takes some milliseconds."""

HIDDEN_AFTER = 1_000
"""Logs: they have some 50,000 objects, which a collection looks at in some milliseconds."""


_lock = Lock()
_before = (0, 0, 0)
"""The thresholds to return to."""
_wanted: list[int] = []
"""One for each that is within: several brokers of one process may be, on threads."""


@contextmanager
def rare_collections(allocations: int = ALLOCATIONS) -> Iterator[None]:
    """Collects young objects after so many allocations. Other tasks run meanwhile, so it is not switched off."""
    global _before
    with _lock:
        if not _wanted:
            _before = gc.get_threshold()
        _wanted.append(allocations)
        _set_threshold()
    try:
        yield
    finally:
        with _lock:
            _wanted.remove(allocations)
            _set_threshold()


def _set_threshold() -> None:
    young, *old = _before
    gc.set_threshold(max((young, *_wanted)) if young else 0, *old)


class Lasting:
    """Hides from the collector what a broker keeps for each partition.

    A collection of all objects stops the process for as long as it looks at them: 200 ms with 10,000 partitions. A
    deleted partition must not be part of a circle of references: nobody would find it.
    """

    def __init__(self) -> None:
        self._made = 0

    def made(self, count: int = 1) -> None:
        """Counts logs, or what a broker keeps for partitions. All objects of the process are hidden after each
        `HIDDEN_AFTER`: in a process of few partitions, such as that of a test, none is."""
        self._made += count
        if self._made >= HIDDEN_AFTER:
            self._made = 0
            if not _wanted:  # else there are too many young objects
                gc.collect(1)  # young garbage would stay for ever
            gc.freeze()
