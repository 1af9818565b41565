"""The metadata store on a ZooKeeper ensemble: keeps operations and watches across broken connections and sessions.

A `Link` (`connection`) talks to the servers. Its answers, watch events and session states reach the event loop in the
order in which the servers sent them, and everything here runs on the loop.

    ready        requests are sent in order, many at once
    suspended    the connection broke: requests wait
    recovering   connected again: lost writes are looked up and watches set again; answers meanwhile wait
    lost         the session ended: writes under way fail with `SessionLost`; reads and watches go on in the next

`requests` explains how the outcome of a write is found out whose answer was lost.

**Watches** belong to a connection. On a new connection each is set again by a read, and fires if the node has changed
since the read that set it first (czxid, mzxid, pzxid). Watches outlive sessions, so a change between two sessions is
not missed.

Source: ZooKeeper's programmer's guide and `DataTree`.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from headrace.metastore.store import (
    ANY_VERSION,
    Create,
    Delete,
    EventKind,
    Node,
    NoNode,
    Op,
    OpResult,
    SessionLost,
    SessionState,
    Set,
    StoreError,
    Watch,
    WatchEvent,
    check_path,
)
from headrace.metastore.zookeeper.link import (
    ConnectionBroken,
    Link,
    PendingAnswer,
    ReadMany,
    Stat,
    Unsupported,
    Watching,
)
from headrace.metastore.zookeeper.recovery import ensure_path, set_watches
from headrace.metastore.zookeeper.requests import Requests, check_write

log = logging.getLogger(__name__)

CLOSE_SECONDS_MAX = 5.0
"""How long `close` waits for a server to end the session. Without a server it ends by its time-out."""

MARKERS = "/headrace/sessions"
"""The parent of the markers by which a session finds out which of its writes were executed."""

READS_MIN = 50
"""Reads of fewer nodes are a request each."""

READS_MAX = 200
"""Nodes that are read by one request, if they are states of partitions: 30 kB of them."""

READS_OF_ANY_SIZE_MAX = 16
"""Other nodes that are read by one request: each may have a megabyte, and the session's next answers wait behind."""

_OF_PARTITION = "/state"  # the end of a path

READ_PATHS_CHARS_MAX = 100_000
"""Of their paths, beside the first one: a server closes a connection on a request of a megabyte, `jute.maxbuffer`."""

T = TypeVar("T")


