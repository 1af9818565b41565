"""The server: listening sockets and the connections accepted on them.

The sockets are non-blocking and registered on the event loop as readers and writers, without asyncio's streams:
`os.sendfile` needs the descriptor, and a stream per connection would cost a copy and a task.
"""

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Set

from headrace.config import BrokerConfig
from headrace.network.bound_listeners import BoundListeners
from headrace.network.connection import Connection, Dispatch
from headrace.network.response_memory import ResponseMemory
from headrace.network.transport import PlainTransport
from headrace.protocol.conversation.frames import SCRATCH_BYTES, FrameReader

log = logging.getLogger(__name__)

_ACCEPTS_PER_TURN = 64
_PAUSE_S = 1.0


class Server:
    """Accepts connections on every listener, within the limits, and owns them."""

    def __init__(self, config: BrokerConfig, bound: BoundListeners, dispatch: Dispatch) -> None:
        self._config, self._bound, self._dispatch = config, bound, dispatch
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._memory = ResponseMemory(config.queued_max_response_bytes)
        self._connections: set[Connection] = set()
        self._per_host: Counter[str] = Counter()
        self.opened = 0
        """Connections accepted since the broker started."""

    @property
    def connections(self) -> Set[Connection]:
        """The open connections."""
        return self._connections

    @property
    def listener_names(self) -> list[str]:
        """The names of the bound listeners."""
        return [listener.name for listener in self._bound.listeners]

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Starts to accept connections."""
        for sock, listener in self._bound:
            sock.listen(self._config.socket_listen_backlog_size)
            self._listen(sock, listener.name, loop)

    def _listen(self, sock: socket.socket, name: str, loop: asyncio.AbstractEventLoop) -> None:
        if sock.fileno() >= 0:
            loop.add_reader(sock, self._accept, sock, name, loop)

    def _accept(self, listening: socket.socket, name: str, loop: asyncio.AbstractEventLoop) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                sock, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # out of descriptors: open connections are not affected
                log.error("a connection could not be accepted, trying again in %g s: %s", _PAUSE_S, error.strerror)
                loop.remove_reader(listening)  # the socket stays readable: the callback would run in every turn
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
        log.warning(
            "a connection is refused, because max.connections or max.connections.per.ip is reached", extra=about
        )
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
            inbound = FrameReader(self._scratch, config.socket_request_max_bytes)
            is_timed = bool(config.metrics_listen)
            connection = Connection(
                PlainTransport(sock), name, inbound, self._dispatch, self, loop, self._memory, is_timed=is_timed
            )
        except OSError:  # the peer closed it before the accept
            sock.close()
            return
        self._connections.add(connection)
        self.opened += 1
        self._per_host[connection.host] += 1

    def connection_closed(self, connection: Connection, reason: str) -> None:
        """Removes a connection; called by the connection when it closes."""
        if log.isEnabledFor(logging.DEBUG):
            log.debug("a connection was closed", extra={"peer": connection.peer, "reason": reason})
        self._connections.discard(connection)
        self._per_host[connection.host] -= 1
        if not self._per_host[connection.host]:
            del self._per_host[connection.host]

    def close_idle(self, now: float) -> None:
        """Closes connections that sent nothing for `connections.max.idle.ms` and wait for no response, and connections
        whose peer has gone without reading its responses. `now`: the event loop's time."""
        for connection in [c for c in self._connections if c.is_left_behind()]:
            connection.close("closed by the client")
        idle_ms = self._config.connections_max_idle_ms
        if idle_ms < 0:
            return
        for connection in [c for c in self._connections if c.is_idle and (now - c.last_active) * 1000 > idle_ms]:
            connection.close("idle for longer than connections.max.idle.ms")

    def close(self, loop: asyncio.AbstractEventLoop) -> None:
        """Stops listening and closes every connection."""
        self._bound.close(loop)
        for connection in list(self._connections):
            connection.close("the broker is shutting down")
