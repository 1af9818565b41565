"""The embedded metadata store: one SQLite file in the data directory, for a cluster of one broker.

    node  path | parent | data | version | czxid | mzxid | ephemeral_owner | children_made
    tree  zxid (the number of the last write) | session (the number of the last opening)

One worker thread owns the database and the watches, so the event loop never waits for the disk. Operations are executed
in order, and a watch's event reaches the loop before any later result; ZooKeeper guarantees the same. A write is one
transaction in a write-ahead log that is flushed before the write returns.

The session lasts from open to close. Opening deletes ephemeral nodes that a killed process (`kill -9`) left.
The file is locked exclusively, so a second process is refused (`StoreInUse`).
Left out: session expiry, because the process cannot lose a store that is part of it.
"""

import asyncio
import logging
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from errno import EIO
from pathlib import Path
from typing import TypeVar

from headrace.errors import StorageError
from headrace.metastore.store import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    Delete,
    EventKind,
    NoChildrenForEphemerals,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    OpResult,
    SessionLost,
    SessionState,
    Set,
    StoreError,
    Watch,
    WatchEvent,
    check_path,
    parent_of,
)

logger = logging.getLogger(__name__)
FILE_NAME = "headrace-tree.sqlite"
SCHEMA_VERSION = 1

_SCHEMA = f"""
CREATE TABLE node (
    path TEXT PRIMARY KEY, parent TEXT NOT NULL, data BLOB NOT NULL, version INTEGER NOT NULL,
    czxid INTEGER NOT NULL, mzxid INTEGER NOT NULL, ephemeral_owner INTEGER NOT NULL, children_made INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX node_by_parent ON node (parent, path);
CREATE TABLE tree (zxid INTEGER NOT NULL, session INTEGER NOT NULL);
INSERT INTO tree VALUES (0, 0);
INSERT INTO node VALUES ('/', '', x'', 0, 0, 0, 0, 0);
PRAGMA user_version = {SCHEMA_VERSION};
"""

T = TypeVar("T")


class StoreInUse(Exception):
    """Another process has the metadata store open."""


class StoreUnreadable(OSError):
    """The file cannot be opened, is not a metadata store, or has a newer version."""


class EmbeddedStore:
    """A `MetadataStore` on a SQLite file. Make it with `open`."""

    def __init__(self, path: Path, loop: asyncio.AbstractEventLoop) -> None:
        self._path = path
        self._loop = loop
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="headrace-tree")
        self._store: _Store | None = None
        self._closed = False

    @classmethod
    async def open(cls, directory: Path) -> "EmbeddedStore":
        """Opens the metadata store of a data directory, or creates it. Raises `StoreInUse`, `StoreUnreadable`."""
        store = cls(directory / FILE_NAME, asyncio.get_running_loop())
        try:
            store._store = await store._loop.run_in_executor(store._worker, _Store, store._path, store._post)
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
        return await self._run(lambda store: store.get(path, watch))

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        """See `MetadataStore.get_many`; here all nodes are read at one moment."""
        return await self._run(lambda store: [store.find(path, watch) for path in paths])

    async def exists(self, path: str, watch: Watch | None = None) -> Node | None:
        """See `MetadataStore.exists`."""
        return await self._run(lambda store: store.exists(path, watch))

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
        return await self._run(lambda store: store.multi(ops))

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

    async def _run(self, work: "Callable[[_Store], T]") -> T:
        if self._closed or self._store is None:
            raise SessionLost(str(self._path))
        try:
            return await self._loop.run_in_executor(self._worker, work, self._store)
        except sqlite3.Error as error:  # a full or failing disk; the transaction is rolled back
            raise StorageError(f"{self._path}: {error}") from error

    def _post(self, watch: Watch, event: WatchEvent) -> None:
        """Called on the worker thread; the loop runs callbacks in the order of these calls."""
        self._loop.call_soon_threadsafe(watch, event)


