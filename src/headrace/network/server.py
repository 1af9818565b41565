"""The server: listening sockets and the connections accepted on them.

    accepted ─▶ header of a trusted proxy ─▶ limits, rules of an instance ─▶ TLS ─▶ Connection ─▶ gate of SASL

The sockets are non-blocking and registered on the event loop as readers and writers, without asyncio's streams:
`os.sendfile` needs the descriptor, and a stream per connection would cost a copy and a task.
"""

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Set
from typing import TYPE_CHECKING

from headrace.config import BrokerConfig
from headrace.limits import TURNED_AWAY_MAX
from headrace.network.bound_listeners import BoundListeners, bind
from headrace.network.connection import Connection, Dispatch
from headrace.network.connection_limits import ConnectionLimits
from headrace.network.entrances import Entrance, ListenerTls, Route, ServerNames
from headrace.network.late_answers import LateAnswers
from headrace.network.listeners import Listener
from headrace.network.receive_pass import ReceivePass, Turn
from headrace.network.refusals import Refusals
from headrace.network.response_memory import ResponseMemory
from headrace.network.transport import PlainTransport, Transport, plain_address
from headrace.protocol.conversation.frames import SCRATCH_BYTES, TLS_HELLO, FrameReader
from headrace.security.access import ANONYMOUS

if TYPE_CHECKING:  # imported by a broker with TLS listeners only
    from headrace.instances.address_list import Networks
    from headrace.network.proxied import Proxied
    from headrace.network.tls.handshakes import CompletedHandshake, Handshakes
    from headrace.network.tls.listeners import TlsListeners

log = logging.getLogger(__name__)

_ACCEPTS_PER_TURN = 16
_TURN_PER_ACCEPT_S = 0.0005
_PAUSE_S = 1.0
_CLOSES_PER_TURN = 100


def accepts_after(turn_s: float) -> int:
    """How many connections to accept in this turn of the event loop, after the others took `turn_s`.

    An accept takes a tenth of a millisecond, and requests wait meanwhile: one at a time, unless requests take the time.
    Then a fifth of it is for accepts, so that clients can come to a busy broker.
    """
    return max(1, min(int(turn_s / _TURN_PER_ACCEPT_S), _ACCEPTS_PER_TURN))


