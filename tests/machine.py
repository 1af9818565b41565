"""The speed of this machine, for bounds on processor time.

Processor time is what one thread computes: other processes do not add to it, but a slower processor does, and so do
caches and a core that it shares.
"""

import time
from functools import cache

_TRIES = 5
_NUMBERS = 100_000
_REFERENCE_SECONDS = 0.065
"""What `_compute` takes on the machine on which the bounds were measured."""


def processor_seconds(at_reference: float) -> float:
    """What this machine may take where the reference machine may take `at_reference`: never less."""
    return at_reference * max(1.0, _slowness())


@cache
def _slowness() -> float:
    return max(_seconds_to_compute() for _ in range(_TRIES)) / _REFERENCE_SECONDS


def _seconds_to_compute() -> float:
    began = time.thread_time()
    _compute()
    return time.thread_time() - began


def _compute() -> int:
    """Something like the work of a handler: names are made, put into a dictionary and found again."""
    names = {f"topic-{number}": number for number in range(_NUMBERS)}
    return sum(names[f"topic-{number}"] for number in range(_NUMBERS))
