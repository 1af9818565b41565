"""Runs a broker on a thread of this process, with its own event loop.

    test's thread     start ─────────────▶ waits for ready ── … ── stop ────────────▶ join
    broker's thread        └▶ running(config) ─▶ ready ── requests ──▶ set ─▶ parts taken down, loop closed

The thread ends with everything that it made: the executor's threads, the metadata store's worker, sockets and files.
It is a
daemon, so that a test session which forgets a broker still ends.
"""

import asyncio
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTime

from headrace.broker.app import loop_factory, running
from headrace.broker.options import StartRefused
from headrace.config import BrokerConfig, parse_broker
from headrace.testing.host import BrokerFailed

READY_SECONDS = 30.0
STOP_SECONDS = 30.0


class BrokerThread:
    """`Host` of a broker in this process."""

    log = ""

    def __init__(self) -> None:
        self._ready: Future[str] = Future()
        self._error: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._thread: threading.Thread | None = None

    def start(self, properties: Mapping[str, str]) -> str:
        """See `Host.start`."""
        config = parse_broker(properties)
        self._thread = threading.Thread(target=self._run, args=(config,), name="headrace-broker", daemon=True)
        self._thread.start()
        try:
            return self._ready.result(READY_SECONDS)
        except NotInTime:
            raise BrokerFailed(f"the broker is not ready after {READY_SECONDS:.0f} s") from None
        except Exception as error:
            raise BrokerFailed(
                f"the broker did not start: {error if isinstance(error, StartRefused) else repr(error)}"
            ) from error

    def stop(self) -> None:
        """See `Host.stop`."""
        assert self._thread is not None and self._loop is not None
        if not self._loop.is_closed():
            try:
                self._loop.call_soon_threadsafe(self._stop.set)
            except RuntimeError:
                pass  # it was closed in between: the broker has ended by itself
        self._thread.join(STOP_SECONDS)
        if self._thread.is_alive():
            raise BrokerFailed(f"the broker has not stopped after {STOP_SECONDS:.0f} s")
        if self._error is not None:
            raise BrokerFailed(f"the broker failed: {self._error!r}") from self._error

    def kill(self) -> None:
        """See `Host.kill`; a thread cannot be killed."""
        raise BrokerFailed("a broker inside this process cannot be killed: use Broker(subprocess=True)")

    def _run(self, config: BrokerConfig) -> None:
        try:
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                runner.run(self._serve(config))
        except BaseException as error:
            if self._ready.done():
                self._error = error
            else:
                self._ready.set_exception(error)

    async def _serve(self, config: BrokerConfig) -> None:
        self._loop = asyncio.get_running_loop()
        async with running(config) as (_, listeners):
            self._ready.set_result(f"{listeners[0].host}:{listeners[0].port}")
            await self._stop.wait()