class _Store:
    """The database and the watches; used on the worker thread only."""

    def __init__(self, path: Path, post: Callable[[Watch, WatchEvent], None]) -> None:
        self._post = post
        self._data_watches: dict[str, list[Watch]] = defaultdict(list)
        self._child_watches: dict[str, list[Watch]] = defaultdict(list)
        self._events: list[WatchEvent] = []
        try:
            self._db = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise StoreUnreadable(EIO, str(error), str(path)) from None
        try:
            self._open()
        except sqlite3.Error as error:
            self._db.close()
            if "locked" in str(error):
                raise StoreInUse(f"{path} is open in another process; stop the broker that uses it") from None
            raise StoreUnreadable(EIO, str(error), str(path)) from None

    def _open(self) -> None:
        execute = self._db.execute
        execute("PRAGMA locking_mode = EXCLUSIVE")
        # Opening needs no sync, which makes a start faster: after a crash the next opening writes the same again, and
        # the first commit after it syncs the whole write-ahead log.
        execute("PRAGMA synchronous = OFF")
        execute("PRAGMA journal_mode = WAL")
        execute("BEGIN IMMEDIATE")
        version = execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA_VERSION:
            raise sqlite3.DatabaseError(
                f"the schema has version {version}, but this version of headrace supports {SCHEMA_VERSION}"
            )
        if version == 0:
            for statement in _SCHEMA.split(";"):
                execute(statement)
        zxid, session = execute("SELECT zxid, session FROM tree").fetchone()
        self._zxid: int = zxid + 1
        self._session: int = session + 1
        self._delete_ephemerals()
        execute("UPDATE tree SET zxid = ?, session = ?", (self._zxid, self._session))
        execute("COMMIT")
        execute("PRAGMA synchronous = FULL")

    def close(self) -> None:
        """Ends the session and checkpoints the write-ahead log into the file. If a full or failing disk prevents that,
        the next opening does it."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self._delete_ephemerals()
            self._db.execute("COMMIT")
            self._db.close()
        except sqlite3.Error as error:
            logger.warning("the metadata store was not closed cleanly; the next start repairs it: %s", error)
            with suppress(sqlite3.Error):
                self._db.close()

    def _delete_ephemerals(self) -> None:
        self._db.execute("DELETE FROM node WHERE ephemeral_owner != 0")

    # Reads

    def find(self, path: str, watch: Watch | None = None) -> Node | None:
        """The node or None; sets the watch only if the node exists."""
        check_path(path)
        row = self._db.execute(
            "SELECT data, version, czxid, mzxid, ephemeral_owner FROM node WHERE path = ?", (path,)
        ).fetchone()
        if row is None:
            return None
        if watch is not None:
            self._data_watches[path].append(watch)
        return Node._make(row)

    def get(self, path: str, watch: Watch | None) -> Node:
        """See `MetadataStore.get`."""
        node = self.find(path, watch)
        if node is None:
            raise NoNode(path)
        return node

    def exists(self, path: str, watch: Watch | None) -> Node | None:
        """See `MetadataStore.exists`."""
        found = self.find(path)
        if watch is not None:
            self._data_watches[path].append(watch)
        return found

    def children(self, path: str, watch: Watch | None) -> list[str]:
        """See `MetadataStore.children`."""
        self._must_find(path)
        if watch is not None:
            self._child_watches[path].append(watch)
        skip = len(path) if path == "/" else len(path) + 1
        rows = self._db.execute("SELECT path FROM node WHERE parent = ? ORDER BY path", (path,))
        return [row[0][skip:] for row in rows]

    # Writes

    def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        """See `MetadataStore.multi`."""
        self._zxid += 1
        self._events.clear()
        results: list[OpResult] = []
        self._db.execute("BEGIN IMMEDIATE")
        try:
            for op in ops:
                results.append(self._apply(op))  # noqa: PERF401 (an error's index is how many were done)
            self._db.execute("UPDATE tree SET zxid = ?", (self._zxid,))
            self._db.execute("COMMIT")
        except BaseException as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            if isinstance(error, StoreError):
                error.index = len(results)
            raise
        for event in self._events:
            self._fire(event)
        return results

    def _apply(self, op: Op) -> OpResult:
        match op:
            case Create():
                return self._create(op)
            case Set(path, data, version):
                found = self._at_version(path, version)
                self._db.execute(
                    "UPDATE node SET data = ?, version = version + 1, mzxid = ? WHERE path = ?",
                    (data, self._zxid, path),
                )
                self._events.append(WatchEvent(EventKind.CHANGED, path))
                return found.version + 1
            case Delete(path, version):
                self._delete(path, version)
            case Check(path, version):
                self._at_version(path, version)
        return None

    def _create(self, op: Create) -> str:
        path = op.path
        check_path(path, sequential=op.sequential)
        if path == "/":
            raise NodeExists(path)
        parent = parent_of(path)
        above = self._db.execute("SELECT children_made, ephemeral_owner FROM node WHERE path = ?", (parent,)).fetchone()
        if above is None:
            raise NoNode(path)
        children_made, owner_above = above
        if owner_above:
            raise NoChildrenForEphemerals(path)
        if op.sequential:
            path = f"{path}{children_made:010d}"
        owner = self._session if op.ephemeral else 0
        try:
            self._db.execute(
                "INSERT INTO node VALUES (?, ?, ?, 0, ?, ?, ?, 0)",
                (path, parent, op.data, self._zxid, self._zxid, owner),
            )
        except sqlite3.IntegrityError:
            raise NodeExists(path) from None
        self._db.execute("UPDATE node SET children_made = children_made + 1 WHERE path = ?", (parent,))
        self._events.append(WatchEvent(EventKind.CREATED, path))
        self._events.append(WatchEvent(EventKind.CHILDREN, parent))
        return path

    def _delete(self, path: str, version: int) -> None:
        self._at_version(path, version)
        if path == "/" or self._db.execute("SELECT 1 FROM node WHERE parent = ? LIMIT 1", (path,)).fetchone():
            raise NotEmpty(path)
        self._db.execute("DELETE FROM node WHERE path = ?", (path,))
        self._events.append(WatchEvent(EventKind.DELETED, path))
        self._events.append(WatchEvent(EventKind.CHILDREN, parent_of(path)))

    def _at_version(self, path: str, version: int) -> Node:
        node = self._must_find(path)
        if version not in (ANY_VERSION, node.version):
            raise BadVersion(path)
        return node

    def _must_find(self, path: str) -> Node:
        node = self.find(path)
        if node is None:
            raise NoNode(path)
        return node

    def _fire(self, event: WatchEvent) -> None:
        if event.kind is EventKind.CHILDREN:
            watches = self._child_watches.pop(event.path, [])
        else:
            watches = self._data_watches.pop(event.path, [])
            if event.kind is EventKind.DELETED:
                watches += self._child_watches.pop(event.path, [])
        for watch in watches:
            self._post(watch, event)
