"""The tree in one SQLite file: nodes, sessions and watches.

    node  path | parent | data | version | czxid | mzxid | pzxid | ephemeral_owner | children_made
    tree  zxid (the number of the last write) | session (the number of the last session)

A write is one transaction in a write-ahead log that is flushed before the write returns. The first session lasts from
open to close; others begin and end meanwhile. Opening deletes the ephemeral nodes that a killed process (`kill -9`)
left. The file is locked exclusively, so a second process is refused (`StoreInUse`).

Everything here blocks, and is used on one thread. Watches are passed to `post` on that thread, in the order in which
they fire, before the write that fired them returns.
"""

import logging
import os
import sqlite3
import stat
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from errno import EIO
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from headrace.metastore.store import (
    ANY_VERSION,
    BadPath,
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
    Set,
    StoreError,
    Watch,
    WatchEvent,
    check_path,
    parent_of,
)

logger = logging.getLogger(__name__)
FILE_NAME = "headrace-tree.sqlite"
SCHEMA_VERSION = 2

_SCHEMA = f"""
CREATE TABLE node (
    path TEXT PRIMARY KEY, parent TEXT NOT NULL, data BLOB NOT NULL, version INTEGER NOT NULL,
    czxid INTEGER NOT NULL, mzxid INTEGER NOT NULL, pzxid INTEGER NOT NULL, ephemeral_owner INTEGER NOT NULL,
    children_made INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX node_by_parent ON node (parent, path);
CREATE TABLE tree (zxid INTEGER NOT NULL, session INTEGER NOT NULL);
INSERT INTO tree VALUES (0, 0);
INSERT INTO node VALUES ('/', '', x'', 0, 0, 0, 0, 0, 0);
PRAGMA user_version = {SCHEMA_VERSION};
"""


READS_PER_STATEMENT = 200
"""Nodes that one statement reads: each statement has an overhead of ten of them."""

_READ_MANY = {
    count: f"SELECT path, data, version, czxid, mzxid, ephemeral_owner FROM node WHERE path IN ({marks})"
    for count in (1, READS_PER_STATEMENT)
    if (marks := ",".join("?" * count))
}


_SET = "UPDATE node SET data = ?, version = version + 1, mzxid = ? WHERE path = ? AND version = ?"


class StoreInUse(Exception):
    """Another process has the metadata store open."""


class StoreUnreadable(OSError):
    """The file cannot be opened, is not a metadata store, or has a newer version."""


class TreeNode(NamedTuple):
    """A node, with the zxid of the last change of its children."""

    data: bytes
    version: int
    czxid: int
    mzxid: int
    pzxid: int
    ephemeral_owner: int

    def node(self) -> Node:
        """The node as the metadata store's interface has it."""
        return Node(self.data, self.version, self.czxid, self.mzxid, self.ephemeral_owner)


Watches = dict[str, list[tuple[int, Watch]]]
"""Of each path: who watches it, and the callback."""


def _is_plain(op: Op) -> bool:
    """Whether an operation can be executed together with others of its kind."""
    return isinstance(op, Set) and op.version != ANY_VERSION


def _make_private(path: Path) -> None:
    """Lets only its user read the file, whatever the umask and whoever opens it first: it has verifiers of passwords.
    SQLite gives its write-ahead log the same mode."""
    with suppress(OSError):  # opening says why
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except FileExistsError:  # not opened: closing it would end the locks of a store that this process has open
            mode = stat.S_IMODE(path.stat().st_mode)
            if mode & 0o077:
                path.chmod(mode & ~0o077)


