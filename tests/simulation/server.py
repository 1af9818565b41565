"""The sockets of a simulated broker, as the listeners of instances use them: `headrace.network.server.Server` without
TLS, and without limits of its own.

A listener that `open` opens is a port of the broker's host in the simulated network. What comes in through it takes the
route of its instance, as behind a real socket: the route may refuse it, names its principal, and dispatches its frames.
"""

import asyncio
import errno
from collections.abc import Callable
from typing import Any

from headrace.network.connection import Connection
from headrace.network.entrances import Route
from headrace.network.listeners import Listener
from tests.simulation.frames import Served
from tests.simulation.network import End, Network
from tests.simulation.scheduler import Process

FIRST_PORT = 20_000
"""The first of the ports that are given to listeners which ask for any."""


class NoLimits:
    """The limits of connections of a broker that has none."""

    def is_protected(self, _listener: str) -> bool:
        """Whether the broker's own limits do not count for a listener."""
        return False


class SimServer:
    """The listeners of one process that are opened at run time."""

    def __init__(
        self, network: Network, process: Process, host: str, serve: Callable[[End, Any, str], Served | Connection]
    ) -> None:
        """`serve`: makes a connection of an end, for a dispatcher and a listener."""
        self._serve = serve
        self._network, self._process, self._host = network, process, host
        self._ports: dict[str, int] = {}
        self._served: dict[str, list[Served | Connection]] = {}
        self.limits = NoLimits()
        self.tls = self.handshakes = None

    def open(self, listener: Listener, route: Route, tls: object, trusted: object) -> int:
        """Opens a listener for a route; returns its port. Raises `OSError`."""
        assert tls is None
        assert trusted is None
        taken = self._network.host(self._host).ports
        port = listener.port or next(each for each in range(FIRST_PORT, 1 << 16) if each not in taken)
        if port in taken:
            raise OSError(errno.EADDRINUSE, "the port is in use", str(listener))
        taken[port] = lambda end: self._accept(end, route)
        self._ports[listener.name] = port
        return port

    def shut(self, name: str) -> None:
        """Closes a listener. Its connections stay."""
        port = self._ports.pop(name, None)
        if port is not None:
            self._network.host(self._host).ports.pop(port, None)

    async def close_connections(self, name: str, is_over: Callable[[str], bool], reason: str) -> None:
        """Closes the connections of a route from the addresses for which `is_over` says so."""
        for number, served in enumerate(self._open_of(name), 1):
            if is_over(served.host):
                served.close(reason)
            if number % 100 == 0:
                await asyncio.sleep(0)

    def close(self) -> None:
        """Closes everything: the broker stops."""
        for name in list(self._ports):
            self.shut(name)
        for some in self._served.values():
            for served in some:
                served.close("the broker is shutting down")

    def _open_of(self, name: str) -> list[Served | Connection]:
        some = self._served[name] = [each for each in self._served.get(name, ()) if not each.is_closed]
        return list(some)

    def _accept(self, end: End, route: Route) -> None:
        others = self._open_of(route.name)
        if route.refuses(end.peer_host, len(others)):
            end.close()
            return
        dispatch = route.dispatch
        assert dispatch is not None
        served = self._serve(end, dispatch, route.name)
        self._served[route.name].append(served)
        route.opened(served)  # type: ignore[arg-type]
