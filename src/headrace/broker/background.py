"""Background work: blocking calls (fsync above all) run on threads, everything else in tasks."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor

from headrace.log.flusher import Background


def background_on(loop: asyncio.AbstractEventLoop, executor: Executor | None = None) -> Background:
    """Runs `work` on the executor (the loop's own when None), then `done` on the event loop."""

    def run(work: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        def finish(running: asyncio.Future[None]) -> None:
            error = running.exception()
            done(error if isinstance(error, Exception) else None)

        loop.run_in_executor(executor, work).add_done_callback(finish)

    return run


def spawn_in(tasks: asyncio.TaskGroup, work: Coroutine[object, object, None]) -> bool:
    """Runs `work` in the task group; it must not raise. Returns False, and starts nothing, when the group is ending."""
    try:
        tasks.create_task(work)
    except RuntimeError:  # the task group is ending
        work.close()
        return False
    return True
