"""Follows a directory of change notifications in the metadata store.

    DIRECTORY/PREFIX#    a sequential node for each change; its value says what has changed

The watch on the directory fires, and the values of the new nodes are handed over. Notifications are deleted after some
time: when the sequence has a gap, or one is gone before it was read, `missed` is called, which has to read everything.
Source: Kafka's `ZkNodeChangeNotificationListener`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from headrace.metadata.znodes import CorruptNode
from headrace.metastore.store import (
    BadPath,
    Delete,
    MetadataStore,
    NoNode,
    SessionLost,
    SessionState,
    StoreError,
    WatchEvent,
    ensure_path,
)

log = logging.getLogger(__name__)

NOTIFICATIONS_KEPT_MAX = 1000
"""Notifications beyond this are deleted, oldest first; Apache Kafka deletes them after 15 minutes."""


def on_new_session(store: MetadataStore, begun: Callable[[], None]) -> None:
    """Calls `begun` when a session follows one that was lost: notifications may have come and gone in between."""
    is_lost = False

    def follow(state: SessionState) -> None:
        nonlocal is_lost
        if state is SessionState.LOST:
            is_lost = True
        elif state is SessionState.CONNECTED and is_lost:
            is_lost = False
            begun()

    store.on_session(follow)


class ChangeFeed:
    """Hands over the notifications of one directory, in their order."""

    def __init__(
        self,
        store: MetadataStore,
        directory: str,
        prefix: str,
        *,
        changed: Callable[[Sequence[bytes]], Awaitable[None]],
        missed: Callable[[], Awaitable[None]],
        lock: asyncio.Lock,
    ) -> None:
        """`changed` may raise `CorruptNode`, or `BadPath` for a name that no node can have; `missed` is called then.
        Both are called with `lock` held."""
        self._store, self._directory, self._prefix = store, directory, prefix
        self._changed, self._missed, self._lock = changed, missed, lock
        self._last_seen = ""
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Starts to watch. What the notifications tell is to be read after this."""
        names = await self._names()
        self._last_seen = names[-1] if names else ""

    async def close(self) -> None:
        """Stops."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _on_watch(self, _event: WatchEvent) -> None:
        task = asyncio.get_running_loop().create_task(self._follow())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _follow(self) -> None:
        try:
            async with self._lock:
                await self._read()
        except SessionLost:
            return  # the store was closed
        except StoreError as error:
            log.error("changes in %s could not be read: %s %s", self._directory, type(error).__name__, error)

    async def _names(self) -> list[str]:
        """The notifications, in their order. Sets the watch again."""
        return numbered(await self._store.children(self._directory, self._on_watch), self._prefix)

    async def _read(self) -> None:
        try:
            names = await self._names()
        except NoNode:
            await ensure_path(self._store, self._directory)
            names = await self._names()
            self._last_seen = ""
            await self._missed()
        fresh = [name for name in names if name > self._last_seen]
        nodes = await self._store.get_many([f"{self._directory}/{name}" for name in fresh])
        found = [node.data for node in nodes if node is not None]
        try:
            if len(found) < len(fresh) or has_gap(self._last_seen, fresh):
                await self._missed()
            elif found:
                await self._changed(found)
        except (CorruptNode, BadPath) as error:
            log.error("a notification in %s cannot be read, everything is read again: %s", self._directory, error)
            await self._missed()
        if fresh:
            self._last_seen = max(self._last_seen, fresh[-1])  # only now, so that a failure is tried again
        for name in names[:-NOTIFICATIONS_KEPT_MAX]:
            try:
                await self._store.multi([Delete(f"{self._directory}/{name}")])
            except NoNode:
                continue  # another broker was first


def numbered(names: Sequence[str], prefix: str) -> list[str]:
    """The sequential nodes of a prefix among the children of a directory. Others may have put anything beside them."""
    return [each for each in names if each.startswith(prefix) and each[len(prefix) :].isdecimal()]


def has_gap(last_seen: str, fresh: Sequence[str]) -> bool:
    """Whether notifications between the last one and the first fresh one were deleted unseen.

    A name ends with the number of children that the parent ever had.
    """
    return bool(last_seen and fresh) and int(fresh[0][-10:]) > int(last_seen[-10:]) + 1
