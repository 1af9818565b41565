"""Failure detector: holds a connection to other brokers, and records a suspicion when one refuses to reconnect.

    registered ──▶ connected ──▶ broken ──▶ answers again     no suspicion
                                   ├──────▶ refused           a suspicion in the metadata store, deleted when the broker
                                   │                          answers again
                                   └──────▶ silent            undecided: the broker's session decides

A suspicion names the registration that was read before the connection was opened, and only a broker that has answered
in that registration can be suspected: a broker that is still starting refuses connections too. Each broker watches a
few others, the controller watches all. `headrace.controller.decisions.fencing` decides what follows from suspicions.
Apache Kafka relies on the session alone, so a killed broker keeps its leaders for `zookeeper.session.timeout.ms`.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from headrace.controller.controller import Controller
from headrace.controller.decisions.fencing import Suspicion, neighbours
from headrace.metadata import znodes
from headrace.metadata.metadata_cache import MetadataCache
from headrace.metastore.store import MetadataStore, NodeExists, NoNode, StoreError
from headrace.network.peers.broker_addresses import peer_address
from headrace.network.peers.peers import HeldConnection, PeerAddress, PeerRefused, Peers, PeerUnreachable
from headrace.types import BrokerId

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_MS = 5_000
PAUSE_MIN_S, PAUSE_MAX_S = 0.01, 0.5
"""The pause between attempts to reach a broker that does not answer: it doubles from the first to the second."""


class FailureDetector:
    """Watches other brokers for one broker."""

    def __init__(
        self,
        own_id: BrokerId,
        *,
        store: MetadataStore,
        peers: Peers,
        metadata: MetadataCache,
        controller: Controller,
        broker_epoch: Callable[[], int],
        listener: str,
    ) -> None:
        """`listener` is `inter.broker.listener.name`, or empty."""
        self._own_id, self._store, self._peers, self._metadata = own_id, store, peers, metadata
        self._controller, self._broker_epoch, self._listener = controller, broker_epoch, listener
        self._watching: dict[PeerAddress, asyncio.Task[None]] = {}
        self._withdrawals: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def start(self) -> None:
        """Watches the known brokers, and follows changes of the metadata."""
        self._metadata.on_change(lambda _: self._look())
        self._look()

    async def close(self) -> None:
        """Stops. Its suspicions are ephemeral nodes, which end with the session."""
        self._is_closed = True
        tasks = [*self._watching.values(), *self._withdrawals]
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
                self._watching[address] = loop.create_task(self._watch(address), name=f"watch broker {address.id}")

    async def _watch(self, to: PeerAddress) -> None:
        while not self._is_closed:
            try:
                await self._observe(to)
            except StoreError as error:
                log.info("broker %d is not watched, because the metadata store failed; trying again: %r", to.id, error)
            except Exception:
                log.exception("broker %d is not watched; trying again", to.id)
            await asyncio.sleep(PAUSE_MAX_S)

    async def _observe(self, to: PeerAddress) -> None:
        """Watches one registration of a broker until it changes."""
        changed = asyncio.Event()
        node = await self._store.exists(znodes.broker(to.id), lambda _: changed.set())
        if node is None:
            await changed.wait()
            return
        has_answered, pause_s = False, PAUSE_MIN_S
        reported: Suspicion | None = None
        try:
            while not changed.is_set():
                try:
                    held = await self._peers.hold(to, timeout_ms=CONNECT_TIMEOUT_MS)
                except PeerRefused:
                    if has_answered:
                        reported = await self._report(
                            reported, Suspicion(to.id, node.czxid, self._own_id, self._broker_epoch())
                        )
                except PeerUnreachable:
                    pass
                else:
                    has_answered, pause_s = True, PAUSE_MIN_S
                    self._metadata.suspected_brokers.end(to.id)
                    self._withdraw(reported)
                    reported = None
                    await _either(held, changed)
                    if not changed.is_set():
                        self._metadata.suspected_brokers.begin(to.id)
                    continue
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await changed.wait()
                pause_s = min(PAUSE_MAX_S, 2 * pause_s)
        finally:
            self._withdraw(reported)

    async def _report(self, previous: Suspicion | None, current: Suspicion) -> Suspicion:
        if previous != current:
            # A broker that stops cleanly looks the same here; the controller knows, and warns if it fences.
            log.info("broker %d stopped or failed: its connection broke, and it refuses another", current.broker)
            with suppress(NodeExists):
                await self._store.create(znodes.suspicion(current.name), ephemeral=True)
        self._controller.on_suspicion(current.broker)
        return current

    def _withdraw(self, reported: Suspicion | None) -> None:
        if reported is None or self._is_closed:
            return
        task = asyncio.get_running_loop().create_task(
            self._delete(reported), name=f"delete suspicion of broker {reported.broker}"
        )
        self._withdrawals.add(task)
        task.add_done_callback(self._withdrawals.discard)

    async def _delete(self, reported: Suspicion) -> None:
        try:
            await self._store.delete(znodes.suspicion(reported.name))
        except NoNode:
            pass  # it ended with a session
        except StoreError as error:
            log.info("the suspicion of broker %d could not be deleted: %r", reported.broker, error)


async def _either(held: HeldConnection, changed: asyncio.Event) -> None:
    """Returns when the connection has ended or the registration has changed; closes the connection."""
    waiting = [asyncio.ensure_future(held.broken()), asyncio.ensure_future(changed.wait())]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        held.close()
        for each in waiting:
            each.cancel()
