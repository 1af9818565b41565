"""Tasks that wait until the producer's buffer has room for their record, in the order in which they came.

The sender's thread wakes as many as have room, from the first on, and each of their loops once. So a hundred thousand
tasks that wait cost no more than their records.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple

from headrace.client.core.loops import complete
from headrace.client.producer.accumulator import Accumulator
from headrace.client.producer.sender import Sender


class Waiter(NamedTuple):
    """A task that waits for so many bytes."""

    size: int
    future: asyncio.Future[None]


class Room:
    """The tasks that wait for room in one producer's buffer."""

    def __init__(self, sender: Sender, accumulator: Accumulator, limit_bytes: int) -> None:
        self._sender, self._accumulator, self._limit_bytes = sender, accumulator, limit_bytes
        self.waiters: deque[Waiter] = deque()
        """Not empty: a new task has to wait behind them."""
        self._promised_bytes = 0  # to tasks that were woken and have not gone on yet
        sender.on_room = self._freed

    async def wait(self, size: int, timeout_s: float, *, again: bool) -> None:
        """Wait for `size` bytes of room; with `again` before the others. Raises TimeoutError.

        The task has to try afterwards: there may be none any more. Meanwhile batches do not linger.
        """
        waiter = Waiter(size, asyncio.get_running_loop().create_future())
        with self._sender.lock:
            if again:
                self.waiters.appendleft(waiter)
            else:
                self.waiters.append(waiter)
            self._sender.flushing += 1
            self._freed()
        self._sender.wake()
        try:
            async with asyncio.timeout(timeout_s):
                await waiter.future
        except BaseException:
            with self._sender.lock:
                self._sender.flushing -= 1
                self._give_back(waiter)
                self._freed()  # for those behind: no batch need end that would wake them
            raise
        with self._sender.lock:
            self._sender.flushing -= 1
            self._give_back(waiter)

    def pass_on(self) -> None:
        """Wake the next, because a task that was woken takes no room."""
        with self._sender.lock:
            self._freed()

    def release(self) -> None:
        """Wake everybody, because the producer is closed."""
        with self._sender.lock:
            waiters = [*self.waiters]
            self.waiters.clear()
            self._promised_bytes += sum(waiter.size for waiter in waiters)
        complete(waiter.future for waiter in waiters)

    def _give_back(self, waiter: Waiter) -> None:
        """The task goes on: it takes its room now, or was cancelled."""
        is_woken = waiter.future.done() and not waiter.future.cancelled()
        if not is_woken and waiter in self.waiters:
            self.waiters.remove(waiter)
            return
        self._promised_bytes -= waiter.size
        if not is_woken:
            self._freed()

    def _freed(self) -> None:
        """Wake the first tasks that have room now (with the sender's lock held)."""
        woken: list[asyncio.Future[None]] = []
        while self.waiters:
            taken = self._accumulator.bytes_held + self._promised_bytes
            if taken and taken + self.waiters[0].size > self._limit_bytes:
                break
            waiter = self.waiters.popleft()
            self._promised_bytes += waiter.size
            woken.append(waiter.future)
        if woken:
            complete(woken)
