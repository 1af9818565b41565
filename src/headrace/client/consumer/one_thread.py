"""One thread at a time uses a consumer: a call of a second one is an error that names both.

Two threads in one consumer would each take records that the other commits. Apache Kafka's consumer refuses it, too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from headrace.client.core.failures import ConcurrentUse

P = ParamSpec("P")
R = TypeVar("R")


class CallingThread:
    """The thread that is in a call, with the call; a callback may call again from inside.

    A lock that knows its thread: an interrupt between its acquisition and the call leaves it to this thread, which can
    still close the consumer.
    """

    __slots__ = ("_call", "_lock", "_thread")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._thread = self._call = ""

    def enter(self, call: str) -> None:
        """Begin a call, maybe inside another one. Raises ConcurrentUse if another thread is in one."""
        if not self._lock.acquire(blocking=False):
            raise ConcurrentUse(
                f"thread {threading.current_thread().name!r} called {call} while thread {self._thread!r} is in "
                f"{self._call}: one thread uses a consumer. Give each thread a consumer of its own, which share the "
                "partitions in one group, or pass records on through a queue"
            )
        self._thread, self._call = threading.current_thread().name, call

    def leave(self) -> None:
        """End the call that `enter` began."""
        self._lock.release()


class Used(Protocol):
    """A class whose calls are of one thread."""

    @property
    def usage(self) -> CallingThread:
        """The thread that is in a call."""

    def check_process(self) -> None:
        """Raises ClientForked in a fork, where nobody would end the call of a thread that was in one."""


U = TypeVar("U", bound=Used)


def of_one_thread(method: Callable[Concatenate[U, P], R]) -> Callable[Concatenate[U, P], R]:
    """Refuses the call while another thread is in one, and in a fork of the process."""
    name = method.__name__.strip("_")

    @wraps(method)
    def guarded(self: U, /, *arguments: P.args, **named: P.kwargs) -> R:
        self.check_process()
        self.usage.enter(name)
        try:
            return method(self, *arguments, **named)
        finally:
            self.usage.leave()

    return guarded
