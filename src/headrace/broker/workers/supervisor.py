"""The supervisor of `headrace serve --workers N`: it starts the workers, and starts those again that end.

    start        the tree (unless there is a ZooKeeper) -> all workers -> the metrics page -> 'ready HOST:PORT,...'
    a worker ends    it is started again, after a pause that doubles from 1 s to 30 s while it fails to become ready
    SIGHUP       a rolling restart: one worker after the other, each when every replica is in sync
    SIGTERM, SIGINT  stops all workers, then the tree. A second signal kills the workers

A worker whose settings are refused at the first start ends everything with its exit status. When the supervisor is
killed, the workers stop by themselves: their store has gone, and nobody would start them again.
"""

import asyncio
import logging
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

from headrace.broker.environment import UNIX, open_store
from headrace.broker.options import ServeOptions, StartRefused
from headrace.broker.workers import plan
from headrace.broker.workers.sync import out_of_sync
from headrace.broker.workers.worker import Worker
from headrace.errors import InvalidConfig
from headrace.metastore.database import StoreInUse, StoreUnreadable
from headrace.metastore.store import MetadataStore, StoreError

log = logging.getLogger(__name__)

_PAUSE_MIN_S, _PAUSE_MAX_S = 1.0, 30.0
_LOOK_S = 0.2
_SYNC_PATIENCE_S = 600.0
_REFUSED = 2


