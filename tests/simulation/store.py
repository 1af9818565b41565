"""The ensemble that simulated brokers coordinate through, and each broker's connection to it, which can be lost.

The metadata store itself is the broker's own `ZooKeeperStore`: reconnection, watches, writes whose answer was lost.
What is
simulated is below it, the `Link` and the servers:

    CONNECTED ──silence for 2/3 of the time-out──▶ SUSPENDED ──reached again, in time──▶ CONNECTED
                                                       └──reached again, too late──▶ LOST ──▶ CONNECTED, a new session

The ensemble forgets a session that it has not heard of for its time-out: the process is dead, stopped, or cut off. The
client learns of that only when it reaches the ensemble again, as with ZooKeeper: until then it is a zombie. What a
client sent over a connection that broke may be done, or not; once it has come over another, never.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from headrace.metastore.store import EventKind, Op, SessionLost, SessionState, StoreError
from headrace.metastore.zookeeper.link import ConnectionBroken, PendingAnswer, ReadMany, Watching
from headrace.metastore.zookeeper.store import ZooKeeperStore
from tests.simulation.ensemble_nodes import Connection, Session, TreeStore
from tests.simulation.network import ENSEMBLE, Lane, Network
from tests.simulation.scheduler import Life, Process

RECONNECT_US = 400_000
"""How long an attempt to reach the ensemble may take."""


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
        self._up: Lane[Callable[[], None]] = Lane(network, host, ENSEMBLE, lambda call: call())
        self._down: Lane[Callable[[], None]] = Lane(network, ENSEMBLE, host, process.call)

    def up(self, call: Callable[[], None]) -> None:
        self._up.put(call)

    def down(self, call: Callable[[], None]) -> None:
        self._down.put(call)


class SimLink:
    """`headrace.metastore.zookeeper.link.Link`: a client's connection to the ensemble."""

    def __init__(self, store: TreeStore, line: Line) -> None:
        self._store, self._line = store, line
        self.session: Session = store.open_session()
        self._connection = self._connect(line)
        self._open: dict[PendingAnswer, Line] = {}
        self.is_ended = False
        self.on_write: Callable[[Sequence[Op]], None] = lambda ops: None
        """Called before a write begins its way."""
        self.state = SessionState.CONNECTED
        self.store = ZooKeeperStore(self, "", asyncio.get_running_loop())
        line.down(lambda: self.store.session_changed(SessionState.CONNECTED, self.session.id))

    def _connect(self, line: Line) -> Connection:
        """At the ensemble: the session is this connection's from now on."""

        def notify(watch: Watching, kind: EventKind) -> None:
            line.down(lambda: self.store.happened(watch, kind) if line is self._line else None)

        return Connection(self.session, notify)

    # What the metadata store asks

    def data(self, path: str, watch: Watching | None) -> PendingAnswer:
        """See `Link.data`."""
        return self._ask(lambda store, connection: store.data(path, connection, watch))

    read_many: ReadMany | None = None

    def stat(self, path: str, watch: Watching | None) -> PendingAnswer:
        """See `Link.stat`."""
        return self._ask(lambda store, connection: store.stat(path, connection, watch))

    def children(self, path: str, watch: Watching | None) -> PendingAnswer:
        """See `Link.children`."""
        return self._ask(lambda store, connection: store.children(path, connection, watch))

    def write(self, ops: Sequence[Op]) -> PendingAnswer:
        """See `Link.write`."""
        self.on_write(ops)
        return self._ask(lambda store, connection: store.multi(connection.session, ops))

    def end(self, done: Callable[[], None]) -> None:
        """See `Link.end`."""
        self.is_ended = True
        session, line, store = self.session, self._line, self._store

        def at_ensemble() -> None:
            store.end_session(session)
            line.down(done)

        line.up(at_ensemble)

    def _ask(self, work: Callable[[TreeStore, Connection], Any]) -> PendingAnswer:
        answer, line, connection = PendingAnswer(), self._line, self._connection
        self._open[answer] = line
        if self.state is SessionState.CONNECTED:
            line.up(lambda: self._at_ensemble(answer, line, connection, work))
        else:
            asyncio.get_running_loop().call_soon(self._fail, answer, ConnectionBroken())
        return answer

    def _at_ensemble(
        self, answer: PendingAnswer, line: Line, connection: Connection, work: Callable[[TreeStore, Connection], Any]
    ) -> None:
        """Done there, also for a client that does not listen any more, unless it has come over another line since."""
        session = connection.session
        if session.connection is not connection:
            return
        result: Any = None
        error: Exception | None = None
        try:
            result = SessionLost("") if session.is_expired else work(self._store, connection)
        except StoreError as refused:
            error = refused
        if isinstance(result, SessionLost):
            result, error = None, result
        line.down(lambda: self._answered(answer, line, result, error))

    def _answered(self, answer: PendingAnswer, line: Line, result: object, error: Exception | None) -> None:
        if line is self._line and self._open.pop(answer, None) is not None:
            self.store.answered(answer, result, error)

    def _fail(self, answer: PendingAnswer, error: Exception) -> None:
        if self._open.pop(answer, None) is not None:
            self.store.answered(answer, None, error)

    # The session

    def suspend(self) -> None:
        """The connection is broken."""
        self.state = SessionState.SUSPENDED
        for answer in list(self._open):
            self._fail(answer, ConnectionBroken())
        self.store.session_changed(SessionState.SUSPENDED, self.session.id)

    def reconnect(self, line: Line) -> None:
        """Asks the ensemble, over a new line, for the session."""
        self._line = line
        self._connection = connection = self._connect(line)
        session = self.session

        def at_ensemble() -> None:
            if line is not self._line:
                return  # the client gave this attempt up and closed it: the session is not moved to it any more
            if not session.is_expired:
                session.connection = connection
            is_expired = session.is_expired
            line.down(lambda: self._reconnected(line, is_expired))

        line.up(at_ensemble)

    def _reconnected(self, line: Line, is_expired: bool) -> None:
        if line is not self._line or self.is_ended:
            return
        if is_expired:
            self.state = SessionState.LOST
            self.store.session_changed(SessionState.LOST, self.session.id)
            for answer in list(self._open):
                self._fail(answer, SessionLost(""))
            self.session = self._store.open_session()
            self._connection = self.session.connection = self._connect(line)
        self.state = SessionState.CONNECTED
        self.store.session_changed(SessionState.CONNECTED, self.session.id)


