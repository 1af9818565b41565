"""Rare garbage collections while a great deal is built that stays.

The collector of cycles looks at young objects after every few hundred allocations, and at all objects after the old
ones have grown by a quarter. Where tens of thousands of objects are built that live on, it finds nothing, for a quarter
of the time that building them takes.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

ALLOCATIONS = 200_000
"""Between two collections: some 20 MB of small objects."""


_lock = Lock()
_before: list[tuple[int, int, int]] = []
"""The thresholds to return to, once for each that is within: several brokers of one process may be, on threads."""


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collects young objects after `ALLOCATIONS` allocations. Other tasks run meanwhile, so it is not switched off."""
    with _lock:
        before = _before[0] if _before else gc.get_threshold()
        _before.append(before)
        gc.set_threshold(max(ALLOCATIONS, before[0]) if before[0] else 0, *before[1:])
    try:
        yield
    finally:
        with _lock:
            if len(_before) == 1:
                gc.set_threshold(*before)
            _before.pop()
