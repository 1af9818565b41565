"""Rare garbage collections while a great deal is built that stays.

The collector of cycles looks at young objects after every few hundred allocations, and at all objects after the old
ones have grown by a quarter. Where tens of thousands of objects are built that live on, it finds nothing, for a quarter
of the time that building them takes.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

ALLOCATIONS = 200_000
"""Between two collections: some 20 MB of small objects."""


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collects young objects after `ALLOCATIONS` allocations. Other tasks run meanwhile, so it is not switched off."""
    before = gc.get_threshold()
    gc.set_threshold(max(ALLOCATIONS, before[0]) if before[0] else 0, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
