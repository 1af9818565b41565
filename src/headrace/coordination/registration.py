"""A broker's registration, kept alive: made again in each new session, with a new epoch.

    session lost    the registration is gone; the controller gives this broker's partitions to others
    connected       registered anew; whoever asked is told the new epoch

Until then the broker serves on: it learns from the next LeaderAndIsr what it does not lead any more, and its writes to
the cluster are refused, since they carry the old epoch.
"""

import asyncio
import logging
from collections.abc import Callable

from headrace.coordination.model import Broker
from headrace.coordination.registry import BrokerIdInUse, register_broker
from headrace.coordination.tree import SessionLost, SessionState, Tree, TreeError

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0


class Registration:
    """Registers one broker, again and again. `patience_ms` is how long another's registration is waited for."""

    def __init__(self, tree: Tree, broker: Broker, now_ms: Callable[[], int], *, patience_ms: int = 0) -> None:
        self._tree = tree
        self._broker = broker
        self._now_ms = now_ms
        self._patience_ms = patience_ms
        self._listeners: list[Callable[[Broker], None]] = []
        self._is_lost = False
        self._task: asyncio.Task[None] | None = None

    @property
    def broker(self) -> Broker:
        """As registered last."""
        return self._broker

    def on_change(self, listener: Callable[[Broker], None]) -> None:
        """Calls `listener` with each registration from now on, for its epoch."""
        self._listeners.append(listener)

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
            self._is_lost = True
        elif state is SessionState.CONNECTED and self._is_lost:
            self._is_lost = False
            if self._task is not None:
                self._task.cancel()
            self._task = asyncio.get_running_loop().create_task(self._again(), name="registration")

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
        broker = await register_broker(self._tree, self._broker, self._now_ms(), patience_ms=self._patience_ms)
        self._broker = broker
        for listener in self._listeners:
            listener(broker)
