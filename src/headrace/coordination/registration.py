"""A broker's registration, kept alive: made again in each new session, with a new epoch.

    session lost    the registration is gone; the controller gives this broker's partitions to others
    connected       registered anew; whoever asked is told the new epoch
    fenced          others took this broker for dead, and marked its registration: it leads nothing any more, and
                    makes another

Until then the broker serves on: it learns from the next LeaderAndIsr what it does not lead any more, and its writes to
the cluster are refused, since they carry the old epoch.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine

from headrace.coordination import paths
from headrace.coordination.loading import is_marked
from headrace.coordination.model import Broker
from headrace.coordination.registry import BrokerIdInUse, register_broker
from headrace.coordination.tree import SessionLost, SessionState, Tree, TreeError, WatchEvent

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0


class Registration:
    """Registers one broker, again and again. `patience_ms` is how long another's registration is waited for."""

    def __init__(self, tree: Tree, broker: Broker, now_ms: Callable[[], int], *, patience_ms: int = 0) -> None:
        """Watches for marks if `broker.heeds_fencing`."""
        self._tree = tree
        self._broker = broker
        self._now_ms = now_ms
        self._patience_ms = patience_ms
        self._listeners: list[Callable[[Broker], None]] = []
        self._fenced_listeners: list[Callable[[], None]] = []
        self._is_lost = False
        self.is_known: Callable[[], bool] = lambda: False
        """Whether a controller has seen an earlier registration of this process. What an unclean stop took it has dealt
        with then; a session that ends later takes nothing."""
        self._task: asyncio.Task[None] | None = None
        self._is_watching = self._is_stopping = False  # for a mark; altogether

    @property
    def broker(self) -> Broker:
        """As registered last."""
        return self._broker

    def on_change(self, listener: Callable[[Broker], None]) -> None:
        """Calls `listener` with each registration from now on, for its epoch."""
        self._listeners.append(listener)

    def on_fenced(self, listener: Callable[[], None]) -> None:
        """Calls `listener` when others have taken this broker for dead, before it registers anew."""
        self._fenced_listeners.append(listener)

    async def start(self) -> Broker:
        """Registers for the first time. Raises `BrokerIdInUse`, `SessionLost`."""
        self._tree.on_session(self._on_session)
        await self._register()
        return self._broker

    async def close(self) -> None:
        """Registers no more. What is registered goes with the session."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            self._is_lost, self._is_watching = True, False
        elif state is SessionState.CONNECTED and self._is_lost:
            self._is_lost = False
            self._begin(self._again())

    def _begin(self, work: Coroutine[object, object, None]) -> None:
        if self._task is not None:
            self._task.cancel()
        self._task = asyncio.get_running_loop().create_task(work, name="registration")

    def stop_heeding(self) -> None:
        """This broker stops: it does not care any more who takes it for dead."""
        self._is_stopping = True

    def _on_mark(self, _: WatchEvent) -> None:
        self._is_watching = False
        if not (self._is_stopping or self._is_lost) and (self._task is None or self._task.done()):
            self._begin(self._look_for_mark())

    async def _look_for_mark(self) -> None:
        try:
            if not await self._is_marked():
                return
        except SessionLost:
            return
        log.warning("broker %d was taken for dead by others, and registers anew", self._broker.id)
        for heed in self._fenced_listeners:
            heed()
        await self._again()

    async def _is_marked(self) -> bool:
        """Whether others count this broker as gone; is told of marks from now on."""
        watch = None if self._is_watching else self._on_mark
        self._is_watching = True
        node = await self._tree.exists(paths.fenced(self._broker.id), watch)
        return node is not None and is_marked(node, self._broker)

    async def _again(self) -> None:
        while True:
            try:
                await self._register()
                log.warning("broker %d is registered anew, epoch %d", self._broker.id, self._broker.epoch)
                return
            except SessionLost:
                return  # the next session begins with this
            except (BrokerIdInUse, TreeError) as error:
                log.error("broker %d is not registered: %s", self._broker.id, error)
                await asyncio.sleep(RETRY_SECONDS)

    async def _register(self) -> None:
        if self.is_known():
            self._broker = self._broker._replace(is_clean=True)
        broker = await register_broker(self._tree, self._broker, self._now_ms(), patience_ms=self._patience_ms)
        self._broker = broker
        for listener in self._listeners:
            listener(broker)
        if broker.heeds_fencing and not self._is_stopping and await self._is_marked():
            await self._register()
