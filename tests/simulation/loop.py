"""asyncio's event loop as the code inside a simulated process sees it: virtual time, no sockets, no threads.

Work for an executor is done in one go at a later moment, and what follows at one later still: between the two the
process, or the power, may be gone. An executor with a single thread keeps the order of its work.
"""

import asyncio
import math
import traceback
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextvars import Context
from typing import TYPE_CHECKING, Any, TypeVar

from tests.simulation.scheduler import Handle, Life

if TYPE_CHECKING:
    from tests.simulation.scheduler import Process
    from tests.simulation.sockets import Sockets

T = TypeVar("T")

_TASKS_CHECKED = 256


class SimLoop(asyncio.AbstractEventLoop):
    """The event loop of one process."""

    def __init__(self, process: "Process") -> None:
        self._process = process
        self._scheduler = process.scheduler
        self._executors_busy_until: dict[int, int] = {}
        self._keep: dict[int, Executor] = {}
        self._tasks_made = 0
        self.slow_disk_us = 0
        """Added to the time of each piece of work: a disk that is busy."""

    # Callbacks

    def time(self) -> float:
        return self._scheduler.now_us / 1e6

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Handle:  # type: ignore[override]
        handle = Handle(self._process, callback, args, context)
        if self._process.life is not Life.DEAD or self._scheduler.is_over:
            self._process.ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        return self._scheduler.add_timer(Handle(self._process, callback, args, context, math.ceil(when * 1e6)))

    # Sockets

    def add_reader(self, fd: int, callback: Callable[[], object]) -> None:  # type: ignore[override]
        self._sockets.add_reader(fd, callback)

    def remove_reader(self, fd: int) -> bool:  # type: ignore[override]
        return self._sockets.remove_reader(fd)

    def add_writer(self, fd: int, callback: Callable[[], object]) -> None:  # type: ignore[override]
        self._sockets.add_writer(fd, callback)

    def remove_writer(self, fd: int) -> bool:  # type: ignore[override]
        return self._sockets.remove_writer(fd)

    @property
    def _sockets(self) -> "Sockets":
        assert self._process.sockets is not None
        return self._process.sockets

    # Futures and tasks

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> "asyncio.Task[T]":
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        tasks = self._process.tasks
        tasks.append(task)  # kept, so that what a crash cut short is not collected, and its `finally` run, at random
        self._tasks_made += 1
        if self._tasks_made % _TASKS_CHECKED == 0:
            tasks[:] = [each for each in tasks if not each.done() or getattr(each, "_log_traceback", False)]
        return task

    def get_task_factory(self) -> None:
        return None

    # Threads

    def run_in_executor(self, executor: Executor | None, func: Callable[..., T], *args: Any) -> "asyncio.Future[T]":  # type: ignore[override]
        future: asyncio.Future[T] = self.create_future()
        process, chance = self._process, self._process.random
        delay_us = 20 + int(chance.expovariate(1 / 300)) + (chance.randrange(100_000) if chance.random() < 0.01 else 0)
        start_us = self._scheduler.now_us + delay_us + self.slow_disk_us
        if executor is not None and getattr(executor, "_max_workers", 0) == 1:
            start_us = max(start_us, self._executors_busy_until.get(id(executor), 0) + 1)
            self._executors_busy_until[id(executor)] = start_us
            self._keep[id(executor)] = executor  # or another could get its id
        self._scheduler.add_timer(Handle(process, self._work, (future, func, args), None, start_us))
        return future

    def _work(self, future: "asyncio.Future[T]", func: Callable[..., T], args: tuple[Any, ...]) -> None:
        result: T | None = None
        failed: BaseException | None = None
        asyncio._set_running_loop(None)  # as on a thread
        try:
            result = func(*args)
        except BaseException as error:
            failed = error
        finally:
            asyncio._set_running_loop(self)
        after_us = 10 + int(self._process.random.expovariate(1 / 100))
        self._process.call_in(after_us, self._worked, future, result, failed)

    @staticmethod
    def _worked(future: "asyncio.Future[T]", result: T, failed: BaseException | None) -> None:
        if future.cancelled():
            return
        if failed is None:
            future.set_result(result)
        else:
            future.set_exception(failed)

    async def shutdown_default_executor(self) -> None:
        pass

    async def shutdown_asyncgens(self) -> None:
        pass

    # State

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None:
        pass

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """What nobody caught is a failure of the run, unless the process is dead."""
        error = context.get("exception")
        trace = "".join(traceback.format_exception(error)) if error is not None else ""
        self._scheduler.fail(self._process, f"{context.get('message')}: {error!r}\n{trace}".rstrip())

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)
