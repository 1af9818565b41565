"""The interface of the metadata store: ZooKeeper's data model, asynchronous.

A node has a path (`/brokers/ids/0`), a value of bytes, and a version that grows by one with each `set`.

    ephemeral    deleted with the session that created it (this process, or its ZooKeeper session); has no children
    sequential   the store appends ten digits to the name: the number of children that the parent ever had
    watch        a callback that fires once, on the event loop, for the first change after the read that set it
    multi        several writes and version checks that are executed together or not at all

Every write transaction has a number, the zxid. A node keeps the zxid of its creation (`czxid`; that of a broker's
registration is its broker epoch) and of its last change (`mzxid`).

Invariants: a client that reads the new state of a node has received its watch event before; a write that returned
survives a crash of this process and of the machine; operations are executed in order.

While a connection is broken, operations wait for the next one. A write under way is neither lost nor executed twice
while its session lives. When the session ends, writes without an answer fail with `SessionLost`; reads wait for the
next session, and watches live on in it.
Source: ZooKeeper's programmer's guide. Left out: ACLs, containers, time-to-live, quotas, reconfiguration.
"""

import re
from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

ANY_VERSION = -1


class StoreError(Exception):
    """The metadata store refused an operation. `index` is the refused operation of a multi; none was executed."""

    def __init__(self, path: str, index: int = 0) -> None:
        super().__init__(path)
        self.path = path
        self.index = index


class NoNode(StoreError):
    """The node, or the parent of the node to create, does not exist."""


class NodeExists(StoreError):
    """A node of that path already exists."""


class BadVersion(StoreError):
    """The node has changed since the version that the caller read."""


class NotEmpty(StoreError):
    """A node with children cannot be deleted."""


class NoChildrenForEphemerals(StoreError):
    """An ephemeral node cannot be a parent."""


class BadPath(StoreError):
    """Not a valid path: it must start with `/`, not end with it, and have no empty, `.` or `..` part, no NUL, and no
    half of a surrogate pair. ZooKeeper also refuses control characters, private ones, and those above U+FFFF."""


class TooLarge(StoreError):
    """The write is larger than the metadata store allows; ZooKeeper allows 1 MiB."""


class NotAllowed(StoreError):
    """The node's access control list forbids the operation."""


class StoreRefused(StoreError):
    """An error without a class here; its text has ZooKeeper's name of it."""


class SessionLost(StoreError):
    """The session has ended, and this process's ephemeral nodes are deleted; the write may or may not have been
    executed. Or the store was closed."""


class Node(NamedTuple):
    """A node at one moment."""

    data: bytes
    version: int
    czxid: int
    mzxid: int
    ephemeral_owner: int  # the session's id, 0 for a persistent node


class EventKind(Enum):
    """What happened to a watched node."""

    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"
    CHILDREN = "children"


class WatchEvent(NamedTuple):
    """The event of a watch that fired."""

    kind: EventKind
    path: str


Watch = Callable[[WatchEvent], None]


class Create(NamedTuple):
    """Creates a node. Its result in a multi is the path created."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


class Set(NamedTuple):
    """Sets a node's value. Its result in a multi is the new version."""

    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    """Deletes a node without children."""

    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Refuses the whole multi unless the node exists with that version."""

    path: str
    version: int = ANY_VERSION


Op = Create | Set | Delete | Check
OpResult = str | int | None


class SessionState(Enum):
    """Where the session with the metadata store stands."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"  # the connection broke; the session may live on
    LOST = "lost"  # the session is over: ephemeral nodes are gone, what this process held it holds no longer


class MetadataStore(Protocol):
    """A metadata store. Writes, and every operation after `close`, may raise `SessionLost`."""

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        """Creates a node; returns its path. Raises `NodeExists`, `NoNode` (no parent), `NoChildrenForEphemerals`,
        `BadPath`."""
        ...

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        """The node. `watch` fires when it is changed or deleted. Raises `NoNode`, and then sets no watch."""
        ...

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        """The node of each path, or None if it does not exist. The reads are not of one moment. Raises `BadPath`.

        `watch` fires for each existing node when it is changed or deleted.
        """
        ...

    async def exists(self, path: str, watch: Watch | None = None) -> Node | None:
        """The node, or None. `watch` fires when the node is created, changed or deleted."""
        ...

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """The names (not paths) of the children, sorted. `watch` fires when a child is created or deleted, or the node
        is deleted."""
        ...

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        """Sets a node's value; returns the new version. Raises `NoNode`, `BadVersion`."""
        ...

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Deletes a node. Raises `NoNode`, `BadVersion`, `NotEmpty`."""
        ...

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        """Executes all of `ops` in order, or none. Raises the error of the first refused one, with its `index`."""
        ...

    def on_session(self, listener: Callable[[SessionState], None]) -> None:
        """Calls `listener` on the event loop whenever the session's state changes."""
        ...

    async def close(self) -> None:
        """Ends the session. Its ephemeral nodes are deleted when this returns."""
        ...


_PLAIN_PATH = re.compile(r"(?:/(?!\.{1,2}(?:/|\Z))[^/\0\ud800-\udfff]+)+")
_REFUSED = re.compile(r"[\0\ud800-\udfff]")  # half of a pair of UTF-16 stands for nothing alone


def check_path(path: str, *, sequential: bool = False) -> None:
    """Raises `BadPath` for an invalid path. A sequential node's path may end with `/`; its name is then the digits."""
    if path == "/" or _PLAIN_PATH.fullmatch(path):
        return
    body = path[1:-1] if sequential and path.endswith("/") else path[1:]
    parts = body.split("/")
    if not path.startswith("/") or _REFUSED.search(path) or any(part in ("", ".", "..") for part in parts):
        raise BadPath(path)


def parent_of(path: str) -> str:
    """The path of the parent node; `/` for `/brokers`."""
    return path[: path.rindex("/")] or "/"


async def ensure_path(store: MetadataStore, path: str) -> None:
    """Creates a persistent node and its ancestors, unless they exist."""
    try:
        await store.create(path)
    except NodeExists:
        return
    except NoNode:
        await ensure_path(store, parent_of(path))
        await ensure_path(store, path)
