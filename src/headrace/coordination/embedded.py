"""The tree inside this process: one SQLite file in the data directory, for a cluster of one.

    node  path | parent | data | version | czxid | mzxid | ephemeral_owner | children_made
    tree  zxid (the number of the last write) | session (the number of the last opening)

One worker thread owns the database and the watches; the event loop never waits for the disk. Operations are done
in the order they were asked for, and a watch's event is put on the loop before any later result, which is what
ZooKeeper promises too. A write is one transaction in a write-ahead log that is flushed before it returns.

The session is this opening: nodes that an earlier one left as ephemeral (`kill -9`) are deleted at the next.
The file is opened with an exclusive lock, so a second process is refused (`TreeInUse`).
Left out: session expiry, because the tree cannot be lost from inside its own process.
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

from headrace.coordination.tree import (
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
    TreeError,
    Watch,
    WatchEvent,
    check_path,
    parent_of,
)
from headrace.errors import StorageError

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


class TreeInUse(Exception):
    """Another process has this tree open."""


class TreeUnreadable(OSError):
    """The file cannot be opened, is no tree, or is one of a newer version."""


class EmbeddedTree:
    """`headrace.coordination.tree.Tree` on a SQLite file. Make it with `open`."""

    def __init__(self, path: Path, loop: asyncio.AbstractEventLoop) -> None:
        self._path = path
        self._loop = loop
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="headrace-tree")
        self._store: _Store | None = None
        self._closed = False

    @classmethod
    async def open(cls, directory: Path) -> "EmbeddedTree":
        """The tree of a data directory, made when it is not there. Raises `TreeInUse`, `TreeUnreadable`."""
        tree = cls(directory / FILE_NAME, asyncio.get_running_loop())
        try:
            tree._store = await tree._loop.run_in_executor(tree._worker, _Store, tree._path, tree._post)
        except BaseException:
            tree._worker.shutdown()
            raise
        return tree

    @property
    def path(self) -> Path:
        """The SQLite file."""
        return self._path

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        """See `Tree.create`."""
        (made,) = await self.multi([Create(path, data, ephemeral, sequential)])
        assert isinstance(made, str)
        return made

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        """See `Tree.get`."""
        return await self._run(lambda store: store.get(path, watch))

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        """See `Tree.get_many`; here they are of one moment."""
        return await self._run(lambda store: [store.find(path, watch) for path in paths])

    async def exists(self, path: str, watch: Watch | None = None) -> Node | None:
        """See `Tree.exists`."""
        return await self._run(lambda store: store.exists(path, watch))

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """See `Tree.children`."""
        return await self._run(lambda store: store.children(path, watch))

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        """See `Tree.set`."""
        (new_version,) = await self.multi([Set(path, data, version)])
        assert isinstance(new_version, int)
        return new_version

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """See `Tree.delete`."""
        await self.multi([Delete(path, version)])

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        """See `Tree.multi`."""
        return await self._run(lambda store: store.multi(ops))

    def on_session(self, listener: Callable[[SessionState], None]) -> None:
        """Never calls: this session ends with the process."""

    async def close(self) -> None:
        """Deletes this session's ephemeral nodes and closes the file. Harmless when closed already."""
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
        except sqlite3.Error as error:  # a full or failing disk; what was being written is rolled back
            raise StorageError(f"{self._path}: {error}") from error

    def _post(self, watch: Watch, event: WatchEvent) -> None:
        """Called on the worker thread: the loop runs what is put on it in this order."""
        self._loop.call_soon_threadsafe(watch, event)


class _Store:
    """The database and the watches; lives on the worker thread."""

    def __init__(self, path: Path, post: Callable[[Watch, WatchEvent], None]) -> None:
        self._post = post
        self._data_watches: dict[str, list[Watch]] = defaultdict(list)
        self._child_watches: dict[str, list[Watch]] = defaultdict(list)
        self._events: list[WatchEvent] = []
        try:
            self._db = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise TreeUnreadable(EIO, str(error), str(path)) from None
        try:
            self._open()
        except sqlite3.Error as error:
            self._db.close()
            if "locked" in str(error):
                raise TreeInUse(f"{path} is open in another process") from None
            raise TreeUnreadable(EIO, str(error), str(path)) from None

    def _open(self) -> None:
        execute = self._db.execute
        execute("PRAGMA locking_mode = EXCLUSIVE")
        # Nothing that opening writes must be kept: the next opening would write it again. The first commit after it
        # syncs the whole write-ahead log, and with it this.
        execute("PRAGMA synchronous = OFF")
        execute("PRAGMA journal_mode = WAL")
        execute("BEGIN IMMEDIATE")
        version = execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA_VERSION:
            raise sqlite3.DatabaseError(f"its version is {version}, and this program knows {SCHEMA_VERSION}")
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
        """Ends the session and checkpoints the write-ahead log into the file; what a full or failing disk does not take
        of that, the next opening does."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self._delete_ephemerals()
            self._db.execute("COMMIT")
            self._db.close()
        except sqlite3.Error as error:
            logger.warning("the tree was not closed cleanly: %s", error)
            with suppress(sqlite3.Error):
                self._db.close()

    def _delete_ephemerals(self) -> None:
        self._db.execute("DELETE FROM node WHERE ephemeral_owner != 0")

    # Reads

    def find(self, path: str, watch: Watch | None = None) -> Node | None:
        """The node or None, and then without a watch."""
        row = self._db.execute(
            "SELECT data, version, czxid, mzxid, ephemeral_owner FROM node WHERE path = ?", (path,)
        ).fetchone()
        if row is None:
            return None
        if watch is not None:
            self._data_watches[path].append(watch)
        return Node._make(row)

    def get(self, path: str, watch: Watch | None) -> Node:
        """See `Tree.get`."""
        node = self.find(path, watch)
        if node is None:
            raise NoNode(path)
        return node

    def exists(self, path: str, watch: Watch | None) -> Node | None:
        """See `Tree.exists`."""
        check_path(path)
        if watch is not None:
            self._data_watches[path].append(watch)
        return self.find(path)

    def children(self, path: str, watch: Watch | None) -> list[str]:
        """See `Tree.children`."""
        self._must_find(path)
        if watch is not None:
            self._child_watches[path].append(watch)
        skip = len(path) if path == "/" else len(path) + 1
        rows = self._db.execute("SELECT path FROM node WHERE parent = ? ORDER BY path", (path,))
        return [row[0][skip:] for row in rows]

    # Writes

    def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        """See `Tree.multi`."""
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
            if isinstance(error, TreeError):
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
