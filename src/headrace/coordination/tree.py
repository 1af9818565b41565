"""The tree that brokers coordinate through: ZooKeeper's data model, as an async interface.

A node has a path (`/brokers/ids/0`), a value of bytes, and a version that grows by one with each `set`.

    ephemeral    vanishes with the session that made it (this process, or its ZooKeeper session); has no children
    sequential   the tree appends ten digits to the name: how many children the parent was ever given
    watch        a callback that fires once, on the event loop, for the first change after the read that set it
    multi        several writes and version checks that happen together or not at all

Every write transaction has a number, the zxid. A node keeps that of its creation (`czxid`: a broker's epoch is
that of its registration) and of its last change (`mzxid`).

Invariants: whoever reads the new state of a node has been sent its watch event before; a write that returned
survives a crash of this process and of the machine; what is asked is done in the order of asking.

Where the tree is behind a connection that breaks, what is asked waits for the next one. A write that was under way is
neither lost nor done twice while its session lives. When the session ends, writes that were asked for and not answered
fail with `SessionLost`; reads wait for the next session, and watches live on in it.
Source: ZooKeeper's programmer's guide. Left out: ACLs, containers, time-to-live, quotas, reconfiguration.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

ANY_VERSION = -1


class TreeError(Exception):
    """An operation that the tree refused; in a multi, `index` tells which one, and none was done."""

    def __init__(self, path: str, index: int = 0) -> None:
        super().__init__(path)
        self.path = path
        self.index = index


class NoNode(TreeError):
    """The node, or the parent of the node to be made, is not there."""


class NodeExists(TreeError):
    """A node of that path is there already."""


class BadVersion(TreeError):
    """The node has changed since the version that the caller read."""


class NotEmpty(TreeError):
    """A node with children cannot be deleted."""


class NoChildrenForEphemerals(TreeError):
    """An ephemeral node cannot be a parent."""


class BadPath(TreeError):
    """Not a path: it must start with `/`, not end with it, and have no empty, `.` or `..` part nor a NUL."""


class TooLarge(TreeError):
    """More in one write than the tree takes; ZooKeeper takes 1 MiB."""


class NotAllowed(TreeError):
    """The node's access control list does not let this process do it."""


class TreeRefused(TreeError):
    """An error that has no name here; its text has ZooKeeper's."""


class SessionLost(TreeError):
    """The session is over, and with it this process's ephemeral nodes; whether the write was done is not known. Or the
    tree was closed."""


class Node(NamedTuple):
    """What a node holds, as of one moment."""

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
    """One watch fired."""

    kind: EventKind
    path: str


Watch = Callable[[WatchEvent], None]


class Create(NamedTuple):
    """Make a node; in a multi's result it is the path made."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


class Set(NamedTuple):
    """Give a node a new value; in a multi's result it is the new version."""

    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    """Remove a node without children."""

    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Refuse the whole multi unless the node is there, at that version."""

    path: str
    version: int = ANY_VERSION


Op = Create | Set | Delete | Check
OpResult = str | int | None


class SessionState(Enum):
    """Where the session with the tree stands."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"  # the connection broke; the session may live on
    LOST = "lost"  # the session is over: ephemeral nodes are gone, what this process held it holds no longer


class Tree(Protocol):
    """What the coordination code needs of ZooKeeper; a write, and everything once it is closed, may raise
    `SessionLost`."""

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        """The path made. Raises `NodeExists`, `NoNode` (no parent), `NoChildrenForEphemerals`, `BadPath`."""
        ...

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        """The node; `watch` fires when it is changed or deleted. Raises `NoNode`, and then sets no watch."""
        ...

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        """Each path's node, or None where there is none; read one after the other, not at one moment.

        `watch` fires for each node that was there when that is changed or deleted.
        """
        ...

    async def exists(self, path: str, watch: Watch | None = None) -> Node | None:
        """The node or None; `watch` fires when it is created, changed or deleted."""
        ...

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Names (not paths) of the children, sorted; `watch` fires when one comes or goes, or the node is deleted."""
        ...

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        """The new version. Raises `NoNode`, `BadVersion`."""
        ...

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Raises `NoNode`, `BadVersion`, `NotEmpty`."""
        ...

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        """All of `ops`, in order, or none: then it raises the first one's error, whose `index` says which."""
        ...

    def on_session(self, listener: Callable[[SessionState], None]) -> None:
        """Calls `listener` on the event loop whenever the session's state changes."""
        ...

    async def close(self) -> None:
        """Ends the session: its ephemeral nodes are gone when this returns."""
        ...


def check_path(path: str, *, sequential: bool = False) -> None:
    """Raises `BadPath`. A sequential node's path may end with `/`: the digits are its name then."""
    if path == "/":
        return
    body = path[1:-1] if sequential and path.endswith("/") else path[1:]
    parts = body.split("/")
    if not path.startswith("/") or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise BadPath(path)


def parent_of(path: str) -> str:
    """The path of the node above; `/` for `/brokers`."""
    return path[: path.rindex("/")] or "/"


async def ensure_path(tree: Tree, path: str) -> None:
    """Makes the persistent node and those above it, unless they are there."""
    try:
        await tree.create(path)
    except NodeExists:
        return
    except NoNode:
        await ensure_path(tree, parent_of(path))
        await ensure_path(tree, path)
