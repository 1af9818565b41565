"""Where each broker's listeners of instances are, as the brokers publish it in the metadata store.

    /headrace/instance_endpoints/N      {"acme":["host",9192],...} of broker N; ephemeral

A broker that has lost its session publishes anew in the next one. A node that cannot be read is logged and counts as
empty.
"""

import json
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping

from headrace.metadata.znodes import CorruptNode
from headrace.metastore.store import (
    BadVersion,
    Create,
    Delete,
    EventKind,
    MetadataStore,
    Node,
    NodeExists,
    NoNode,
    Op,
    SessionLost,
    Set,
    WatchEvent,
    ensure_path,
)
from headrace.types import BrokerId

log = logging.getLogger(__name__)

ENDPOINTS = "/headrace/instance_endpoints"
_TRIES_MAX = 20

Address = tuple[str, int]
"""The advertised host and port of a listener."""
Endpoints = Mapping[str, Mapping[BrokerId, Address]]
"""The listeners of each instance, by broker."""
EndpointsListener = Callable[[Collection[str]], None]
"""Called with the names of the instances whose listeners have changed."""
Work = Callable[[], Awaitable[None]]


class InstanceEndpoints:
    """The listeners of all instances, as this broker knows them."""

    def __init__(self, store: MetadataStore, spawn: Callable[[Work], None]) -> None:
        """`spawn` does work in the background, one after the other."""
        self._store, self._spawn = store, spawn
        self._by_broker: dict[BrokerId, dict[str, Address]] = {}
        self._by_instance: dict[str, dict[BrokerId, Address]] = {}
        self._listeners: list[EndpointsListener] = []
        self._own: tuple[BrokerId, dict[str, Address]] | None = None
        self._is_own_of_session = False  # whether this session created the node
        self._watched: set[BrokerId] = set()
        """Brokers whose nodes have a watch that has not fired. A second one would fire too, and set a third."""

    @property
    def known(self) -> Endpoints:
        """The listeners of each instance that has one."""
        return self._by_instance

    def on_change(self, listener: EndpointsListener) -> None:
        """Calls `listener` for those that are known, and for each change from now on."""
        self._listeners.append(listener)
        if self._by_instance:
            listener(list(self._by_instance))

    # One at a time

    async def publish(self, broker_id: BrokerId, endpoints: Mapping[str, Address]) -> None:
        """Publishes this broker's listeners in place of those before. Without a session, the next one does it."""
        self._own = broker_id, dict(endpoints)
        try:
            await self._write_own()
        except SessionLost:
            return

    async def session_began(self) -> None:
        """Publishes this broker's listeners anew: the node is gone with the session before, or will be."""
        self._is_own_of_session = False
        self._watched.clear()
        if self._own is not None:
            await self._write_own()

    async def read_all(self) -> None:
        """Reads the listeners of all brokers, and follows them."""
        await self._read({*self._by_broker, *await self._brokers()})

    async def _brokers(self) -> list[BrokerId]:
        names = await self._store.children(ENDPOINTS, self._on_watch)
        return [BrokerId(int(each)) for each in names if each.isdecimal()]

    def _on_watch(self, event: WatchEvent) -> None:
        if event.path != ENDPOINTS:
            self._watched.discard(_broker_of(event.path))
        self._spawn(self._read_new if event.kind is EventKind.CHILDREN else lambda: self._read_changed(event.path))

    async def _read_new(self) -> None:
        found = set(await self._brokers())
        await self._read(found ^ self._by_broker.keys())

    async def _read_changed(self, path: str) -> None:
        if path != ENDPOINTS:
            await self._read([_broker_of(path)])

    async def _read(self, brokers: Collection[BrokerId]) -> None:
        known = [each for each in brokers if each in self._watched]
        fresh = [each for each in brokers if each not in self._watched]
        for wanted, watch in ((known, None), (fresh, self._on_watch)):
            if not wanted:
                continue
            if watch is not None:
                self._watched.update(wanted)  # before the answer: the watch may fire before this task goes on
            try:
                nodes = await self._store.get_many([_path(each) for each in wanted], watch)
            except BaseException:
                self._watched.difference_update(fresh)
                raise
            for broker, node in zip(wanted, nodes, strict=True):
                if node is None and watch is not None:
                    self._watched.discard(broker)
                self._take(broker, None if node is None else _decoded(broker, node))

    def _take(self, broker: BrokerId, found: dict[str, Address] | None) -> None:
        before, after = self._by_broker.get(broker, {}), found or {}
        changed = [name for name in {**before, **after} if before.get(name) != after.get(name)]
        if found is None:
            self._by_broker.pop(broker, None)
        else:
            self._by_broker[broker] = found
        for name in changed:
            if name in after:
                self._by_instance.setdefault(name, {})[broker] = after[name]
            else:
                of_instance = self._by_instance[name]
                del of_instance[broker]
                if not of_instance:
                    del self._by_instance[name]
        if changed:
            for listener in self._listeners:
                listener(changed)

    async def _write_own(self) -> None:
        assert self._own is not None
        broker_id, endpoints = self._own
        path, data = _path(broker_id), encode_endpoints(endpoints)
        for _ in range(_TRIES_MAX):
            node = await self._store.exists(path)
            if node is None and not endpoints:
                break
            create, ops = Create(path, data, ephemeral=True), list[Op]()
            if node is None:
                ops = [create]
            elif self._is_own_of_session:
                ops = [Set(path, data, node.version)]
            else:
                ops = [Delete(path, node.version), create]  # a session that has ended will delete it otherwise
            try:
                await self._store.multi(ops)
            except (NodeExists, BadVersion):
                continue
            except NoNode:
                await ensure_path(self._store, ENDPOINTS)
                continue
            self._is_own_of_session = True
            break
        else:
            log.error("the listeners of instances could not be published in %s: it changes all the time", path)
            return
        await self._read([broker_id])


def _path(broker: BrokerId) -> str:
    return f"{ENDPOINTS}/{broker}"


def _broker_of(path: str) -> BrokerId:
    return BrokerId(int(path.rpartition("/")[2]))


def encode_endpoints(endpoints: Mapping[str, Address]) -> bytes:
    """The JSON of a broker's node."""
    return json.dumps(endpoints, separators=(",", ":")).encode()


def decode_endpoints(data: bytes) -> dict[str, Address]:
    """Raises `CorruptNode`."""
    try:
        value = json.loads(data)
        found = {name: (host, port) for name, (host, port) in value.items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise CorruptNode("the data is not a table of listeners") from None
    for host, port in found.values():
        if not (isinstance(host, str) and type(port) is int and 0 < port <= 65535):
            raise CorruptNode(f"{host!r:.100}, {port!r:.100} is not the address of a listener")
    return found


def _decoded(broker: BrokerId, node: Node) -> dict[str, Address]:
    try:
        return decode_endpoints(node.data)
    except CorruptNode as error:
        log.error("%s is malformed and is ignored: %s", _path(broker), error)
        return {}
