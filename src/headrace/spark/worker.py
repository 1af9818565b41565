"""What a task does once in the Python process that Spark runs it in."""

import gc
from functools import cache

from pyspark import TaskContext


@cache
def settle() -> None:
    """Leave all that is loaded out of further searches for cycles.

    Spark uses the process again, and after each task it searches everything: the objects of some hundred modules, which
    are never freed, take 25 ms, longer than a small task does.
    """
    if TaskContext.get() is not None:
        gc.freeze()
