"""A few threads that clients share, in turns of their owners.

    submit(acme) ─▶ line of acme ─┐
    submit(beta) ─▶ line of beta ─┴─ one of each in turn ─▶ threads

A kilobyte of a client may take a thread for a second. In one line for all, an instance that keeps to its rate could
make the others wait for minutes. Here what an owner submits waits behind the own, and behind one of each other one.
"""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from threading import Lock
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_Work = tuple["Future[Any]", Callable[..., Any], tuple[Any, ...], dict[str, Any]]


class FairThreads:
    """The threads. What is submitted is an item in its owner's line, and a turn of the threads for any of the items."""

    def __init__(self, threads: int, name: str) -> None:
        self._threads = ThreadPoolExecutor(threads, name)
        self._lines: dict[str, deque[_Work]] = {}
        self._order: deque[str] = deque()
        self._lock = Lock()

    def of(self, owner: str) -> Executor:
        """An executor for one owner: the prefix of an instance's names; empty for clients of the cluster."""
        return _Line(self, owner)

    def add(self, owner: str, work: _Work) -> None:
        """Puts work at the end of its owner's line."""
        with self._lock:
            line = self._lines.get(owner)
            if line is None:
                line = self._lines[owner] = deque()
                self._order.append(owner)
            line.append(work)
        self._threads.submit(self._take_one)

    def _take_one(self) -> None:
        with self._lock:
            owner = self._order.popleft()
            line = self._lines[owner]
            future, function, args, kwargs = line.popleft()
            if line:
                self._order.append(owner)
            else:
                del self._lines[owner]
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(function(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)


class _Line(Executor):
    """What one owner submits."""

    def __init__(self, threads: FairThreads, owner: str) -> None:
        self._threads, self._owner = threads, owner

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        future: Future[T] = Future()
        self._threads.add(self._owner, (future, fn, args, kwargs))
        return future
