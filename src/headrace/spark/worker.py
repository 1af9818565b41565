"""What tasks do in the Python process that Spark runs them in, one after the other."""

import ctypes
import gc
from contextlib import suppress
from itertools import count
from typing import Final

from pyspark import TaskContext

LOADING_TASKS: Final = 2
"""The first task of a process loads more modules while it reads; the second one has them all."""
KEPT_BYTES: Final = 32 << 20
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's `mallopt`."""
_tasks = count()


def settle() -> None:
    """Leave all that is loaded out of further searches for cycles, and keep memory that is free again.

    Spark uses the process again, and after each task it searches everything: the objects of some hundred modules, which
    are never freed, take 25 ms and more, longer than a small task does. The memory of a batch is that of the next one;
    given back to the kernel and taken again, it costs a seventh of a large task in page faults.
    """
    if TaskContext.get() is None:
        return
    number = next(_tasks)
    if number == 0:
        _keep_memory()
    if number < LOADING_TASKS:
        gc.freeze()


def _keep_memory() -> None:
    with suppress(AttributeError, OSError):  # another C library than glibc
        mallopt = ctypes.CDLL(None).mallopt
        for parameter in (_TRIM_THRESHOLD, _MMAP_THRESHOLD):
            mallopt(parameter, KEPT_BYTES)
