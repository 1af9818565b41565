"""Listening sockets and the connections that came in through them.

The sockets are our own and non-blocking, with readers and writers registered on the event loop: `os.sendfile`
needs the descriptor, and a stream or a protocol object per connection would cost a copy and a task.
"""

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Set

from headrace.broker.connection import Connection, Dispatch
from headrace.broker.inbound import SCRATCH_BYTES, Inbound
from headrace.broker.listeners import Listener, parse_listeners, parse_protocols
from headrace.config import BrokerConfig

log = logging.getLogger(__name__)

_ACCEPTS_PER_TURN = 64
_PAUSE_S = 1.0


class Server:
    """Accepts connections on every listener and keeps them."""

    def __init__(self, config: BrokerConfig, dispatch: Dispatch) -> None:
        self._config = config
        self._dispatch = dispatch
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._sockets: list[tuple[socket.socket, str]] = []
        self._connections: set[Connection] = set()
        self._per_host: Counter[str] = Counter()
        self.opened = 0
        """Connections taken in since the broker began."""

    @property
    def connections(self) -> Set[Connection]:
        """Those that are open."""
        return self._connections

    @property
    def listener_names(self) -> list[str]:
        """Of the listeners that are bound."""
        return [name for _, name in self._sockets]

    def bind(self) -> list[Listener]:
        """Opens the listening sockets; a port 0 becomes the one that the system gave. Raises `OSError`, which names it.

        Raises `InvalidConfig` for a listener that cannot be read.
        """
        bound = []
        protocols = parse_protocols(self._config.listener_security_protocol_map)
        for listener in parse_listeners(self._config.listeners, protocols):
            family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
            sock = socket.socket(family, socket.SOCK_STREAM)
            try:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sock.bind((listener.host, listener.port))
                sock.setblocking(False)
            except OSError as error:
                sock.close()
                raise OSError(error.errno, error.strerror, str(listener)) from error
            self._sockets.append((sock, listener.name))
            bound.append(listener._replace(port=sock.getsockname()[1]))
        return bound

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begins to accept."""
        for sock, name in self._sockets:
            sock.listen(self._config.socket_listen_backlog_size)
            self._listen(sock, name, loop)

    def _listen(self, sock: socket.socket, name: str, loop: asyncio.AbstractEventLoop) -> None:
        if sock.fileno() >= 0:
            loop.add_reader(sock, self._accept, sock, name, loop)

    def _accept(self, listening: socket.socket, name: str, loop: asyncio.AbstractEventLoop) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                sock, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # out of descriptors: the connections there are go on
                log.error("connections cannot be accepted, trying again in %g s: %s", _PAUSE_S, error.strerror)
                loop.remove_reader(listening)  # it would be called again and again
                loop.call_later(_PAUSE_S, self._listen, listening, name, loop)
                return
            if self._is_over_limit(address[0]):
                sock.close()
                continue
            self._open(sock, name, loop)

    def _is_over_limit(self, host: str) -> bool:
        config = self._config
        if len(self._connections) < config.max_connections and self._per_host[host] < config.max_connections_per_ip:
            return False
        about = {"host": host, "open": len(self._connections), "of_host": self._per_host[host]}
        log.warning("a connection is refused: max.connections or max.connections.per.ip is reached", extra=about)
        return True

    def _open(self, sock: socket.socket, name: str, loop: asyncio.AbstractEventLoop) -> None:
        config = self._config
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if config.socket_send_buffer_bytes >= 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, config.socket_send_buffer_bytes)
            if config.socket_receive_buffer_bytes >= 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, config.socket_receive_buffer_bytes)
            inbound = Inbound(self._scratch, config.socket_request_max_bytes)
            connection = Connection(
                sock, name, inbound, self._dispatch, self, loop, is_timed=bool(config.metrics_listen)
            )
        except OSError:  # gone before it began
            sock.close()
            return
        self._connections.add(connection)
        self.opened += 1
        self._per_host[connection.host] += 1

    def connection_closed(self, connection: Connection, reason: str) -> None:
        """Called by the connection when it ends."""
        if log.isEnabledFor(logging.DEBUG):
            log.debug("a connection ended", extra={"peer": connection.peer, "reason": reason})
        self._connections.discard(connection)
        self._per_host[connection.host] -= 1
        if not self._per_host[connection.host]:
            del self._per_host[connection.host]

    def close_idle(self, now: float) -> None:
        """Ends connections that sent nothing for `connections.max.idle.ms` and wait for no answer, and those whose peer
        has left many answers behind. `now`: loop time."""
        for connection in [c for c in self._connections if c.is_left_behind()]:
            connection.close("closed by the client")
        idle_ms = self._config.connections_max_idle_ms
        if idle_ms < 0:
            return
        for connection in [c for c in self._connections if c.is_idle and (now - c.last_active) * 1000 > idle_ms]:
            connection.close("idle for longer than connections.max.idle.ms")

    def close(self, loop: asyncio.AbstractEventLoop) -> None:
        """Stops listening and ends every connection."""
        for sock, _ in self._sockets:
            loop.remove_reader(sock)
            sock.close()
        self._sockets.clear()
        for connection in list(self._connections):
            connection.close("the broker is shutting down")