class TreeDatabase:
    """The database and the watches."""

    def __init__(self, path: Path, post: Callable[[Watch, WatchEvent], None]) -> None:
        self._post = post
        self._data_watches: Watches = defaultdict(list)
        self._child_watches: Watches = defaultdict(list)
        self._events: list[WatchEvent] = []
        _make_private(path)
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
        if version not in (0, SCHEMA_VERSION):
            raise sqlite3.DatabaseError(
                f"the schema has version {version}, but this version of headrace supports {SCHEMA_VERSION}"
            )
        if version == 0:
            for statement in _SCHEMA.split(";"):
                execute(statement)
        zxid, session = execute("SELECT zxid, session FROM tree").fetchone()
        self._zxid: int = zxid + 1
        self._sessions: int = session + 1
        self.first_session: int = self._sessions
        self._delete_ephemerals()
        execute("UPDATE tree SET zxid = ?, session = ?", (self._zxid, self._sessions))
        execute("COMMIT")
        execute("PRAGMA synchronous = FULL")

    def close(self) -> None:
        """Ends all sessions and checkpoints the write-ahead log into the file. If a full or failing disk prevents that,
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

    # Sessions

    def open_session(self) -> int:
        """Begins another session; returns its number, which no session had before."""
        self._sessions += 1
        self._db.execute("UPDATE tree SET session = ?", (self._sessions,))
        return self._sessions

    def end_session(self, session: int) -> None:
        """Forgets a session's watches and deletes its ephemeral nodes."""
        for watches in (self._data_watches, self._child_watches):
            for path in list(watches):
                watches[path] = [each for each in watches[path] if each[0] != session]
                if not watches[path]:
                    del watches[path]
        rows = self._db.execute("SELECT path FROM node WHERE ephemeral_owner = ? ORDER BY path", (session,)).fetchall()
        if rows:
            self.multi([Delete(path) for (path,) in rows], session)

    # Reads; `session` is whose watch it is

    def find(self, path: str, watch: Watch | None = None, session: int = 0) -> TreeNode | None:
        """The node or None; sets the watch only if the node exists."""
        check_path(path)
        row = self._db.execute(
            "SELECT data, version, czxid, mzxid, pzxid, ephemeral_owner FROM node WHERE path = ?", (path,)
        ).fetchone()
        if row is None:
            return None
        if watch is not None:
            self._data_watches[path].append((session, watch))
        return TreeNode._make(row)

    def nodes(self, paths: Sequence[str], watch: Watch | None = None, session: int = 0) -> list[Node | None]:
        """`find` of each path, as the interface has nodes: a new controller asks for tens of thousands at once."""
        read: dict[str, Node] = {}
        for start in range(0, len(paths), READS_PER_STATEMENT):
            some = paths[start : start + READS_PER_STATEMENT]
            count = READS_PER_STATEMENT if len(some) > 1 else 1  # two statements, however many paths
            try:
                rows = self._db.execute(_READ_MANY[count], (*some, *[some[-1]] * (count - len(some)))).fetchall()
            except UnicodeEncodeError as error:
                raise BadPath(error.object) from None
            for row in rows:
                read[row[0]] = Node._make(row[1:])
        found = list(map(read.get, paths))
        for path, node in zip(paths, found, strict=True):
            if node is None:  # the path of a node is a path
                check_path(path)
        if watch is not None:
            for path, node in zip(paths, found, strict=True):
                if node is not None:
                    self._data_watches[path].append((session, watch))
        return found

    def get(self, path: str, watch: Watch | None = None, session: int = 0) -> TreeNode:
        """See `MetadataStore.get`."""
        entry = self.find(path, watch, session)
        if entry is None:
            raise NoNode(path)
        return entry

    def exists(self, path: str, watch: Watch | None = None, session: int = 0) -> TreeNode | None:
        """See `MetadataStore.exists`."""
        found = self.find(path)
        if watch is not None:
            self._data_watches[path].append((session, watch))
        return found

    def children(self, path: str, watch: Watch | None = None, session: int = 0) -> list[str]:
        """See `MetadataStore.children`."""
        self.get(path)
        if watch is not None:
            self._child_watches[path].append((session, watch))
        skip = len(path) if path == "/" else len(path) + 1
        rows = self._db.execute("SELECT path FROM node WHERE parent = ? ORDER BY path", (path,))
        return [row[0][skip:] for row in rows]

    # Writes

    def multi(self, ops: Sequence[Op], session: int) -> list[OpResult]:
        """See `MetadataStore.multi`; the session owns the ephemeral nodes that it creates."""
        self._zxid += 1
        self._events.clear()
        results: list[OpResult] = []
        self._db.execute("BEGIN IMMEDIATE")
        try:
            for is_plain, some in groupby(ops, _is_plain):
                results += self._set_many(list(some)) if is_plain else ()  # type: ignore[arg-type]
                for op in () if is_plain else some:
                    results.append(self._apply(op, session))
            self._db.execute("UPDATE tree SET zxid = ?", (self._zxid,))
            self._db.execute("COMMIT")
        except BaseException as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            if isinstance(error, StoreError):
                error.index += len(results)
            raise
        for event in self._events:
            self._fire(event)
        return results

    def _apply(self, op: Op, session: int) -> OpResult:
        match op:
            case Create():
                return self._create(op, session)
            case Set(path, data, version):
                return self._set(path, data, version)
            case Delete(path, version):
                self._delete(path, version)
            case Check(path, version):
                self._at_version(path, version)
        return None

    def _create(self, op: Create, session: int) -> str:
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
        owner = session if op.ephemeral else 0
        try:
            self._db.execute(
                "INSERT INTO node VALUES (?, ?, ?, 0, ?, ?, ?, ?, 0)",
                (path, parent, op.data, self._zxid, self._zxid, self._zxid, owner),
            )
        except sqlite3.IntegrityError:
            raise NodeExists(path) from None
        self._db.execute(
            "UPDATE node SET children_made = children_made + 1, pzxid = ? WHERE path = ?", (self._zxid, parent)
        )
        self._events.append(WatchEvent(EventKind.CREATED, path))
        self._events.append(WatchEvent(EventKind.CHILDREN, parent))
        return path

    def _set(self, path: str, data: bytes, version: int) -> int:
        """Writes over a node of that version; what refuses the write is looked for only if nothing was written."""
        if version == ANY_VERSION:
            version = self.get(path).version
        if not self._db.execute(_SET, (data, self._zxid, path, version)).rowcount:
            self._at_version(path, version)
        if path in self._data_watches:
            self._events.append(WatchEvent(EventKind.CHANGED, path))
        return version + 1

    def _set_many(self, ops: Sequence[Set]) -> list[OpResult]:
        """`_set` of each, as one statement: a new controller may write the state of every partition."""
        zxid = self._zxid
        self._db.execute("SAVEPOINT sets")
        # No variable has the cursor: the traceback of an error would take it to another thread, which would end a
        # statement there that this thread is executing again.
        if self._db.executemany(_SET, [(op.data, zxid, op.path, op.version) for op in ops]).rowcount < len(ops):
            # One is refused: the first one that is names the error.
            self._db.execute("ROLLBACK TO sets")
            for index, op in enumerate(ops):
                try:
                    self._set(*op)
                except StoreError as error:
                    error.index = index
                    raise
        self._db.execute("RELEASE sets")
        if self._data_watches:
            self._events += [WatchEvent(EventKind.CHANGED, op.path) for op in ops if op.path in self._data_watches]
        return [op.version + 1 for op in ops]

    def _delete(self, path: str, version: int) -> None:
        self._at_version(path, version)
        if path == "/" or self._db.execute("SELECT 1 FROM node WHERE parent = ? LIMIT 1", (path,)).fetchone():
            raise NotEmpty(path)
        self._db.execute("DELETE FROM node WHERE path = ?", (path,))
        self._db.execute("UPDATE node SET pzxid = ? WHERE path = ?", (self._zxid, parent_of(path)))
        self._events.append(WatchEvent(EventKind.DELETED, path))
        self._events.append(WatchEvent(EventKind.CHILDREN, parent_of(path)))

    def _at_version(self, path: str, version: int) -> TreeNode:
        entry = self.get(path)
        if version not in (ANY_VERSION, entry.version):
            raise BadVersion(path)
        return entry

    def _fire(self, event: WatchEvent) -> None:
        if event.kind is EventKind.CHILDREN:
            watches = self._child_watches.pop(event.path, [])
        else:
            watches = self._data_watches.pop(event.path, [])
            if event.kind is EventKind.DELETED:
                watches += self._child_watches.pop(event.path, [])
        for _, watch in watches:
            self._post(watch, event)
