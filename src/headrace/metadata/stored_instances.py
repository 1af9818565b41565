"""Instances in the metadata store: reads them, follows changes, and changes them by compare-and-set.

    /headrace/instances/NAME                                the definition (`instances.definition`)
    /headrace/instance_changes/instance_change_#            the name of an instance that has changed; sequential
    /headrace/instance_endpoints/N                          the listeners of broker N (`instance_endpoints`)

A cluster that never had an instance has none of these: its brokers look once for the first directory, and the watch on
it tells them of the first instance. A node that cannot be read is logged; the definition that was known stays in force.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from itertools import islice
from typing import TYPE_CHECKING, Optional

from headrace.errors import ErrorCode, InvalidConfig, InvalidRequest, KafkaError
from headrace.limits import INLINE_INSTANCE_BYTES_MAX
from headrace.metadata.change_feed import ChangeFeed, on_new_session
from headrace.metadata.entity_configs import READ_AT_ONCE_MAX, REWRITES_MAX
from headrace.metadata.instance_endpoints import (
    ENDPOINTS,
    Address,
    Endpoints,
    EndpointsListener,
    InstanceEndpoints,
    Work,
)
from headrace.metastore.store import (
    BadVersion,
    Check,
    Create,
    Delete,
    MetadataStore,
    NodeExists,
    NoNode,
    Op,
    SessionLost,
    Set,
    StoreError,
    TooLarge,
    WatchEvent,
    ensure_path,
)
from headrace.types import BrokerId

if TYPE_CHECKING:
    from headrace.instances.definition import Instance

log = logging.getLogger(__name__)

INSTANCES = "/headrace/instances"
CHANGES = "/headrace/instance_changes"
CHANGE_PREFIX = "instance_change_"

Listener = Callable[[str, Optional["Instance"]], None]
"""Called with each instance that is new, has changed or, with None, is gone."""
Decide = Callable[["Instance"], Optional["Instance"]]
"""An instance after a change; None to remove it. May be called more than once."""


class StoredInstances:
    """The instances and their listeners, as this broker knows them."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._known: dict[str, Instance] = {}
        self._listeners: list[Listener] = []
        self._lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_following = False
        self._endpoints = InstanceEndpoints(store, self._spawn)
        self._feed = ChangeFeed(
            store, CHANGES, CHANGE_PREFIX, changed=self._read_named, missed=self._read_all, lock=self._lock
        )

    def get(self, name: str) -> Instance | None:
        """An instance by its name."""
        return self._known.get(name)

    def owner_of(self, qualified: str) -> str:
        """The instance that has a name of the cluster, such as that of a topic or group; empty for the operator's."""
        name = qualified.partition(".")[0]  # as `instances.names`, which a cluster without instances does not import
        return name if name in self._known and name != qualified else ""

    @property
    def known(self) -> Collection[Instance]:
        """Every instance. Valid until the next await."""
        return self._known.values()

    def all(self) -> list[Instance]:
        """Every instance, by name."""
        return [self._known[name] for name in sorted(self._known)]

    def on_change(self, listener: Listener) -> None:
        """Calls `listener` for each instance that is known, and for each change from now on."""
        self._listeners.append(listener)
        for name, instance in list(self._known.items()):
            listener(name, instance)

    def endpoints(self) -> Endpoints:
        """The listeners of each instance that has one: name -> broker -> (host, port)."""
        return self._endpoints.known

    def on_endpoints(self, listener: EndpointsListener) -> None:
        """Calls `listener` with the names of instances that have listeners, and of those whose listeners change."""
        self._endpoints.on_change(listener)

    async def publish(self, broker_id: BrokerId, endpoints: Mapping[str, Address]) -> None:
        """Publishes the listeners of this broker in place of those before. They are gone when it ends."""
        async with self._lock:
            await self._endpoints.publish(broker_id, endpoints)

    async def start(self) -> None:
        """Reads all instances, and begins to follow changes."""
        on_new_session(self._store, self._on_new_session)
        async with self._lock:
            await self._follow()

    async def close(self) -> None:
        """Stops following changes."""
        await self._feed.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def create(self, instance: Instance, guard: Check | None = None) -> None:
        """Stores a new instance. Raises `KafkaError`: DUPLICATE_RESOURCE if there is one of its name, NOT_CONTROLLER
        if the guard, which is a controller's, does not hold, REQUEST_TIMED_OUT if the session ends meanwhile."""
        async with self._lock, _in_one_session(instance.name):
            for each in (CHANGES, ENDPOINTS, INSTANCES):  # the last one is what brokers without instances watch
                await ensure_path(self._store, each)
            await self._follow()
            try:
                await self._write(Create(_path(instance.name), _encoded(instance)), instance.name, guard)
            except NodeExists:
                raise KafkaError(f"an instance called {instance.name} exists", ErrorCode.DUPLICATE_RESOURCE) from None

    async def change(self, name: str, decide: Decide, guard: Check | None = None) -> Instance | None:
        """Changes or removes an instance; returns it after the change. Raises what `decide` raises, and `KafkaError`:
        RESOURCE_NOT_FOUND if there is none of the name, NOT_CONTROLLER and REQUEST_TIMED_OUT as of `create`."""
        async with self._lock, _in_one_session(name):
            for _ in range(REWRITES_MAX):
                [node] = await self._store.get_many([_path(name)])
                if node is None:
                    self._take(name, None)
                    raise KafkaError(f"there is no instance called {name!r:.100}", ErrorCode.RESOURCE_NOT_FOUND)
                after = decide(before := await _stored(name, node.data))
                if after == before:
                    return after
                try:
                    await self._write(
                        Delete(_path(name), node.version)
                        if after is None
                        else Set(_path(name), _encoded(after), node.version),
                        name,
                        guard,
                    )
                except (BadVersion, NoNode):
                    continue
                return after
        raise KafkaError(f"instance {name} changes all the time: try again", ErrorCode.REQUEST_TIMED_OUT)

    async def refresh(self, name: str | None = None) -> None:
        """Reads an instance, or all of them: its notice may be late. Raises `KafkaError` as `create` does."""
        async with self._lock, _in_one_session(name or ""):
            if name is not None:
                await self._read([name])
            elif self._is_following:
                await self._read_all()

    async def _write(self, op: Op, name: str, guard: Check | None) -> None:
        notice = Create(f"{CHANGES}/{CHANGE_PREFIX}", name.encode(), sequential=True)
        try:
            await self._store.multi([op, notice] if guard is None else [op, notice, guard])
            await self._read([name])
        except BadVersion as error:
            if guard is None or error.path != guard.path:
                raise
            raise KafkaError("another controller was elected", ErrorCode.NOT_CONTROLLER) from None
        except TooLarge:
            raise InvalidRequest(
                f"the definition of instance {name} is larger than the metadata store allows: shorten its lists"
            ) from None

    # With the lock held

    async def _follow(self) -> None:
        """Begins to follow, if the cluster has, or has had, an instance."""
        if self._is_following or await self._store.exists(INSTANCES, self._on_first) is None:
            return
        await self._feed.start()
        await self._read_all()
        await self._endpoints.read_all()
        self._is_following = True

    async def _read_named(self, notices: Iterable[bytes]) -> None:
        await self._read(dict.fromkeys(each.decode(errors="replace") for each in notices))

    async def _read_all(self) -> None:
        await self._read(sorted({*self._known, *await self._store.children(INSTANCES)}))

    async def _read(self, names: Iterable[str]) -> None:
        waiting = iter(names)
        while part := list(islice(waiting, READ_AT_ONCE_MAX)):
            nodes = await self._store.get_many([_path(each) for each in part])
            for name, node in zip(part, nodes, strict=True):
                try:
                    self._take(name, None if node is None else await _stored(name, node.data))
                except InvalidConfig as error:
                    log.error("%s. What was known before stays in force.", error.message)

    def _take(self, name: str, found: Instance | None) -> None:
        if found == self._known.get(name):
            return
        if found is None:
            del self._known[name]
        else:
            self._known[name] = found
        for listener in self._listeners:
            listener(name, found)

    # Events

    def _on_first(self, _event: WatchEvent) -> None:
        if not self._is_following:
            self._spawn(self._follow)

    def _on_new_session(self) -> None:
        self._spawn(self._read_after_loss)

    async def _read_after_loss(self) -> None:
        """Reads everything, since notices may have come and gone while there was no session."""
        await self._endpoints.session_began()
        if self._is_following:
            await self._read_all()
            await self._endpoints.read_all()
        else:
            await self._follow()

    def _spawn(self, work: Work) -> None:
        task = asyncio.get_running_loop().create_task(self._do(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _do(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            async with self._lock:
                await work()
        except SessionLost:
            return  # the store was closed, or the session ended again
        except StoreError as error:
            log.error("changes of instances could not be read: %s %s", type(error).__name__, error)


@asynccontextmanager
async def _in_one_session(name: str) -> AsyncIterator[None]:
    """Raises `KafkaError` if the session with the metadata store ends meanwhile."""
    try:
        yield
    except SessionLost:
        what = "the session with the metadata store ended"
        advice = f": describe instance {name} to see whether it has changed" if name else ""
        raise KafkaError(what + advice, ErrorCode.REQUEST_TIMED_OUT) from None


def _path(name: str) -> str:
    return f"{INSTANCES}/{name}"


def _encoded(instance: Instance) -> bytes:
    from headrace.instances.definition import encode_instance  # not by a cluster without instances

    return encode_instance(instance)


async def _stored(name: str, data: bytes) -> Instance:
    """The definition in the node of an instance, read on a thread if it has long lists. Raises `InvalidConfig`."""
    from headrace.instances.definition import decode_instance

    try:
        is_large = len(data) > INLINE_INSTANCE_BYTES_MAX
        found = await asyncio.to_thread(decode_instance, data) if is_large else decode_instance(data)
        if found.name != name:
            raise InvalidConfig(f"it is called {found.name!r}")
    except InvalidConfig as error:
        raise InvalidConfig(f"{_path(name)} is malformed, correct or delete the node: {error.message}") from None
    return found
