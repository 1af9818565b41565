"""Threads for the steps of authentications that take milliseconds: hashes of passwords, signatures of tokens.

A step waits for its turn outside the threads' own queue: when its connection is closed and its task is cancelled, the
step is gone at once. Nothing is read from a connection meanwhile, so whether its client has left is asked when it is
its turn. So clients that come, ask for work and leave cannot make those wait that stay, nor fill the memory.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from headrace.limits import AUTHENTICATING_AT_ONCE_MAX

T = TypeVar("T")


HasLeft = Callable[[], bool]
"""Whether the client of a step has closed its connection."""


class ClientLeft(Exception):
    """A step was not run, since its client has left."""


class AuthenticationThreads:
    """A few threads."""

    def __init__(self, name: str) -> None:
        self._threads = ThreadPoolExecutor(AUTHENTICATING_AT_ONCE_MAX, name)
        self._turns = asyncio.Semaphore(AUTHENTICATING_AT_ONCE_MAX)

    async def run(self, work: Callable[[], T], has_left: HasLeft) -> T:
        """The result of `work`, which runs on a thread when it is its turn. Raises `ClientLeft`."""
        async with self._turns:
            if has_left():
                raise ClientLeft
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def close(self) -> None:
        """Drops what has not begun."""
        self._threads.shutdown(wait=False, cancel_futures=True)