class Supervisor:
    """Runs the workers. Make it, then `run`."""

    def __init__(self, options: ServeOptions) -> None:
        """Raises `InvalidConfig`, `StartRefused`."""
        assert options.workers is not None
        self._config = options.properties.config
        self._count = options.workers
        plan.check(self._config, self._count)
        self._options = options
        self._workers: list[Worker] = []
        self._sockets = Path()
        self._stopping = asyncio.Event()
        self._changed = asyncio.Event()  # a worker became ready, or ended
        self._status = 0
        self._rolling: asyncio.Task[None] | None = None
        self._leaving: Worker | None = None  # is restarted on purpose

    async def run(self) -> int:
        """Runs until a signal; returns the exit status. Raises `StartRefused`."""
        loop = asyncio.get_running_loop()
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(each, self._stop)
        loop.add_signal_handler(signal.SIGHUP, self._roll)
        async with AsyncExitStack() as stack:
            sockets = self._sockets = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-")))
            if not self._config.zookeeper_connect:
                await stack.enter_async_context(self._tree(sockets))
            for number in range(self._count):
                settings = plan.settings_of(number, self._count, self._config, self._options.given, sockets)
                pairs = [part for name, text in settings.items() for part in ("--set", f"{name}={text}")]
                self._workers.append(Worker(number, [*self._options.arguments, *pairs]))
            for path in plan.left_out(self._config, self._count):
                log.warning(
                    "a data directory without a worker: its replicas are offline until there are as many workers again",
                    extra={"path": path},
                )
            async with asyncio.TaskGroup() as group:
                for worker in self._workers:
                    group.create_task(self._keep(worker), name=f"worker {worker.number}")
                group.create_task(self._when_ready(stack), name="readiness")
            if self._rolling is not None:
                await asyncio.gather(self._rolling, return_exceptions=True)
        return self._status

    @asynccontextmanager
    async def _tree(self, sockets: Path) -> AsyncIterator[None]:
        """Serves the tree to the workers. Raises `StartRefused`."""
        from headrace.metastore.shared.tree_server import TreeServer

        directory = Path(self._config.log_dirs[0], plan.TREE)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            server = await TreeServer.open(directory, sockets / plan.TREE)
        except StoreInUse as error:
            raise StartRefused(str(error)) from error
        except (StoreUnreadable, OSError) as error:
            raise StartRefused(f"{error.filename or directory}: {error.strerror or error}") from error
        try:
            yield
        finally:
            await server.close()

    async def _keep(self, worker: Worker) -> None:
        """Runs one process of the worker after the other, until the supervisor stops."""
        pause = _PAUSE_MIN_S
        while not self._stopping.is_set():
            try:
                await worker.start()
            except OSError as error:  # no memory, no more processes
                log.error("a worker cannot be started", extra={"number": worker.number, "error": str(error)})
                pause = min(2 * pause, _PAUSE_MAX_S)
                await self._pause(pause)
                continue
            if self._stopping.is_set():  # the signal came while the process was being made
                worker.stop()
            was_ready = False

            def ready() -> None:
                nonlocal was_ready
                was_ready = True
                self._changed.set()

            status = await worker.run(ready)
            self._changed.set()
            if self._stopping.is_set():
                return
            if self._leaving is worker:
                self._leaving = None
                continue
            if worker.starts == 1 and status == _REFUSED and not was_ready:  # it has said why
                self._status = status
                self._stop()
                return
            pause = _PAUSE_MIN_S if was_ready else min(2 * pause, _PAUSE_MAX_S)
            log.error(
                "a worker ended and is started again",
                extra={"number": worker.number, "status": status, "after_s": pause},
            )
            await self._pause(pause)

    async def _pause(self, seconds: float) -> None:
        """Waits, unless the supervisor stops."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    async def _when_ready(self, stack: AsyncExitStack) -> None:
        """Says that all are ready, and serves the metrics page from then on."""
        while not (self._stopping.is_set() or all(each.is_ready for each in self._workers)):
            self._changed.clear()
            await self._changed.wait()
        if self._stopping.is_set():
            return
        if self._config.metrics_listen:
            from headrace.broker.metrics.endpoint import metrics_endpoint
            from headrace.broker.workers.metrics_page import WorkersPage

            page = WorkersPage(self._workers, plan.metrics_sockets(self._count, self._sockets))
            try:
                await stack.enter_async_context(metrics_endpoint(self._config.metrics_listen, page))
            except OSError as error:
                log.error("the metrics page cannot be served", extra={"error": f"{error.filename}: {error.strerror}"})
                self._status = _REFUSED
                self._stop()
                return
        print("ready " + ",".join(each.address for each in self._workers), flush=True)

    # Signals

    def _stop(self) -> None:
        is_second = self._stopping.is_set()
        self._stopping.set()
        self._changed.set()
        if self._rolling is not None:
            self._rolling.cancel()
        for worker in self._workers:
            if is_second:
                worker.kill()
            else:
                worker.stop()

    def _roll(self) -> None:
        if self._stopping.is_set() or (self._rolling is not None and not self._rolling.done()):
            log.warning("a rolling restart is under way already, or the workers are being stopped")
            return
        self._rolling = asyncio.get_running_loop().create_task(self._restart_all(), name="rolling restart")

    async def _restart_all(self) -> None:
        """Restarts one worker after the other. Gives up when the replicas do not come back in sync."""
        log.info("the workers are restarted one after the other")
        connect = self._config.zookeeper_connect or UNIX + str(self._sockets / plan.TREE)
        try:
            store = await open_store(replace(self._config, zookeeper_connect=connect))
        except (OSError, StartRefused, InvalidConfig) as error:
            log.error(
                "the rolling restart is given up: the metadata store cannot be opened", extra={"error": str(error)}
            )
            return
        try:
            for worker in self._workers:
                await self._in_sync(store)
                before = worker.starts
                self._leaving = worker
                worker.stop()
                while worker.starts == before or not worker.is_ready:
                    self._changed.clear()
                    await self._changed.wait()
            await self._in_sync(store)
        except TimeoutError as late:
            log.error("the rolling restart is given up", extra={"why": str(late)})
            return
        except StoreError as error:
            log.error("the rolling restart is given up: the metadata store failed", extra={"error": repr(error)})
            return
        finally:
            await store.close()
        log.info("all workers have been restarted")

    async def _in_sync(self, store: MetadataStore) -> None:
        """Waits until every replica is in sync. Raises `TimeoutError` with what is not."""
        lacking: str | None = None
        try:
            async with asyncio.timeout(_SYNC_PATIENCE_S):
                while (lacking := await out_of_sync(store)) is not None:  # noqa: ASYNC110 - a watch each would be thousands
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            raise TimeoutError(f"{lacking} lacks a replica in sync since {_SYNC_PATIENCE_S:g} s") from None
