"""The tree for many simulated brokers: one ensemble, and for each broker a client whose session can be lost.

    CONNECTED ──silence for 2/3 of the time-out──▶ SUSPENDED ──reached again, in time──▶ CONNECTED
                                                       └──reached again, too late──▶ LOST ──▶ CONNECTED, a new session

The ensemble forgets a session that it has not heard of for its time-out: the process is dead, stopped, or cut off. The
client learns of that only when it reaches the ensemble again, as with ZooKeeper: until then it is a zombie.

What a connection that broke leaves open: reads are asked again; of a write that was sent nobody knows whether it was
done, and who asked for it gets `SessionLost`.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from headrace.coordination.tree import (
    ANY_VERSION,
    Create,
    Delete,
    Node,
    Op,
    OpResult,
    SessionLost,
    SessionState,
    Set,
    TreeError,
    Watch,
    WatchEvent,
)
from tests.simulation.network import ENSEMBLE, Lane, Network
from tests.simulation.scheduler import Life, Process
from tests.simulation.tree_store import Session, TreeStore

T = TypeVar("T")
Work = Callable[[TreeStore, Session], Any]


class Line(Protocol):
    """One connection to the ensemble: calls made at the other side, in order."""

    def up(self, call: Callable[[], None]) -> None:
        """Has `call` made at the ensemble."""

    def down(self, call: Callable[[], None]) -> None:
        """Has `call` made at the client."""


class Direct:
    """A line without a network, for a client on an event loop of its own."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def up(self, call: Callable[[], None]) -> None:
        self._loop.call_soon(call)

    def down(self, call: Callable[[], None]) -> None:
        self._loop.call_soon(call)


class Wire:
    """A line over the simulated network."""

    def __init__(self, network: Network, process: Process, host: str) -> None:
        self._up = Lane(network, host, ENSEMBLE, lambda call: call())
        self._down = Lane(network, ENSEMBLE, host, process.call)

    def up(self, call: Callable[[], None]) -> None:
        self._up.put(call)

    def down(self, call: Callable[[], None]) -> None:
        self._down.put(call)


@dataclass(eq=False)
class _Operation:
    """Something asked of the tree, until it is answered."""

    work: Work
    path: str
    is_write: bool
    answer: "asyncio.Future[Any]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    sent_on: Line | None = None


class SimTree:
    """`headrace.coordination.tree.Tree` for one process."""

    def __init__(self, store: TreeStore, line: Line) -> None:
        self._store, self._line = store, line
        self._session: Session = store.open_session(self._notify)
        self._open: deque[_Operation] = deque()
        self._listeners: list[Callable[[SessionState], None]] = []
        self._missed: list[tuple[Session, Watch, WatchEvent]] = []
        self._closed = False
        self.state = SessionState.CONNECTED

    @property
    def session(self) -> Session:
        """The session of now."""
        return self._session

    # What the tree's users see

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        (made,) = await self.multi([Create(path, data, ephemeral, sequential)])
        assert isinstance(made, str)
        return made

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        return await self._ask(path, lambda store, session: store.get(path, session, watch))

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        return await self._ask("", lambda store, session: [store.find(path, session, watch) for path in paths])

    async def exists(self, path: str, watch: Watch | None = None) -> Node | None:
        return await self._ask(path, lambda store, session: store.exists(path, session, watch))

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        return await self._ask(path, lambda store, session: store.children(path, session, watch))

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        (new_version,) = await self.multi([Set(path, data, version)])
        assert isinstance(new_version, int)
        return new_version

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.multi([Delete(path, version)])

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        path = ops[0].path if ops else ""
        return await self._ask(path, lambda store, session: store.multi(session, ops), is_write=True)

    def on_session(self, listener: Callable[[SessionState], None]) -> None:
        self._listeners.append(listener)

    async def close(self) -> None:
        if self._closed:
            return
        if self.state is SessionState.CONNECTED:
            try:
                await self._ask("", TreeStore.end_session, is_write=True)
            except SessionLost:
                pass  # it ends by itself
        self._closed = True
        self._fail_all()

    # Questions and answers

    async def _ask(self, path: str, work: Callable[[TreeStore, Session], T], *, is_write: bool = False) -> T:
        if self._closed:
            raise SessionLost(path)
        operation = _Operation(work, path, is_write)
        self._open.append(operation)
        if self.state is SessionState.CONNECTED:
            self._send(operation)
        return await operation.answer  # type: ignore[no-any-return]

    def _send(self, operation: _Operation) -> None:
        line, session = self._line, self._session
        operation.sent_on = line
        line.up(lambda: self._at_ensemble(operation, line, session))

    def _at_ensemble(self, operation: _Operation, line: Line, session: Session) -> None:
        """Done there, also for a client that does not listen any more, unless it has come over another line since."""
        if session.is_expired or session.line not in (None, line):
            return
        try:
            result, error = operation.work(self._store, session), None
        except TreeError as refused:
            result, error = None, refused
        line.down(lambda: self._answered(operation, line, result, error))

    def _answered(self, operation: _Operation, line: Line, result: object, error: TreeError | None) -> None:
        if operation.sent_on is not line or line is not self._line:
            return
        self._open.remove(operation)
        if operation.answer.done():
            return
        if error is None:
            operation.answer.set_result(result)
        else:
            operation.answer.set_exception(error)

    def _notify(self, watch: Watch, event: WatchEvent) -> None:
        """Called at the ensemble. What is sent over a broken line is sent again when there is another."""
        line, session = self._line, self._session
        note = (session, watch, event)
        self._missed.append(note)
        line.down(lambda: self._noted(line, note))

    def _noted(self, line: Line, note: tuple[Session, Watch, WatchEvent]) -> None:
        if line is self._line and note in self._missed and not self._closed:
            self._missed.remove(note)
            note[1](note[2])

    # The session

    def suspend(self) -> None:
        """The connection is broken."""
        self._become(SessionState.SUSPENDED)
        for operation in list(self._open):
            if operation.is_write and operation.sent_on is not None:
                self._fail(operation)
            operation.sent_on = None

    def reconnect(self, line: Line) -> None:
        """Asks the ensemble, over a new line, for the session."""
        self._line = line
        session = self._session

        def at_ensemble() -> None:
            is_expired, session.line = session.is_expired, line
            line.down(lambda: self._reconnected(line, is_expired))

        line.up(at_ensemble)

    def _reconnected(self, line: Line, is_expired: bool) -> None:
        if line is not self._line or self._closed:
            return
        if is_expired:
            self._missed.clear()
            self._fail_all()
            self._session = self._store.open_session(self._notify)
            self._become(SessionState.LOST)
        for _, watch, event in [note for note in self._missed if note[0] is self._session]:
            watch(event)
        self._missed.clear()
        self._become(SessionState.CONNECTED)
        for operation in list(self._open):
            if operation.sent_on is None:
                self._send(operation)

    def _become(self, state: SessionState) -> None:
        self.state = state
        for listener in self._listeners:
            listener(state)

    def _fail(self, operation: _Operation) -> None:
        if operation in self._open:
            self._open.remove(operation)
        if not operation.answer.done():
            operation.answer.set_exception(SessionLost(operation.path))

    def _fail_all(self) -> None:
        for operation in list(self._open):
            self._fail(operation)


