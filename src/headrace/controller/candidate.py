"""A broker's candidacy for controller: elections, the epochs that it wins, and the queue of the controller's events.

    elect               creates /controller (ephemeral) and raises /controller_epoch in one multi; the broker whose
                        multi succeeds is the controller
    fence               `fence_manager` fences brokers whose ports refuse connections before their sessions end, and
                        replaces a controller that does
    `ActiveController`  the work of one controller epoch; ends when the session is lost or another broker is elected

Events are requests of clients and brokers, watches that fired, responses of brokers, and timers. They are handled one
at a time, in order, and never wait for a broker. Source: Kafka's `KafkaController`, `KafkaController.elect`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TypeVar

from headrace.config import TopicConfig
from headrace.controller.active_controller import ActiveController, LeaderRebalancing
from headrace.controller.broker_channels import SendRequest
from headrace.controller.controller_epoch import ControllerEpoch, NotController
from headrace.controller.decisions.control_requests import ControllerIdentity
from headrace.controller.event_queue import EventQueue
from headrace.controller.managers.fence_manager import Fences
from headrace.controller.managers.topic_manager import TopicPolicy
from headrace.metadata import znodes
from headrace.metadata.topic_configs import TopicConfigs
from headrace.metastore.store import (
    BadVersion,
    Create,
    Delete,
    MetadataStore,
    NodeExists,
    NoNode,
    Op,
    OpResult,
    SessionLost,
    SessionState,
    Set,
    WatchEvent,
    ensure_path,
)
from headrace.rare_collections import rare_collections
from headrace.types import BrokerId

log = logging.getLogger(__name__)

WAIT_MS = 30_000
RETRY_S = 1.0
"""The delay before a failed event that no caller waits for is tried again."""
GIVE_UP_S = 0.5
"""How long a broker that could not take over stays controller, so that candidates do not fail in quick succession."""

T = TypeVar("T")


class ControllerCandidate:
    """A broker that stands for election, and the active controller while it is elected."""

    def __init__(
        self,
        store: MetadataStore,
        broker_id: BrokerId,
        *,
        send: SendRequest,
        configs: TopicConfigs,
        now_ms: Callable[[], int],
        policy: TopicPolicy,
        rebalancing: LeaderRebalancing,
        listener: str | None,
        can_fence: bool,
    ) -> None:
        """Arguments as of `Controller`."""
        self.store, self.broker_id = store, broker_id
        self._send, self._configs, self._now_ms = send, configs, now_ms
        self._policy, self._rebalancing, self._listener = policy, rebalancing, listener
        self._fences: Fences | None = None
        self._can_fence = can_fence
        self._events = EventQueue("controller")
        self.active: ActiveController | None = None
        """The controller's work while this broker is elected."""
        self.epoch = 0
        """The last controller epoch of this broker; 0 if it has not been controller."""
        self.controller_id: BrokerId | None = None
        """The controller as last read from /controller."""
        configs.on_change(self._on_config)
        configs.on_defaults_change(self._on_defaults)

    async def start(self) -> None:
        """Stands for election. If elected, returns once this broker has received the cluster state."""
        self.store.on_session(self._on_session)
        if self._can_fence:
            await ensure_path(self.store, znodes.SUSPICIONS)
            await ensure_path(self.store, znodes.FENCED)
            self._fences = Fences(self.store, self.broker_id, self._configs, asyncio.get_running_loop().time)
        self._events.start()
        await self._events.do(self._elect)
        await self.settled({self.broker_id})

    async def settled(self, brokers: Collection[BrokerId] | None = None, timeout_ms: int = WAIT_MS) -> None:
        """Waits until these live brokers (all when None) have answered everything sent so far."""
        await self.flush()
        if self.active is not None:
            await self.wait(self.active.controller_epoch.answered(brokers), timeout_ms)
        await self.flush()  # the events that the responses posted

    async def close(self) -> None:
        """Resigns. The node /controller is deleted when the session with the metadata store ends."""
        self._end_active()
        await self._events.close()

    async def do(self, work: Callable[[], Awaitable[T]]) -> T:
        """Queues `work` and returns its result. Raises `NotController` also when the session is lost meanwhile."""
        try:
            return await self._events.do(work)
        except SessionLost as error:
            self._resign()
            raise NotController("the session with the metadata store is lost") from error

    # Suspicions of the controller

    def on_suspicion(self, broker: BrokerId) -> None:
        """This broker has written a suspicion of another broker. Replaces that broker if it is the controller and a
        second broker suspects it too."""
        if self.active is None and broker == self.controller_id:
            self._events.post(lambda: self._follow(lambda: self._replace(broker)))

    async def _replace(self, dead: BrokerId) -> None:
        if self._fences is None or self.active is not None or self.controller_id != dead:
            return
        found = await self._fences.takeover(dead, lambda event: self.on_suspicion(dead), self._candidacy())
        if found is None:
            return
        epoch, ops = found
        try:
            *_, version = await self.store.multi(ops)
        except (NodeExists, BadVersion, NoNode):
            await self._elect()  # another broker was first, or the suspected controller is alive
            return
        await self._begin(epoch, version)

    # Elections of the controller

    async def _elect(self) -> None:
        node = await self.store.exists(znodes.CONTROLLER, self._on_controller_changed)
        if node is not None:
            self.controller_id = znodes.decode_controller(node.data)
            if self.controller_id != self.broker_id:
                self._resign()
            return
        self._resign()
        epoch_node = await self.store.exists(znodes.CONTROLLER_EPOCH)
        epoch = 1 + (znodes.decode_epoch(epoch_node.data) if epoch_node else 0)
        data = znodes.encode_epoch(epoch)
        count: Op = (
            Set(znodes.CONTROLLER_EPOCH, data, epoch_node.version)
            if epoch_node
            else Create(znodes.CONTROLLER_EPOCH, data)
        )
        try:
            _, version = await self.store.multi([self._candidacy(), count])
        except (NodeExists, BadVersion):
            await self._elect()  # another broker was first
            return
        await self._begin(epoch, version)

    def _candidacy(self) -> Create:
        return Create(znodes.CONTROLLER, znodes.encode_controller(self.broker_id, self._now_ms()), ephemeral=True)

    async def _begin(self, epoch: int, version: OpResult) -> None:
        """Takes over as controller. `version` is the version of /controller_epoch after its increment."""
        self.controller_id = self.broker_id
        self.epoch = epoch
        try:
            await self._take_over(epoch, version if isinstance(version, int) else 0)
        except (SessionLost, NotController):
            raise
        except Exception:
            log.exception("broker %d failed to take over as controller and resigns", self.broker_id)
            await self._give_up()

    async def _give_up(self) -> None:
        """Resigns and deletes /controller, which starts a new election. This broker may win it again."""
        active = self.active
        self._resign()
        if active is not None:
            await asyncio.sleep(GIVE_UP_S)
            await self.store.multi([active.controller_epoch.guard, Delete(znodes.CONTROLLER)])

    async def _take_over(self, epoch: int, epoch_version: int) -> None:
        controller_epoch = ControllerEpoch(
            self.store,
            ControllerIdentity(self.broker_id, epoch),
            epoch_version,
            send=self._send,
            on_answer=lambda broker, request, response: active.on_answer(broker, request, response),
            on_over=self._resign,
            listener=self._listener,
        )
        active = ActiveController(
            controller_epoch,
            self._configs,
            self._policy,
            self._rebalancing,
            lambda work: self.post(controller_epoch, work),
            self._fences,
        )
        self.active = active
        with rare_collections():
            await active.take_over()

    def _resign(self) -> None:
        if self.active is not None:
            log.warning("broker %d is no longer controller (controller epoch %d)", self.broker_id, self.epoch)
        self._end_active()

    def _end_active(self) -> None:
        if self.active is not None:
            self.active.end()
            self.active = None

    def require_active(self) -> ActiveController:
        """The active controller. Raises `NotController`."""
        if self.active is None:
            raise NotController(f"the controller is broker {self.controller_id}")
        return self.active

    def _on_config(self, topic: str, config: TopicConfig) -> None:
        if self.active is not None:
            self.active.on_config(topic, config)

    async def _on_defaults(self) -> None:
        if self.active is not None:
            self.active.on_defaults(self._configs.defaults)

    def _on_controller_changed(self, event: WatchEvent) -> None:
        self._events.post(lambda: self._follow(self._elect))

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            self._resign()
        elif state is SessionState.CONNECTED:
            self._events.post(lambda: self._follow(self._elect))

    async def _follow(self, work: Callable[[], Awaitable[object]]) -> None:
        """Runs an event's work. Resigns if it finds that this broker is no longer controller."""
        try:
            await work()
        except (SessionLost, NotController) as error:
            self._resign()
            log.info("an event is left to another controller: %s", error)

    def post(self, controller_epoch: ControllerEpoch, work: Callable[[], Awaitable[object]]) -> None:
        """Queues `work`, which is skipped if the controller epoch is over by then."""

        async def in_epoch() -> None:
            try:
                if not controller_epoch.is_over:
                    await self._follow(work)
            except Exception:
                log.exception("a controller event failed; trying again in %g s", RETRY_S)
                asyncio.get_running_loop().call_later(RETRY_S, self.post, controller_epoch, work)

        if not controller_epoch.is_over:
            self._events.post(in_epoch)

    async def flush(self) -> None:
        """Waits until all earlier events are handled."""
        await self._events.do(_nothing)

    async def wait(self, answered: Sequence["asyncio.Future[None]"], timeout_ms: int) -> None:
        """Waits at most `timeout_ms` until the brokers have answered."""
        if answered:
            await asyncio.wait(answered, timeout=max(0, timeout_ms) / 1000)


async def _nothing() -> None:
    """An event without work: it is done once all earlier events are."""
