"""One worker as its supervisor sees it: a process that says when it is ready, and ends.

The worker's standard input is a pipe that nobody writes to. When the supervisor ends, however it ends, the worker reads
the end of the pipe and stops. The number in the environment makes it do so.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

NUMBER = "HEADRACE_WORKER"
"""The environment variable with the worker's number."""


def own_number() -> int | None:
    """The number of this process, if it is a worker."""
    text = os.environ.get(NUMBER, "")
    return int(text) if text.isdecimal() else None


def stop_with_supervisor(stop: Callable[[], None]) -> None:
    """Calls `stop` when the supervisor of this worker is gone."""
    loop = asyncio.get_running_loop()

    def look() -> None:
        if not os.read(0, 1):
            loop.remove_reader(0)
            stop()

    loop.add_reader(0, look)


class Worker:
    """One process after the other with the same number and settings."""

    def __init__(self, number: int, arguments: Sequence[str]) -> None:
        """`arguments`: those of `headrace serve`."""
        self.number = number
        self._arguments = arguments
        self._process: asyncio.subprocess.Process | None = None
        self.address = ""
        """HOST:PORT of the first listener, when the worker is ready."""
        self.starts = 0

    @property
    def is_ready(self) -> bool:
        """Whether the running process has said that it is ready."""
        return bool(self.address)

    async def start(self) -> None:
        """Starts a process, in a group of its own, so that Ctrl-C reaches the supervisor alone."""
        self.starts += 1
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "headrace", "serve", *self._arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, NUMBER: str(self.number)},
            start_new_session=True,
        )

    async def run(self, on_ready: Callable[[], None]) -> int:
        """Waits until the process has ended; returns its exit status, negative for a signal."""
        assert self._process is not None and self._process.stdout is not None
        while line := await self._process.stdout.readline():
            words = line.decode(errors="replace").split()
            if words[:1] == ["ready"]:
                self.address = words[1]
                on_ready()
        status = await self._process.wait()
        self.address = ""
        return status

    def stop(self) -> None:
        """Asks the process to stop."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """Ends the process at once."""
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)
