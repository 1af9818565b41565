"""What the consumers for asyncio have in common: one loop, one thread, one task that reads at a time, and an end."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, Protocol, Self, TypeVar

from headrace.client.aio.calls import Calls
from headrace.client.core.failures import ClientClosed, ConcurrentUse
from headrace.client.core.timing import Deadline

T = TypeVar("T")

_SLICE_MS = 250
"""The longest that one poll of the thread takes: a poll that waits for the group does not see that others call."""
_CLOSE_S = 5.0
"""How long leaving the group may take before the connections are cut."""


class ReaderCore(Protocol):
    """A threaded consumer."""

    @property
    def is_forked(self) -> bool:
        """Whether this process is a fork of the one that made the consumer."""

    def check_process(self) -> None:
        """Raises ClientForked in a fork."""

    def wakeup(self) -> None:
        """End the wait of a poll. Any thread may call."""

    def interrupt(self) -> None:
        """Fail what waits for a broker. Any thread may call."""

    def close(self) -> None:
        """Leave the group, and close the connections."""


class Read(Generic[T]):
    """One poll, which can be taken back when its task was cancelled."""

    def __init__(self, poll: Callable[[], T], put_back: Callable[[T], None]) -> None:
        """`put_back` gives what was found to the next poll."""
        self._poll, self._put_back = poll, put_back
        self._found: T | None = None
        self.is_abandoned: bool = False
        """Set by the task that was cancelled, which then has the thread call `undo`."""

    def run(self) -> T:
        """Poll; the thread calls."""
        found = self._found = self._poll()
        if self.is_abandoned:
            self.undo()
        return found

    def undo(self) -> None:
        """Give back what was found, once; the thread calls."""
        found, self._found = self._found, None
        if found:
            self._put_back(found)


class Reader:
    """A consumer for asyncio over a threaded one, which only its own thread calls."""

    def __init__(self, core: ReaderCore, owner: str) -> None:
        self._reader_core = core
        self._owner = owner
        self._calls = Calls(owner)
        self._is_reading = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._check()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __del__(self) -> None:
        if self.__dict__.get("_loop") is not None and self._closing is None:
            text = f"{self!r} was not closed: use `async with`, or await close()"
            warnings.warn(text, ResourceWarning, stacklevel=2, source=self)

    # -- calls

    async def call_core(self, function: Callable[[], T], *, moves: bool) -> T:
        """Run a call of the threaded consumer after those that were made before; it ends the wait of a poll."""
        self._check()
        self._before_call(moves=moves)
        future = self._calls.submit(function)
        if self._is_reading.locked():
            self._reader_core.wakeup()
        return await future

    def _before_call(self, *, moves: bool) -> None:
        """Submit what the thread has to know before."""

    async def _read(self, make: Callable[[float], Read[T]], deadline: Deadline | None) -> T:
        """Poll in slices until something is found or the deadline (None: never) passes."""
        while True:
            self._check()
            self._before_call(moves=False)
            read = make(_SLICE_MS if deadline is None else min(_SLICE_MS, deadline.remaining_s * 1000))
            try:
                found = await self._calls.submit(read.run, may_nest=False)
            except asyncio.CancelledError:
                read.is_abandoned = True
                with suppress(ClientClosed):
                    self._calls.submit(read.undo, may_nest=False)
                self._reader_core.wakeup()
                raise
            if found or (deadline is not None and deadline.expired):
                return found

    def _ask_loop(self, make: Callable[[], Any]) -> None:
        """Run a callback on the loop while the thread waits for it; the thread calls."""
        assert self._loop is not None, "who reads has a loop"
        self._calls.ask_loop(self._loop, make)

    def _check(self) -> None:
        """Refuse a call in a fork, after close, and on another loop."""
        self._reader_core.check_process()
        if self._closing is not None and self._calls.callback is None:  # what a listener calls may still be done
            raise ClientClosed(f"the {self._owner} is closed")
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise ConcurrentUse(
                f"this {self._owner} is used on another event loop: give each loop (each asyncio.run) a consumer of "
                "its own"
            )

    def _check_task(self) -> None:
        if self._calls.callback is not None and self._calls.callback is asyncio.current_task():
            raise ConcurrentUse("a listener cannot read: the poll that called it waits for its end")

    # -- the end

    async def close(self) -> None:
        """Leave the group, close the connections, and end the thread; see the threaded consumer.

        A cancelled close goes on without its task. In a fork of the process it does nothing.
        """
        if self._reader_core.is_forked:
            return
        if self._closing is None:
            self._check()
            self._before_call(moves=True)
            self._closing = asyncio.get_running_loop().create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        closing = self._calls.submit(self._reader_core.close)
        self._reader_core.wakeup()
        while not (await asyncio.wait([closing], timeout=_CLOSE_S))[0]:
            if self._calls.callback is None:  # a listener may take its time
                self._reader_core.interrupt()
        await self._calls.end()
        await closing
