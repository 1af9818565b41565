"""Looks after other brokers: holds a connection to each, and says in the tree when one is gone.

    registered ──▶ connected ──▶ broke ──▶ answers again                       nothing was wrong
                                   ├─────▶ refused: a sighting in the tree ──▶ taken back when it answers again
                                   └─────▶ silent: nobody knows; its session decides

A sighting names the registration that was read before the connection was made, so what lies between a start and the
first answer is never held against a broker that is just coming up. Each broker looks after a few others, the controller
after all. What becomes of sightings: `headrace.coordination.fencing`.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from headrace.broker.metadata_cache import MetadataCache
from headrace.broker.peer_book import peer_address
from headrace.coordination import paths
from headrace.coordination.controller import Controller
from headrace.coordination.fencing import Sighting, neighbours
from headrace.coordination.peers import Held, PeerAddress, PeerRefused, Peers, PeerUnreachable
from headrace.coordination.tree import NodeExists, NoNode, Tree, TreeError
from headrace.types import BrokerId

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_MS = 5_000
PAUSE_MIN_S, PAUSE_MAX_S = 0.01, 0.5
"""Between attempts to reach a broker that does not answer: doubled from the one to the other."""


class Lookout:
    """One broker's eye on others."""

    def __init__(
        self,
        own_id: BrokerId,
        *,
        tree: Tree,
        peers: Peers,
        metadata: MetadataCache,
        controller: Controller,
        broker_epoch: Callable[[], int],
        listener: str,
    ) -> None:
        """`listener` is `inter.broker.listener.name`, or empty."""
        self._own_id, self._tree, self._peers, self._metadata = own_id, tree, peers, metadata
        self._controller, self._broker_epoch, self._listener = controller, broker_epoch, listener
        self._watching: dict[PeerAddress, asyncio.Task[None]] = {}
        self._taking_back: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def start(self) -> None:
        """Begins with the brokers that are known, and follows what becomes known of them."""
        self._metadata.on_change(self._look)
        self._look()

    async def close(self) -> None:
        """Looks no more. Its sightings go with the session."""
        self._is_closed = True
        tasks = [*self._watching.values(), *self._taking_back]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _look(self) -> None:
        if self._is_closed:
            return
        brokers, loop = self._metadata.brokers, asyncio.get_running_loop()
        is_controller = self._metadata.controller_id == self._own_id
        wanted = brokers.keys() - {self._own_id} if is_controller else neighbours(self._own_id, brokers)
        found = [peer_address(brokers[number], self._listener) for number in sorted(wanted)]
        addresses = dict.fromkeys(each for each in found if each is not None)
        for gone in [each for each in self._watching if each not in addresses]:
            self._watching.pop(gone).cancel()
        for address in addresses:
            if address not in self._watching:
                self._watching[address] = loop.create_task(self._watch(address), name=f"lookout for {address.id}")

    async def _watch(self, to: PeerAddress) -> None:
        while not self._is_closed:
            try:
                await self._observe(to)
            except TreeError as error:
                log.info("broker %d is not looked after at the moment: %r", to.id, error)
            except Exception:
                log.exception("broker %d is not looked after at the moment", to.id)
            await asyncio.sleep(PAUSE_MAX_S)

    async def _observe(self, to: PeerAddress) -> None:
        """One registration of a broker, until it changes."""
        changed = asyncio.Event()
        node = await self._tree.exists(paths.broker(to.id), lambda _: changed.set())
        if node is None:
            await changed.wait()
            return
        has_answered, pause_s = False, PAUSE_MIN_S
        said: Sighting | None = None
        try:
            while not changed.is_set():
                try:
                    held = await self._peers.hold(to, timeout_ms=CONNECT_TIMEOUT_MS)
                except PeerRefused:
                    if has_answered:
                        said = await self._say(said, Sighting(to.id, node.czxid, self._own_id, self._broker_epoch()))
                except PeerUnreachable:
                    pass
                else:
                    has_answered, pause_s = True, PAUSE_MIN_S
                    self._metadata.doubts.end(to.id)
                    self._take_back(said)
                    said = None
                    await _either(held, changed)
                    if not changed.is_set():
                        self._metadata.doubts.begin(to.id)
                    continue
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await changed.wait()
                pause_s = min(PAUSE_MAX_S, 2 * pause_s)
        finally:
            self._take_back(said)

    async def _say(self, before: Sighting | None, now: Sighting) -> Sighting:
        if before != now:
            log.warning("broker %d refuses connections; the last one broke", now.broker)
            with suppress(NodeExists):
                await self._tree.create(paths.sighting(now.name), ephemeral=True)
        self._controller.sighted(now.broker)
        return now

    def _take_back(self, said: Sighting | None) -> None:
        if said is None or self._is_closed:
            return
        task = asyncio.get_running_loop().create_task(self._delete(said), name="lookout takes back")
        self._taking_back.add(task)
        task.add_done_callback(self._taking_back.discard)

    async def _delete(self, said: Sighting) -> None:
        try:
            await self._tree.delete(paths.sighting(said.name))
        except NoNode:
            pass  # it went with a session
        except TreeError as error:
            log.info("the sighting of broker %d is not taken back: %r", said.broker, error)


async def _either(held: Held, changed: asyncio.Event) -> None:
    """Until the connection is over, or the registration has changed; ends the connection."""
    waiting = [asyncio.ensure_future(held.broken()), asyncio.ensure_future(changed.wait())]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        held.close()
        for each in waiting:
            each.cancel()
