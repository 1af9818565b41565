"""What a ZooKeeper ensemble holds, as one state that changes one operation at a time: nodes, sessions, watches."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

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
    Set,
    TreeError,
    Watch,
    WatchEvent,
    check_path,
    parent_of,
)

Notify = Callable[[Watch, WatchEvent], None]


@dataclass(frozen=True)
class Entry:
    """A node, with what only the ensemble knows of it."""

    data: bytes = b""
    version: int = 0
    czxid: int = 0
    mzxid: int = 0
    owner: int = 0
    children_made: int = 0

    def seen(self) -> Node:
        return Node(self.data, self.version, self.czxid, self.mzxid, self.owner)


@dataclass(eq=False)
class Session:
    """A client's session; `notify` takes a watch's event to the client."""

    id: int
    notify: Notify
    is_expired: bool = False
    line: object = None
    """The connection that it came over last, after the first."""


@dataclass
class TreeStore:
    """Every node, who owns the ephemeral ones, and who watches what."""

    nodes: dict[str, Entry] = field(default_factory=lambda: {"/": Entry()})
    zxid: int = 0
    sessions_made: int = 0
    data_watches: dict[str, list[tuple[Session, Watch]]] = field(default_factory=dict)
    child_watches: dict[str, list[tuple[Session, Watch]]] = field(default_factory=dict)
    on_write: Callable[[int, Sequence[Op]], None] = lambda zxid, ops: None
    """Told of each write that was done: its zxid and what it was."""

    def open_session(self, notify: Notify) -> Session:
        """A new session."""
        self.zxid += 1
        self.sessions_made += 1
        return Session(self.sessions_made, notify)

    def end_session(self, session: Session) -> None:
        """Takes a session's ephemeral nodes and watches away."""
        if session.is_expired:
            return
        session.is_expired = True
        for watches in (self.data_watches, self.child_watches):
            for path in list(watches):
                watches[path] = [each for each in watches[path] if each[0] is not session]
        owned = [path for path, entry in self.nodes.items() if entry.owner == session.id]
        self.multi(session, [Delete(path) for path in owned])

    # Reads

    def find(self, path: str, session: Session | None = None, watch: Watch | None = None) -> Node | None:
        """The node or None; the watch is set only where there is one."""
        entry = self.nodes.get(path)
        if entry is None:
            return None
        self._watch(self.data_watches, path, session, watch)
        return entry.seen()

    def get(self, path: str, session: Session, watch: Watch | None) -> Node:
        found = self.find(path, session, watch)
        if found is None:
            raise NoNode(path)
        return found

    def exists(self, path: str, session: Session, watch: Watch | None) -> Node | None:
        check_path(path)
        self._watch(self.data_watches, path, session, watch)
        return self.find(path)

    def children(self, path: str, session: Session, watch: Watch | None) -> list[str]:
        if path not in self.nodes:
            raise NoNode(path)
        self._watch(self.child_watches, path, session, watch)
        return sorted(each.rpartition("/")[2] for each in self.nodes if each != "/" and parent_of(each) == path)

    @staticmethod
    def _watch(
        watches: dict[str, list[tuple[Session, Watch]]], path: str, session: Session | None, watch: Watch | None
    ) -> None:
        if session is not None and watch is not None:
            watches.setdefault(path, []).append((session, watch))

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
        except TreeError as error:
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
                self.nodes[path] = Entry(data, old.version + 1, old.czxid, self.zxid, old.owner, old.children_made)
                events.append(WatchEvent(EventKind.CHANGED, path))
                return old.version + 1
            case Delete(path, version):
                self._at_version(path, version)
                if path == "/" or any(each != "/" and parent_of(each) == path for each in self.nodes):
                    raise NotEmpty(path)
                del self.nodes[path]
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
        if above.owner:
            raise NoChildrenForEphemerals(path)
        if op.sequential:
            path = f"{path}{above.children_made:010d}"
        if path in self.nodes:
            raise NodeExists(path)
        self.nodes[path] = Entry(op.data, 0, self.zxid, self.zxid, session.id if op.ephemeral else 0)
        self.nodes[parent] = Entry(
            above.data, above.version, above.czxid, above.mzxid, above.owner, above.children_made + 1
        )
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
        for session, watch in watches:
            session.notify(watch, event)
