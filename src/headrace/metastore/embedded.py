"""The embedded metadata store: one SQLite file in the data directory, for a cluster of one broker.

One worker thread owns the [database](database.py) and the watches, so the event loop never waits for the disk.
Operations are executed in order, and a watch's event reaches the loop before any later result; ZooKeeper guarantees the
same. The session lasts from open to close.
Left out: session expiry, because the process cannot lose a store that is part of it.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from headrace.errors import StorageError
from headrace.metastore.database import FILE_NAME, TreeDatabase, TreeNode
from headrace.metastore.store import (
    ANY_VERSION,
    Create,
    Delete,
    Node,
    Op,
    OpResult,
    SessionLost,
    SessionState,
    Set,
    Watch,
    WatchEvent,
)

T = TypeVar("T")


class EmbeddedStore:
    """A `MetadataStore` on a SQLite file. Make it with `open`."""

    def __init__(self, path: Path, loop: asyncio.AbstractEventLoop) -> None:
        self._path = path
        self._loop = loop
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="headrace-tree")
        self._store: TreeDatabase | None = None
        self._closed = False

    @classmethod
    async def open(cls, directory: Path) -> "EmbeddedStore":
        """Opens the metadata store of a data directory, or creates it. Raises `StoreInUse`, `StoreUnreadable`."""
        store = cls(directory / FILE_NAME, asyncio.get_running_loop())
        try:
            store._store = await store._loop.run_in_executor(store._worker, TreeDatabase, store._path, store._post)
        except BaseException:
            store._worker.shutdown()
            raise
        return store

    @property
    def path(self) -> Path:
        """The SQLite file."""
        return self._path

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        """See `MetadataStore.create`."""
        (made,) = await self.multi([Create(path, data, ephemeral, sequential)])
        assert isinstance(made, str)
        return made

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        """See `MetadataStore.get`."""
        return (await self._run(lambda store: store.get(path, watch))).node()

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        """See `MetadataStore.get_many`; here all nodes are read at one moment."""
        return await self._run(lambda store: store.nodes(paths, watch))

    async def exists(self, path: str, watch: Watch | None = None) -> Node | None:
        """See `MetadataStore.exists`."""
        return _node(await self._run(lambda store: store.exists(path, watch)))

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """See `MetadataStore.children`."""
        return await self._run(lambda store: store.children(path, watch))

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        """See `MetadataStore.set`."""
        (new_version,) = await self.multi([Set(path, data, version)])
        assert isinstance(new_version, int)
        return new_version

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """See `MetadataStore.delete`."""
        await self.multi([Delete(path, version)])

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        """See `MetadataStore.multi`."""
        return await self._run(lambda store: store.multi(ops, store.first_session))

    def on_session(self, listener: Callable[[SessionState], None]) -> None:
        """Never calls `listener`, because the session ends with the process."""

    async def close(self) -> None:
        """Deletes this session's ephemeral nodes and closes the file. Does nothing if it is closed already."""
        if self._closed or self._store is None:
            return
        self._closed = True
        store = self._store
        await self._loop.run_in_executor(self._worker, store.close)
        self._worker.shutdown()

    async def _run(self, work: "Callable[[TreeDatabase], T]") -> T:
        if self._closed or self._store is None:
            raise SessionLost(str(self._path))
        try:
            return await self._loop.run_in_executor(self._worker, work, self._store)
        except sqlite3.Error as error:  # a full or failing disk; the transaction is rolled back
            raise StorageError(f"{self._path}: {error}") from error

    def _post(self, watch: Watch, event: WatchEvent) -> None:
        """Called on the worker thread; the loop runs callbacks in the order of these calls."""
        self._loop.call_soon_threadsafe(watch, event)


def _node(entry: TreeNode | None) -> Node | None:
    return None if entry is None else entry.node()
