"""Runs the calls of a threaded client on threads of its own, and completes futures on the event loop.

    task ── run(call) ─▶ queue ─▶ thread ── call() ─▶ call_soon_threadsafe ─▶ future

With one thread the calls run in the order in which they were made. A cancelled task waits no longer: its call does not
begin or, if it runs, ends without anybody to tell. A thread that needs something of the loop (`ask_loop`) runs other
calls until it has it, so that a rebalance listener can commit.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial, update_wrapper
from queue import SimpleQueue
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, Protocol, Self, TypeVar, overload

from headrace.client.core.failures import ClientClosed
from headrace.client.core.loops import complete

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Call(Generic[T]):
    """One call, from the task that makes it to the thread that runs it."""

    __slots__ = ("_error", "_function", "_result", "future", "may_nest")

    def __init__(self, function: Callable[[], T], future: asyncio.Future[T], *, may_nest: bool) -> None:
        self.future: asyncio.Future[T] = future
        self.may_nest: bool = may_nest
        self._function = function
        self._result: T | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """Run it, unless its task was cancelled; the thread calls."""
        if self.future.cancelled():
            return
        try:
            self._result = self._function()
        except BaseException as error:  # of the task's, which it is raised in
            self._error = error

    def tell(self) -> None:
        """Complete the future; the thread calls after `run`."""
        with suppress(RuntimeError):  # the loop was closed: nobody waits
            self.future.get_loop().call_soon_threadsafe(self._complete)

    def _complete(self) -> None:
        if self.future.done():
            return
        if self._error is not None:
            self.future.set_exception(self._error)
        else:
            self.future.set_result(self._result)  # type: ignore[arg-type]  # what the function returned


class Calls:
    """Threads that run calls, started when there are any. Tasks of every loop may call."""

    def __init__(self, owner: str, threads_max: int = 1) -> None:
        """`owner` is what the client is called in errors and in the threads' names."""
        self._owner = owner
        self._name = f"headrace-aio-{owner}".replace(" ", "-")
        self._is_ended = False
        self._threads_max = threads_max
        self._threads: list[threading.Thread] = []
        self._queue: SimpleQueue[Call[Any] | _Returned | _End] = SimpleQueue()
        self._postponed: deque[Call[Any]] = deque()
        self._waiting = 0
        self._lock = threading.Lock()
        self.callback: asyncio.Task[None] | None = None
        """The callback that runs on a loop while the thread waits for it."""

    async def run(self, function: Callable[[], T]) -> T:
        """What the call returns or raises."""
        return await self.submit(function)

    @property
    def is_idle(self) -> bool:
        """Whether no call runs or waits."""
        return not self._waiting

    def submit(self, function: Callable[[], T], *, may_nest: bool = True) -> asyncio.Future[T]:
        """Queue a call; a task on a running loop calls. `may_nest`: it can run while a call waits for a callback."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        with self._lock:
            if self._is_ended:
                raise ClientClosed(f"the {self._owner} is closed")
            self._waiting += 1
            if self._waiting > len(self._threads) < self._threads_max:
                thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._threads.append(thread)
                thread.start()
        self._queue.put(Call(function, future, may_nest=may_nest))
        return future

    def ask_loop(self, loop: asyncio.AbstractEventLoop, make: Callable[[], Awaitable[None] | None]) -> None:
        """Run `make`, and what it returns if that can be awaited, on the loop; the one thread runs calls meanwhile.

        Raises what they raise.
        """
        loop.call_soon_threadsafe(self._begin, make)
        while not isinstance(call := self._queue.get(), _Returned):
            if isinstance(call, _End):
                self._queue.put(call)  # for the thread's own loop
                raise RuntimeError("the client was closed while a callback ran")
            if call.may_nest:
                self._do(call)
            else:
                self._postponed.append(call)
        if call.error is not None:
            raise call.error

    def _begin(self, make: Callable[[], Awaitable[None] | None]) -> None:
        async def run() -> None:
            asked = make()
            if asked is not None:
                await asked

        self.callback = asyncio.get_running_loop().create_task(run(), name=f"{self._name}-callback")
        self.callback.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.callback = None
        cancelled = RuntimeError("a callback was cancelled before its end")
        self._queue.put(_Returned(cancelled if task.cancelled() else task.exception()))

    async def end(self) -> None:
        """End the threads, after the calls that were made. A later call raises ClientClosed."""
        with self._lock:
            threads, self._threads = self._threads, []
            self._is_ended = True
        ends = [_End(asyncio.get_running_loop().create_future()) for _ in threads]
        for end in ends:
            self._queue.put(end)
        for end in ends:
            await end.future
        for thread in threads:
            thread.join()  # it has nothing left to do

    def _run(self) -> None:
        while not isinstance(call := self._next(), _End):
            assert isinstance(call, Call), "a callback returned to nobody"
            self._do(call)
        complete([call.future])

    def _next(self) -> Call[Any] | _Returned | _End:
        return self._postponed.popleft() if self._postponed else self._queue.get()

    def _do(self, call: Call[Any]) -> None:
        call.run()
        with self._lock:
            self._waiting -= 1  # before the task hears of it: then it finds the thread idle
        call.tell()


class _Returned(NamedTuple):
    """A callback has ended on the loop."""

    error: BaseException | None


class _End(NamedTuple):
    """The end of a thread."""

    future: asyncio.Future[None]


class Face(Protocol):
    """A client for asyncio over a threaded one."""

    @property
    def core(self) -> Any:
        """The threaded client."""

    async def call_core(self, function: Callable[[], T], *, moves: bool) -> T:
        """Run a call of the threaded client. `moves`: it may change what is read next."""


class Awaited(Generic[P, R]):
    """A method of the threaded client as a coroutine with the same parameters, result and errors."""

    def __init__(self, method: Callable[Concatenate[Any, P], R], *, moves: bool = False) -> None:
        self._method = method
        self._moves = moves
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, face: None, owner: type) -> Self: ...
    @overload
    def __get__(self, face: Face, owner: type) -> Callable[P, Coroutine[Any, Any, R]]: ...
    def __get__(self, face: Face | None, owner: type) -> Self | Callable[P, Coroutine[Any, Any, R]]:
        if face is None:
            return self

        async def call(*arguments: P.args, **named: P.kwargs) -> R:
            return await face.call_core(partial(self._method, face.core, *arguments, **named), moves=self._moves)

        return update_wrapper(call, self._method)
