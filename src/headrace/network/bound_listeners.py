"""The listening sockets of a broker: bound before the broker registers, since the registration names their ports."""

import asyncio
import socket
from collections.abc import Iterator

from headrace.config import BrokerConfig
from headrace.network.listeners import Listener, inter_broker_listener, parse_listeners, parse_protocols


class BoundListeners:
    """Listeners with their sockets, which accept no connections yet. Iterating yields each socket with its listener."""

    def __init__(self, config: BrokerConfig) -> None:
        """Binds a socket for every listener; port 0 becomes the port that the system assigned.

        Raises `OSError`, which names the listener, and `InvalidConfig` for a listener that cannot be parsed.
        """
        self._bound: list[tuple[socket.socket, Listener]] = []
        try:
            listeners = parse_listeners(config.listeners, parse_protocols(config.listener_security_protocol_map))
            inter_broker_listener(listeners, config.inter_broker_listener_name)  # it is one of them
            for listener in listeners:
                sock = bind(listener)
                self._bound.append((sock, listener._replace(port=sock.getsockname()[1])))
        except OSError:
            self.close()
            raise

    def __iter__(self) -> Iterator[tuple[socket.socket, Listener]]:
        return iter(self._bound)

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """The listeners, with the ports that they are bound to."""
        return tuple(listener for _, listener in self._bound)

    def close(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Closes the sockets, and removes them from `loop`."""
        for sock, _ in self._bound:
            if loop is not None and sock.fileno() >= 0:
                loop.remove_reader(sock)
            sock.close()
        self._bound.clear()


def bind(listener: Listener) -> socket.socket:
    """A socket with a listener's address, which does not listen yet. Raises `OSError`, which names the listener."""
    family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((listener.host, listener.port))
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        raise OSError(error.errno, error.strerror, str(listener)) from error
    return sock