async def open_alone(directory: Path) -> SimTree:
    """A tree of its own for a test that has an event loop and no network."""
    return SimTree(TreeStore(), Direct(asyncio.get_running_loop()))


class Ensemble:
    """The ensemble as a host of the simulated network: opens trees, hears of clients, forgets the silent ones."""

    def __init__(self, network: Network, *, session_timeout_us: int) -> None:
        self.store = TreeStore()
        self.network, self._timeout_us = network, session_timeout_us
        self._clients: list[_Client] = []
        self.on_expired: Callable[[str, Session], None] = lambda host, session: None
        self._tick()

    async def open(self, process: Process, host: str) -> SimTree:
        """A tree for a process, when the ensemble can be reached."""
        while not self.network.is_whole(host, ENSEMBLE):  # noqa: ASYNC110
            await asyncio.sleep(0.2)
        await asyncio.sleep(self.network.delay_us() / 1e6)
        tree = SimTree(self.store, Wire(self.network, process, host))
        client = _Client(tree, process, host, self.network.scheduler.now_us)
        self._clients.append(client)
        self._look(client)
        return tree

    def expire(self, host: str) -> None:
        """Ends the session of a host now, whatever it does."""
        for client in self._clients:
            if client.host == host and client.process.is_alive:
                self._expire(client)
                client.was_dropped = True

    def _expire(self, client: "_Client") -> None:
        if not client.tree.session.is_expired:
            self.on_expired(client.host, client.tree.session)
            self.store.end_session(client.tree.session)

    def _tick(self) -> None:
        """Of the ensemble: who has been silent for too long."""
        now_us = self.network.scheduler.now_us
        for client in list(self._clients):
            if client.process.life is Life.RUNNING and self.network.is_whole(client.host, ENSEMBLE):
                client.heard_us = now_us
            elif now_us - client.heard_us > self._timeout_us:
                self._expire(client)
                if not client.process.is_alive:
                    self._clients.remove(client)
        self.network.process.call_in(self._timeout_us // 12, self._tick)

    def _look(self, client: "_Client") -> None:
        """Of a client: whether the ensemble still answers. It does not run while the client's process stands still."""
        tree, now_us = client.tree, self.network.scheduler.now_us
        if tree._closed:
            self._clients.remove(client)
            return
        is_whole = self.network.is_whole(client.host, ENSEMBLE)
        if is_whole and not client.was_dropped and not (tree.session.is_expired and tree.state is _CONNECTED):
            client.answered_us = now_us
        if tree.state is _CONNECTED and (
            now_us - client.answered_us > self._timeout_us * 2 // 3 or (client.was_dropped and is_whole)
        ):
            tree.suspend()
        if tree.state is SessionState.SUSPENDED and is_whole:
            client.was_dropped = False
            client.answered_us = now_us
            tree.reconnect(Wire(self.network, client.process, client.host))
        client.process.call_in(self._timeout_us // 15, self._look, client)


_CONNECTED = SessionState.CONNECTED


@dataclass(eq=False)
class _Client:
    """A client of the ensemble, from both sides."""

    tree: SimTree
    process: Process
    host: str
    heard_us: int
    answered_us: int = 0
    was_dropped: bool = False
