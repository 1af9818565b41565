"""Broker registration: registers this broker in each new session, with a new broker epoch.

    session lost    the registration is gone; the controller elects other leaders for this broker's partitions
    connected       the broker registers anew; listeners get the new broker epoch
    fenced          the controller marked the registration because other brokers suspected this one; the broker no
                    longer leads any partition, and registers anew

Meanwhile the broker continues to serve. The next LeaderAndIsr tells it which partitions it lost, and the cluster
refuses its requests because they carry the old broker epoch.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine

from headrace.metadata import znodes
from headrace.metadata.broker_epoch import BrokerEpoch
from headrace.metadata.left_out_nodes import is_marked
from headrace.metadata.model import Broker
from headrace.metadata.registry import BrokerIdInUse, register_broker
from headrace.metastore.store import MetadataStore, SessionLost, SessionState, StoreError, WatchEvent

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0


class Registration:
    """Keeps one broker registered. `patience_ms`: how long to wait for another registration of its id to go."""

    def __init__(
        self, store: MetadataStore, broker: Broker, now_ms: Callable[[], int], *, patience_ms: int = 0
    ) -> None:
        """Watches for fencing marks if `broker.supports_fencing`."""
        self._store = store
        self._broker = broker
        self.epoch = BrokerEpoch(broker.epoch)
        """The epoch of the last registration."""
        self._now_ms = now_ms
        self._patience_ms = patience_ms
        self._listeners: list[Callable[[Broker], None]] = []
        self._fenced_listeners: list[Callable[[], None]] = []
        self._is_lost = self._is_seen = False
        self._task: asyncio.Task[None] | None = None
        self._is_watching = False  # for a fencing mark
        self._is_stopping = False

    @property
    def broker(self) -> Broker:
        """The broker as last registered."""
        return self._broker

    def seen_by_controller(self) -> None:
        """Notes that the controller knows this registration. It has handled the unclean shutdown, so later
        registrations of this process are clean."""
        self._is_seen = True

    def on_change(self, listener: Callable[[Broker], None]) -> None:
        """Calls `listener` with the broker, and its new epoch, after each registration."""
        self._listeners.append(listener)

    def on_fenced(self, listener: Callable[[], None]) -> None:
        """Calls `listener` when this broker finds that it was fenced, before it registers anew."""
        self._fenced_listeners.append(listener)

    async def start(self) -> Broker:
        """Registers for the first time. Raises `BrokerIdInUse`, `SessionLost`."""
        self._store.on_session(self._on_session)
        await self._register()
        return self._broker

    async def close(self) -> None:
        """Stops registering. The registration is deleted when the session ends."""
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

    def ignore_fencing(self) -> None:
        """Ignores fencing marks from now on, because this broker stops."""
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
        log.warning(
            "broker %d was fenced, because other brokers could not connect to it, and registers again", self._broker.id
        )
        for listener in self._fenced_listeners:
            listener()
        await self._again()

    async def _is_marked(self) -> bool:
        """Whether this registration is marked as fenced; watches for later marks."""
        watch = None if self._is_watching else self._on_mark
        self._is_watching = True
        node = await self._store.exists(znodes.fenced(self._broker.id), watch)
        return node is not None and is_marked(node, self._broker)

    async def _again(self) -> None:
        while True:
            try:
                await self._register()
                log.warning("broker %d registered again with broker epoch %d", self._broker.id, self._broker.epoch)
                return
            except SessionLost:
                return  # the next session registers
            except (BrokerIdInUse, StoreError) as error:
                log.error(
                    "broker %d could not register, trying again in %g s: %s", self._broker.id, RETRY_SECONDS, error
                )
                await asyncio.sleep(RETRY_SECONDS)

    async def _register(self) -> None:
        if self._is_seen:
            self._broker = self._broker._replace(is_clean=True)
        broker = await register_broker(self._store, self._broker, self._now_ms(), patience_ms=self._patience_ms)
        self._broker, self.epoch.value = broker, broker.epoch
        for listener in self._listeners:
            listener(broker)
        if broker.supports_fencing and not self._is_stopping and await self._is_marked():
            await self._register()