async def open_alone(directory: Path) -> ZooKeeperStore:
    """A metadata store of its own for a test that has an event loop and no network."""
    link = SimLink(TreeStore(), Direct(asyncio.get_running_loop()))
    await link.store.opened()
    return link.store


class Ensemble:
    """The ensemble as a host of the simulated network: opens trees, hears of clients, forgets the silent ones."""

    def __init__(self, network: Network, *, session_timeout_us: int) -> None:
        self.store = TreeStore()
        self.network, self._timeout_us = network, session_timeout_us
        self._clients: list[_Client] = []
        self.on_expired: Callable[[str, Session], None] = lambda host, session: None
        self.on_write_begun: Callable[[str, Sequence[Op]], None] = lambda host, ops: None
        self._tick()

    async def open(self, process: Process, host: str) -> ZooKeeperStore:
        """A metadata store for a process, when the ensemble can be reached."""
        while not self.network.is_whole(host, ENSEMBLE):  # noqa: ASYNC110
            await asyncio.sleep(0.2)
        await asyncio.sleep(self.network.delay_us() / 1e6)
        link = SimLink(self.store, Wire(self.network, process, host))
        link.on_write = lambda ops: self.on_write_begun(host, ops)
        now_us = self.network.scheduler.now_us
        client = _Client(link, process, host, now_us, now_us)
        self._clients.append(client)
        self._look(client)
        await link.store.opened()
        return link.store

    def expire(self, host: str) -> None:
        """Ends the session of a host now, whatever it does."""
        for client in self._clients:
            if client.host == host and client.process.is_alive:
                self._expire(client)
                client.was_dropped = True

    def _expire(self, client: "_Client") -> None:
        if not client.link.session.is_expired:
            self.on_expired(client.host, client.link.session)
            self.store.end_session(client.link.session)

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
        link, now_us = client.link, self.network.scheduler.now_us
        if link.is_ended:
            self._clients.remove(client)
            return
        is_whole = self.network.is_whole(client.host, ENSEMBLE)
        if is_whole and not client.was_dropped and not (link.session.is_expired and link.state is _CONNECTED):
            client.answered_us = now_us
        if link.state is _CONNECTED and (
            now_us - client.answered_us > self._timeout_us * 2 // 3 or (client.was_dropped and is_whole)
        ):
            link.suspend()
        if link.state is SessionState.SUSPENDED and is_whole and not client.is_reconnecting(now_us):
            client.was_dropped = False
            client.answered_us = client.reconnecting_us = now_us
            link.reconnect(Wire(self.network, client.process, client.host))
        client.process.call_in(self._timeout_us // 15, self._look, client)


_CONNECTED = SessionState.CONNECTED


@dataclass(eq=False)
class _Client:
    """A client of the ensemble, from both sides."""

    link: SimLink
    process: Process
    host: str
    heard_us: int
    answered_us: int
    was_dropped: bool = False
    reconnecting_us: int = -RECONNECT_US

    def is_reconnecting(self, now_us: int) -> bool:
        """Whether it waits for an answer to an attempt."""
        return now_us - self.reconnecting_us < RECONNECT_US
