"""Tests in virtual time: a coroutine function runs on the simulator's event loop, whose clock jumps to the next timer.

@in_virtual_time
async def test_a_wait_ends_at_its_deadline() -> None:
    await asyncio.sleep(3600)  # takes no time
"""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import ParamSpec

from tests.simulation.scheduler import Scheduler

P = ParamSpec("P")

HOURS_MAX = 24


def in_virtual_time(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Runs a test in a simulated process; fails when it waits for what never comes."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        scheduler = Scheduler(test.__name__)
        process = scheduler.process("test")

        async def body() -> None:
            await test(*args, **kwargs)

        begun: list[asyncio.Task[None]] = []
        process.call(lambda: begun.append(process.loop.create_task(body())))
        try:
            has_ended = scheduler.run(lambda: bool(begun) and begun[0].done(), HOURS_MAX * 3_600_000_000)
            assert has_ended, f"the test waits for what has not come within {HOURS_MAX} hours of virtual time"
            begun[0].result()
            assert not scheduler.failures, "\n".join(scheduler.failures)
        finally:
            scheduler.dispose()

    return run