class ZooKeeperStore:
    """A `MetadataStore` over a `Link`. Made by `connection.open_store`."""

    def __init__(self, link: Link, root: str, loop: asyncio.AbstractEventLoop) -> None:
        self._link = link
        self._root = root  # '' without a chroot
        self._loop = loop
        self._requests = Requests(link, root + MARKERS, self._watch)
        self._watches: dict[Watching, None] = {}  # in the order in which they were set, and fire
        self._listeners: list[Callable[[SessionState], None]] = []
        self._recovery: asyncio.Task[None] | None = None
        self._deferred: list[Callable[[], None]] = []
        self._closed = False
        self._opened: asyncio.Future[None] = loop.create_future()

    # The interface of the metadata store

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        """See `MetadataStore.create`."""
        (made,) = await self.multi([Create(path, data, ephemeral, sequential)])
        assert isinstance(made, str)
        return made

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        """See `MetadataStore.get`."""
        (result,) = await self._ask_data(path, Watching(path, watch) if watch else None)
        return _node(*_good(result, path))

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        """See `MetadataStore.get_many`; sends all reads at once, and those of many nodes in few requests."""
        for path in paths:
            check_path(path)
        if watch is None and len(paths) >= READS_MIN and (read_many := self._link.read_many) is not None:
            with suppress(Unsupported):
                return await self._get_in_few_requests(paths, read_many)
        watchings = [Watching(path, watch) if watch else None for path in paths]
        answers = await asyncio.gather(*map(self._ask_data, paths, watchings))
        found: list[Node | None] = []
        for path, (result,) in zip(paths, answers, strict=True):
            if isinstance(result, NoNode):
                found.append(None)
            else:
                found.append(_node(*_good(result, path)))
        return found

    async def _get_in_few_requests(self, paths: Sequence[str], read_many: ReadMany) -> list[Node | None]:
        def ask(full: Sequence[str]) -> "asyncio.Future[list[Any]]":
            return self._requests.read(lambda: [read_many(full)])

        parts: list[list[str]] = []
        left = 0
        for path in paths:
            left -= len(path)
            count_max = READS_MAX if path.endswith(_OF_PARTITION) else READS_OF_ANY_SIZE_MAX
            if not parts or left < 0 or len(parts[-1]) >= count_max:
                parts.append([])
                left = READ_PATHS_CHARS_MAX
            parts[-1].append(path)
        answers = await asyncio.gather(*(ask([self._full(path) for path in part]) for part in parts))
        found: list[Node | None] = []
        for part, (results,) in zip(parts, answers, strict=True):
            for path, result in zip(part, _good(results, part[0]), strict=True):
                found.append(None if isinstance(result, NoNode) else _good(result, path))
        return found

    async def exists(self, path: str, watch: Watch | None = None) -> Node | None:
        """See `MetadataStore.exists`."""
        check_path(path)
        if watch is None:
            (found,) = await self.get_many([path])
            return found
        full, watching = self._full(path), Watching(path, watch, of_absence=True)
        stat, result = await self._requests.read(
            lambda: [self._link.stat(full, watching), self._link.data(full, None)], watching
        )
        _good(stat, path)
        return None if isinstance(result, NoNode) else _node(*_good(result, path))

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """See `MetadataStore.children`."""
        check_path(path)
        full, watching = self._full(path), Watching(path, watch, of_children=True) if watch else None
        (result,) = await self._requests.read(lambda: [self._link.children(full, watching)], watching)
        names, _ = _good(result, path)
        return sorted(names)

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        """See `MetadataStore.set`."""
        (new_version,) = await self.multi([Set(path, data, version)])
        assert isinstance(new_version, int)
        return new_version

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """See `MetadataStore.delete`."""
        await self.multi([Delete(path, version)])

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        """See `MetadataStore.multi`. Raises `TooLarge` above ZooKeeper's limit on a request."""
        check_write(ops)
        if not ops:
            return []
        full = ops if not self._root else [op._replace(path=self._full(op.path)) for op in ops]
        (result,) = await self._requests.write(full)
        if isinstance(result, StoreError):
            if result.index == len(ops):  # the marker's write failed: the session has ended
                raise SessionLost(ops[0].path)
            raise _named(result, ops[result.index].path)
        return [self._bare(each) if isinstance(each, str) else each for each in result[: len(ops)]]

    def on_session(self, listener: Callable[[SessionState], None]) -> None:
        """See `MetadataStore.on_session`."""
        self._listeners.append(listener)

    async def close(self) -> None:
        """See `MetadataStore.close`; waits for an answer at most `CLOSE_SECONDS_MAX`."""
        if self._closed:
            return
        self._closed = True
        self._stop_recovery()
        self._requests.close()
        self._watches.clear()
        ended = self._loop.create_future()
        self._link.end(lambda: None if ended.done() else ended.set_result(None))
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS_MAX):
                await ended

    async def opened(self) -> None:
        """Waits for the first session. Raises `StoreError` if the ensemble refuses an operation that it needs."""
        await asyncio.shield(self._opened)

    # Events from the link

    def session_changed(self, state: SessionState, session: int) -> None:
        """Takes in a new session state; `session` is the session's id if connected."""
        if self._closed:
            return
        if state is SessionState.CONNECTED:
            self._requests.connected(session)
            self._stop_recovery()
            self._recovery = self._loop.create_task(self._recover(), name="zookeeper recovery")
            return
        self._requests.hold()
        self._stop_recovery()
        self._notify(state)
        if state is SessionState.LOST:
            self._requests.session_lost()

    def answered(self, answer: PendingAnswer, result: Any, error: Exception | None) -> None:
        """Takes in an answer. Answers of a new connection wait until all missed watch events are delivered."""
        if isinstance(error, ConnectionBroken | SessionLost) and not answer.is_recovery:
            self._requests.hold()
        elif not (self._requests.are_flowing or answer.is_recovery):
            self._deferred.append(lambda: answer.then(result, error))
            return
        answer.then(result, error)

    def happened(self, watching: Watching, kind: EventKind) -> None:
        """Takes in a watch event."""
        if self._requests.are_flowing:
            self._fire(watching, kind)
        elif not self._closed:
            self._deferred.append(lambda: self._fire(watching, kind))

    def _fire(self, watching: Watching, kind: EventKind) -> None:
        if not watching.fired and not self._closed:
            watching.fired = True
            self._watches.pop(watching, None)
            self._loop.call_soon(watching.callback, WatchEvent(kind, watching.path))

    def _watch(self, watching: Watching) -> None:
        """Registers a watch that a read has set, so that it is set again on each new connection."""
        if not watching.fired:
            self._watches[watching] = None

    # Paths

    def _ask_data(self, path: str, watching: Watching | None) -> "asyncio.Future[list[Any]]":
        check_path(path)
        full = self._full(path)
        return self._requests.read(lambda: [self._link.data(full, watching)], watching)

    # Recovery

    def _stop_recovery(self) -> None:
        if self._recovery is not None:
            self._recovery.cancel()
            self._recovery = None

    async def _recover(self) -> None:
        """Makes the store ready on a new connection."""
        try:
            await ensure_path(self._link, self._root + MARKERS)
            await self._requests.make_marker()
            await self._requests.settle_lost(self._root or "/")
            watches = sorted(self._watches, key=lambda each: each.path)
            missed = await set_watches(self._link, self._root, watches)
        except (ConnectionBroken, SessionLost):
            return  # recovery starts again on the next connection
        except StoreError as error:
            log.error(
                "ZooKeeper refused an operation that this broker needs; check the ACL of the node: %s (%s)",
                type(error).__name__,
                error,
            )
            if not self._opened.done():
                self._opened.set_exception(error)
            return
        self._recovery = None
        self._notify(SessionState.CONNECTED)
        for watching, kind in missed:
            self._fire(watching, kind)
        deferred, self._deferred = self._deferred, []
        for what in deferred:
            what()
        if not self._opened.done():
            self._opened.set_result(None)
        self._requests.flow()

    def _notify(self, state: SessionState) -> None:
        for listener in self._listeners:
            self._loop.call_soon(listener, state)

    def _full(self, path: str) -> str:
        return self._root + path if path != "/" else self._root or "/"

    def _bare(self, path: str) -> str:
        return path[len(self._root) :] or "/"


def _good(result: T | Exception, path: str) -> T:
    """Returns the result, or raises it if it is an error."""
    if isinstance(result, StoreError):
        raise _named(result, path)
    assert not isinstance(result, Exception)
    return result


def _named(error: StoreError, path: str) -> StoreError:
    """The error with the caller's path; the link knows full paths only."""
    error.path = path
    error.args = (path, *error.args[1:])
    return error


def _node(data: bytes | None, stat: Stat) -> Node:
    return Node(data or b"", stat.version, stat.czxid, stat.mzxid, stat.ephemeralOwner)
