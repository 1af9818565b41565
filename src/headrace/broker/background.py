"""Work that blocks, away from the event loop: fsync above all."""

import asyncio
from collections.abc import Callable

from headrace.log.flush import Background


def background_on(loop: asyncio.AbstractEventLoop) -> Background:
    """Runs work on the loop's executor, and what follows on the loop."""

    def run(work: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        def finish(running: asyncio.Future[None]) -> None:
            error = running.exception()
            done(error if isinstance(error, Exception) else None)

        loop.run_in_executor(None, work).add_done_callback(finish)

    return run
