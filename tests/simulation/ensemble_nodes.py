"""What a ZooKeeper ensemble holds, as one state that changes one operation at a time: nodes, sessions, watches."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.metastore.store import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    Delete,
    EventKind,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    OpResult,
    Set,
    StoreError,
    WatchEvent,
    check_path,
    parent_of,
)

Notify = Callable[[Any, EventKind], None]


@dataclass(frozen=True)
class Entry:
    """A node, with what only the ensemble knows of it."""

    data: bytes = b""
    version: int = 0
    czxid: int = 0
    mzxid: int = 0
    pzxid: int = 0
    ephemeralOwner: int = 0  # ZooKeeper's name for it, by which the metadata store asks
    children_made: int = 0


@dataclass(eq=False)
class Session:
    """A client's session, and the connection that it came over last."""

    id: int
    is_expired: bool = False
    connection: "Connection | None" = None


@dataclass(eq=False)
class Connection:
    """One connection of a session; `notify` takes a watch's event to the client. Watches live as long as it does."""

    session: Session
    notify: Notify

    def __post_init__(self) -> None:
        if self.session.connection is None:
            self.session.connection = self


Watches = dict[str, list[tuple[Connection, Any]]]


@dataclass
class TreeStore:
    """Every node, who owns the ephemeral ones, and who watches what."""

    nodes: dict[str, Entry] = field(default_factory=lambda: {"/": Entry()})
    zxid: int = 0
    sessions_made: int = 0
    data_watches: Watches = field(default_factory=dict)
    child_watches: Watches = field(default_factory=dict)
    on_write: Callable[[int, Sequence[Op]], None] = lambda zxid, ops: None
    """Told of each write that was done: its zxid and what it was."""

    def open_session(self) -> Session:
        """A new session."""
        self.zxid += 1
        self.sessions_made += 1
        return Session(self.sessions_made)

    def end_session(self, session: Session) -> None:
        """Takes a session's ephemeral nodes and watches away."""
        if session.is_expired:
            return
        session.is_expired = True
        for watches in (self.data_watches, self.child_watches):
            for path in list(watches):
                watches[path] = [each for each in watches[path] if each[0].session is not session]
        owned = [path for path, entry in self.nodes.items() if entry.ephemeralOwner == session.id]
        self.multi(session, [Delete(path) for path in owned])

    # Reads; `watch` is whatever the client wants to hear of again

    def find(self, path: str) -> Entry | None:
        """The node, or None."""
        return self.nodes.get(path)

    def data(self, path: str, connection: Connection, watch: object) -> tuple[bytes, Entry]:
        """What a node holds; the watch is set only where there is one."""
        entry = self.nodes.get(path)
        if entry is None:
            raise NoNode(path)
        self._watch(self.data_watches, path, connection, watch)
        return entry.data, entry

    def stat(self, path: str, connection: Connection, watch: object) -> Entry | None:
        """The node or None; the watch is set also where there is none."""
        self._watch(self.data_watches, path, connection, watch)
        return self.nodes.get(path)

    def children(self, path: str, connection: Connection, watch: object) -> tuple[list[str], Entry]:
        """The names of a node's children."""
        entry = self.nodes.get(path)
        if entry is None:
            raise NoNode(path)
        self._watch(self.child_watches, path, connection, watch)
        names = [each.rpartition("/")[2] for each in self.nodes if each != "/" and parent_of(each) == path]
        return names, entry

    @staticmethod
    def _watch(watches: Watches, path: str, connection: Connection, watch: object) -> None:
        if watch is not None:
            watches.setdefault(path, []).append((connection, watch))

    # Writes

    def multi(self, session: Session, ops: Sequence[Op]) -> list[OpResult]:
        """All of `ops` or none."""
        before = dict(self.nodes)
        events: list[WatchEvent] = []
        results: list[OpResult] = []
        self.zxid += 1
        try:
            for op in ops:
                results.append(self._apply(session, op, events))  # noqa: PERF401 (an error's index is how many were done)
        except StoreError as error:
            self.nodes = before
            error.index = len(results)
            raise
        for event in events:
            self._fire(event)
        self.on_write(self.zxid, ops)
        return results

    def _apply(self, session: Session, op: Op, events: list[WatchEvent]) -> OpResult:
        match op:
            case Create():
                return self._create(session, op, events)
            case Set(path, data, version):
                old = self._at_version(path, version)
                self.nodes[path] = replace(old, data=data, version=old.version + 1, mzxid=self.zxid)
                events.append(WatchEvent(EventKind.CHANGED, path))
                return old.version + 1
            case Delete(path, version):
                self._at_version(path, version)
                if path == "/" or any(each != "/" and parent_of(each) == path for each in self.nodes):
                    raise NotEmpty(path)
                del self.nodes[path]
                above = self.nodes[parent_of(path)]
                self.nodes[parent_of(path)] = replace(above, pzxid=self.zxid)
                events.append(WatchEvent(EventKind.DELETED, path))
                events.append(WatchEvent(EventKind.CHILDREN, parent_of(path)))
            case Check(path, version):
                self._at_version(path, version)
        return None

    def _create(self, session: Session, op: Create, events: list[WatchEvent]) -> str:
        path = op.path
        check_path(path, sequential=op.sequential)
        if path == "/":
            raise NodeExists(path)
        parent = parent_of(path)
        above = self.nodes.get(parent)
        if above is None:
            raise NoNode(path)
        if above.ephemeralOwner:
            raise NoChildrenForEphemerals(path)
        if op.sequential:
            path = f"{path}{above.children_made:010d}"
        if path in self.nodes:
            raise NodeExists(path)
        owner = session.id if op.ephemeral else 0
        self.nodes[path] = Entry(op.data, 0, self.zxid, self.zxid, self.zxid, owner)
        self.nodes[parent] = replace(above, children_made=above.children_made + 1, pzxid=self.zxid)
        events.append(WatchEvent(EventKind.CREATED, path))
        events.append(WatchEvent(EventKind.CHILDREN, parent))
        return path

    def _at_version(self, path: str, version: int) -> Entry:
        entry = self.nodes.get(path)
        if entry is None:
            raise NoNode(path)
        if version not in (ANY_VERSION, entry.version):
            raise BadVersion(path)
        return entry

    def _fire(self, event: WatchEvent) -> None:
        if event.kind is EventKind.CHILDREN:
            watches = self.child_watches.pop(event.path, [])
        else:
            watches = self.data_watches.pop(event.path, [])
            if event.kind is EventKind.DELETED:
                watches = watches + self.child_watches.pop(event.path, [])
        for connection, watch in watches:
            if connection.session.connection is connection:
                connection.notify(watch, event.kind)