class Server:
    """Accepts connections on every listener, within the limits, and owns them."""

    def __init__(
        self,
        config: BrokerConfig,
        bound: BoundListeners,
        dispatch: Dispatch,
        now: Callable[[], float] | None = None,
        tls: "TlsListeners | None" = None,
        after: Turn | None = None,
    ) -> None:
        """`now`: the event loop's time. `tls`: the certificates of the TLS listeners; None if there is none. `after`:
        what follows from the requests of a turn (`ReceivePass`)."""
        now = now or asyncio.get_running_loop().time
        self._config, self._bound, self._dispatch, self._after = config, bound, dispatch, after
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._memory = ResponseMemory(config.queued_max_response_bytes)
        self._connections: set[Connection] = set()
        self._of_instances: dict[str, set[Connection]] = {}  # those that came by a route
        self.limits = ConnectionLimits(config, self.listener_names, now)
        self._entrances: dict[str, Entrance] = {}
        self._full: list[Entrance] = []  # listeners that wait for room
        self._accepted_at = 0.0
        self._turned_away = 0  # connections that are closed after a while
        self.opened = 0
        """Connections accepted since the broker started."""
        self._refusals = Refusals(log, now)
        self.tls = tls
        """The certificates of the TLS listeners."""
        self.handshakes: Handshakes | None = None
        """The connections of TLS listeners whose handshake is not complete."""
        self.proxied: Proxied | None = None
        """The connections of trusted proxies whose header is not complete."""
        self._on_open: list[Callable[[Connection], None]] = []
        self._on_close: list[Callable[[Connection], None]] = []

    @property
    def connections(self) -> Set[Connection]:
        """The open connections."""
        return self._connections

    @property
    def listener_names(self) -> list[str]:
        """The names of the bound listeners."""
        return [listener.name for listener in self._bound.listeners]

    def on_open(self, listener: Callable[[Connection], None]) -> None:
        """Calls `listener` with each connection that is accepted, from now on, before anything is read from it."""
        self._on_open.append(listener)

    def on_close(self, listener: Callable[[Connection], None]) -> None:
        """Calls `listener` with each connection that closes, from now on."""
        self._on_close.append(listener)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Starts to accept connections."""
        self._loop, self._receive_pass = loop, ReceivePass(loop, turn=LateAnswers(), after=self._after)
        for sock, listener in self._bound:
            tls = None if self.tls is None else self.tls.get(listener.name)
            self._serve(Entrance(listener.name, sock, tls=tls))

    # -- listeners at run time

    def open(self, listener: Listener, route: Route, tls: "ListenerTls | None", trusted: "Networks | None") -> int:
        """Opens a listener of its own for a route; returns its port. It replaces none. Raises `OSError`."""
        assert listener.name not in self._entrances
        sock = bind(listener)
        try:
            self._serve(Entrance(listener.name, sock, tls=tls, route=route, trusted=trusted))
        except OSError as error:  # another socket listens there, which only `listen` finds
            sock.close()
            raise OSError(error.errno, error.strerror, str(listener)) from error
        return int(sock.getsockname()[1])

    def shut(self, name: str) -> None:
        """Closes the listener that `open` opened. Its connections stay."""
        entrance = self._entrances.pop(name, None)
        if entrance is not None:
            self._loop.remove_reader(entrance.sock)
            entrance.sock.close()
            self._full = [each for each in self._full if each is not entrance]

    def configure_entrance(self, name: str, tls: "ListenerTls", names: ServerNames) -> None:
        """Lets the server names of clients choose the routes of a listener's new connections."""
        entrance = self._entrances[name]
        entrance.tls, entrance.names = tls, names

    def trust(self, proxies: "Networks") -> None:
        """Reads headers of the PROXY protocol from these addresses, on all listeners but that of brokers."""
        for name, entrance in self._entrances.items():
            if not self.limits.is_protected(name):
                entrance.trusted = proxies

    def connections_of(self, name: str) -> Set[Connection]:
        """The open connections of a route."""
        return self._of_instances.get(name, frozenset())

    async def close_connections(self, name: str, is_over: Callable[[str], bool], reason: str) -> None:
        """Closes the connections of a route from the addresses for which `is_over` says so, in slices."""
        if self.handshakes is not None:
            self.handshakes.end(lambda entrance, host: entrance.name == name and is_over(host))
        await self.close_clients(name, lambda connection: is_over(connection.host), reason)

    async def close_clients(self, name: str, is_over: Callable[[Connection], bool], reason: str) -> None:
        """Closes the connections of a route for which `is_over` says so, in slices."""
        for count, connection in enumerate(list(self.connections_of(name)), 1):
            if is_over(connection):
                connection.close(reason)
            if not count % _CLOSES_PER_TURN:
                await asyncio.sleep(0)

    def adopt(self, connection: Connection, route: Route) -> bool:
        """Lets a connection go on by a route, which is known now; False if the route refuses it. The caller closes it
        then."""
        name = route.name
        if route.refuses(connection.host, self.limits.count(name)):
            return False
        self.limits.moved(connection.listener, name)
        connection.listener = name
        self._of_instances.setdefault(name, set()).add(connection)
        return True

    # -- accepting

    def _serve(self, entrance: Entrance) -> None:
        entrance.sock.listen(self._config.socket_listen_backlog_size)
        if entrance.tls is not None and self.handshakes is None:
            from headrace.network.tls.handshakes import Handshakes

            self.handshakes = Handshakes(self._loop, self._shaken, self._not_shaken, self._refusals)
        self._entrances[entrance.name] = entrance
        self._listen(entrance)

    def _listen(self, entrance: Entrance) -> None:
        if entrance.is_open:
            self._loop.add_reader(entrance.sock, self._accept, entrance)

    def _accept(self, entrance: Entrance) -> None:
        accepts = accepts_after(time.perf_counter() - self._accepted_at)
        try:
            self._accept_some(entrance, accepts)
        finally:
            self._accepted_at = time.perf_counter()

    def _accept_some(self, entrance: Entrance, accepts: int) -> None:
        name, listening = entrance.name, entrance.sock
        for _ in range(accepts):
            if not self.limits.has_room(name):
                log.warning("listener %s accepts no further connection: max.connections is reached", name)
                self._loop.remove_reader(listening)  # new connections wait in the socket, as with Apache Kafka
                self._full.append(entrance)
                return
            try:
                sock, (host, port, *_) = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # out of descriptors: open connections are not affected
                log.error("a connection could not be accepted, trying again in %g s: %s", _PAUSE_S, error.strerror)
                self._pause(entrance, _PAUSE_S)  # the socket stays readable
                return
            host = plain_address(host)
            if entrance.trusted is not None and host in entrance.trusted:
                self._read_proxy_header(entrance, sock, (host, port))
                continue
            wait_s = self._arrive(entrance, sock, (host, port))
            if wait_s:
                self._pause(entrance, wait_s)
                return

    def _read_proxy_header(self, entrance: Entrance, sock: socket.socket, address: tuple[str, int]) -> None:
        if self.proxied is None:
            from headrace.network.proxied import Proxied

            self.proxied = Proxied(self._loop, self._arrive_by_proxy, self._refusals)
        self.proxied.begin(entrance, sock, address)

    def _arrive_by_proxy(self, entrance: Entrance, sock: socket.socket, address: tuple[str, int]) -> None:
        if not entrance.is_open or not self.limits.has_room(entrance.name):  # others came while it sent its header
            sock.close()
            return
        wait_s = self._arrive(entrance, sock, (plain_address(address[0]), address[1]))
        if wait_s:
            self._pause(entrance, wait_s)

    def _arrive(self, entrance: Entrance, sock: socket.socket, address: tuple[str, int]) -> float:
        """Opens or closes an accepted connection from `address`; returns the seconds for which the listener is to
        accept no other."""
        name, host = entrance.name, address[0]
        if entrance.route is not None and entrance.route.refuses(host, self.limits.count(name)):
            sock.close()
            return 0.0
        if self.limits.is_over_host_limit(host):
            log.warning("a connection is refused, because max.connections.per.ip is reached", extra={"host": host})
            sock.close()
            return 0.0
        wait_s = self.limits.listener_wait(name)
        away_s = self.limits.host_wait(name, host)
        if away_s:
            self._turn_away(sock, away_s)
            return 0.0
        self._open(entrance, sock, address)
        if self.limits.is_exceeded:
            self._close_one_for(name)
        return wait_s

    def _pause(self, entrance: Entrance, seconds: float) -> None:
        self._loop.remove_reader(entrance.sock)
        self._loop.call_later(seconds, self._listen, entrance)

    def _turn_away(self, sock: socket.socket, seconds: float) -> None:
        """Closes a connection of an address over its rate after a while: a client told at once comes back at once."""
        if self._turned_away >= TURNED_AWAY_MAX:
            sock.close()
            return
        self._turned_away += 1

        def end() -> None:
            self._turned_away -= 1
            sock.close()

        self._loop.call_later(seconds, end)

    def _close_one_for(self, name: str) -> None:
        """Closes the connection that was idle for longest, to make room for one of a protected listener."""
        others = [each for each in self._connections if not self.limits.is_protected(each.listener)]
        if others and self.limits.is_protected(name):
            min(others, key=lambda each: each.last_active).close("max.connections is reached, and brokers connect")

    def configure(self, config: BrokerConfig) -> None:
        """Takes new settings. More connections than a new limit stay open; none is accepted until enough are closed."""
        self._config = config
        self.limits.configure(config)
        self._listen_again()

    def _listen_again(self) -> None:
        """Accepts again on the listeners that have room by now."""
        waiting, self._full = self._full, []
        for entrance in waiting:
            if self.limits.has_room(entrance.name):
                self._listen(entrance)
            else:
                self._full.append(entrance)

    def _open(self, entrance: Entrance, sock: socket.socket, address: tuple[str, int]) -> None:
        config = self._config
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if config.socket_send_buffer_bytes >= 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, config.socket_send_buffer_bytes)
            if config.socket_receive_buffer_bytes >= 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, config.socket_receive_buffer_bytes)
        except OSError:  # the peer closed it before the accept
            sock.close()
            return
        self.limits.opened(entrance.name, address[0])
        self.opened += 1
        if entrance.tls is None:
            self._connect(PlainTransport(sock, address), entrance.name, ANONYMOUS, entrance.route)
        else:
            assert self.handshakes is not None
            self.handshakes.begin(sock, entrance, address)

    def _connect(self, transport: Transport, name: str, principal: str, route: Route | None) -> None:
        """Makes a connection that can exchange bytes."""
        config = self._config
        inbound = FrameReader(self._scratch, config.socket_request_max_bytes)
        is_timed = bool(config.metrics_listen)
        dispatch = self._dispatch if route is None else route.dispatch
        assert dispatch is not None
        connection = Connection(
            transport,
            name,
            inbound,
            dispatch,
            self,
            self._loop,
            self._memory,
            self._receive_pass,
            is_timed=is_timed,
        )
        connection.principal = principal
        self._connections.add(connection)
        if route is not None:
            self._of_instances.setdefault(name, set()).add(connection)
            route.opened(connection)
        for listener in self._on_open:
            listener(connection)

    def _shaken(self, opened: "CompletedHandshake") -> None:
        """Takes a connection whose handshake is complete."""
        entrance, host = opened.entrance, opened.address[0]
        route = entrance.route if entrance.names is None else entrance.names.route(opened.sock)
        if route is None:
            is_refused = entrance.names is not None
        elif entrance.route is None:
            is_refused = route.refuses(host, self.limits.count(route.name))
        else:  # it was counted when it was accepted, and what is refused may have changed since
            is_refused = route.refuses(host, self.limits.count(route.name) - 1)
        if not is_refused and route is not None:
            is_refused = not route.admits(opened.principal, host)
        if is_refused:
            opened.transport.close()
            self._not_shaken(entrance, host)
            return
        name = entrance.name
        if route is not None and route.name != name:
            self.limits.moved(name, route.name)
            name = route.name
        self._connect(opened.transport, name, opened.principal, route)

    def _not_shaken(self, entrance: Entrance, host: str) -> None:
        """Counts the end of a connection that did not complete its handshake."""
        self.limits.closed(entrance.name, host)
        if self._full:
            self._listen_again()

    def connection_closed(self, connection: Connection, reason: str) -> None:
        """Removes a connection; called by the connection when it closes."""
        if reason == TLS_HELLO:
            self._refusals.note(reason, connection.peer, connection.listener)
        elif log.isEnabledFor(logging.DEBUG):
            log.debug("a connection was closed", extra={"peer": connection.peer, "reason": reason})
        self._connections.discard(connection)
        name = connection.listener
        if name in self._of_instances:
            self._of_instances[name].discard(connection)
            if not self._of_instances[name]:
                del self._of_instances[name]
        self.limits.closed(name, connection.host)
        if self._full:
            self._listen_again()
        for listener in self._on_close:
            listener(connection)

    def close_idle(self, now: float) -> None:
        """Closes connections that sent nothing for `connections.max.idle.ms` and wait for no response, and connections
        whose peer has gone without reading its responses. `now`: the event loop's time."""
        for connection in [c for c in self._connections if c.is_left_behind()]:
            connection.close("closed by the client")
        idle_ms = self._config.connections_max_idle_ms
        if idle_ms < 0:
            return
        for connection in [c for c in self._connections if (now - c.last_active) * 1000 > idle_ms and c.is_idle]:
            connection.close("idle for longer than connections.max.idle.ms")

    def close(self, loop: asyncio.AbstractEventLoop) -> None:
        """Stops listening and closes every connection."""
        self._bound.close(loop)
        for name in [each for each, entrance in self._entrances.items() if entrance.route is not None]:
            self.shut(name)
        if self.proxied is not None:
            self.proxied.close()
        if self.handshakes is not None:
            self.handshakes.close()
        for connection in list(self._connections):
            connection.close("the broker is shutting down")
        self._receive_pass.close()
