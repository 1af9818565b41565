"""Completes futures of event loops from another thread, with one wake-up of a loop for all that complete together."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from sys import modules
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio


def running_loop() -> asyncio.AbstractEventLoop:
    """The loop that runs the calling coroutine. Where one runs, asyncio is imported; threads do not pay for it."""
    loop: asyncio.AbstractEventLoop = modules["asyncio"].get_running_loop()
    return loop


def complete(waiters: Iterable[asyncio.Future[None]]) -> None:
    """Complete these futures on their loops. Any thread may call. A loop that was closed has nobody who waits."""
    by_loop: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for waiter in waiters:
        by_loop.setdefault(waiter.get_loop(), []).append(waiter)
    for loop, those in by_loop.items():
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(set_done, those)


def set_done(waiters: Iterable[asyncio.Future[None]]) -> None:
    """Complete these futures; the loop's thread calls."""
    for waiter in waiters:
        if not waiter.done():  # its task may be cancelled
            waiter.set_result(None)
