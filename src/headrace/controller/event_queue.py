"""An event queue: one task runs coroutines one at a time, in the order in which they were queued."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from headrace.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

T = TypeVar("T")
Work = Callable[[], Awaitable[object]]


class Closed(KafkaError):
    """The queue is closed. Its code is NOT_CONTROLLER, so that clients look for another controller."""

    code = ErrorCode.NOT_CONTROLLER


class EventQueue:
    """Serialises coroutines. `close` cancels the running one and refuses the waiting ones."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._waiting: asyncio.Queue[tuple[Work, asyncio.Future[object] | None]] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts the task."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name=self._name)

    async def close(self) -> None:
        """Ends the task. Waiting callers of `do` get `Closed`."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        while not self._waiting.empty():
            _, done = self._waiting.get_nowait()
            self._refuse(done)

    def post(self, work: Work) -> None:
        """Queues `work`. No caller waits for it, so a failure is logged."""
        self._waiting.put_nowait((work, None))

    async def do(self, work: Callable[[], Awaitable[T]]) -> T:
        """Queues `work` and waits for it. Returns or raises what `work` does. Raises `Closed`."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        async def in_turn() -> None:
            try:
                result = await work()
            except Exception as error:
                if not done.done():
                    done.set_exception(error)
            else:
                if not done.done():
                    done.set_result(result)

        if self._task is None:
            raise Closed(f"the {self._name} is stopping")
        self._waiting.put_nowait((in_turn, done))  # type: ignore[arg-type]
        return await done

    async def _run(self) -> None:
        while True:
            work, done = await self._waiting.get()
            try:
                await work()
            except Exception:
                log.exception("%s: an event failed", self._name)
            finally:
                self._refuse(done)

    def _refuse(self, done: "asyncio.Future[object] | None") -> None:
        if done is not None and not done.done():
            done.set_exception(Closed(f"the {self._name} is stopping"))
