"""Work that blocks, away from the event loop: fsync above all."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor

from headrace.log.flush import Background


def background_on(loop: asyncio.AbstractEventLoop, executor: Executor | None = None) -> Background:
    """Runs work on the executor (the loop's own when None), and what follows on the loop."""

    def run(work: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        def finish(running: asyncio.Future[None]) -> None:
            error = running.exception()
            done(error if isinstance(error, Exception) else None)

        loop.run_in_executor(executor, work).add_done_callback(finish)

    return run
