"""Entrances: the listening sockets of a server, with the rules for the connections that come through each.

    listener in `listeners`      opened at the start, served by the broker's dispatcher
    an instance's own port       opened and closed at run time; a route says who may come in, and who serves them
    a port of many instances     the name in the client's TLS hello decides which instance's route a connection takes

What is decided here is decided when a connection opens. Its requests pay nothing for it.
"""

import socket
from typing import TYPE_CHECKING, Protocol

from headrace.network.connection import Connection, Dispatch

if TYPE_CHECKING:
    from ssl import SSLSocket

    from headrace.instances.address_list import Networks


class ListenerTls(Protocol):
    """TLS of one listener: what new connections of it get."""

    def wrap(self, sock: socket.socket, host: str, /) -> "SSLSocket":
        """The TLS side of a connection from `host`, before its handshake. Called on a thread. Raises `OSError`."""

    def principal(self, sock: "SSLSocket") -> str:
        """The principal of a client whose handshake is complete. Raises `NoRuleMatches`."""


class Route(Protocol):
    """The rules for the connections of one instance that come in one way."""

    @property
    def name(self) -> str:
        """`Connection.listener` of its connections: no entry of `listeners` has this name."""

    @property
    def dispatch(self) -> Dispatch | None:
        """The receiver of frames; None if the instance is gone."""

    def refuses(self, address: str, connections: int) -> bool:
        """Whether a further connection is closed at once, beside the instance's `connections` of now. Counts it."""

    def admits(self, principal: str, address: str, /) -> bool:
        """Whether the principal of a completed handshake may come this way. Counts it if not."""

    def opened(self, connection: Connection) -> None:
        """Takes a new connection, before anything is read from it."""


class ServerNames(Protocol):
    """The names that clients say in their TLS hello."""

    def route(self, sock: "SSLSocket") -> Route | None:
        """The route of a connection whose handshake is complete; None if it is gone by now."""


class Entrance:
    """One listening socket."""

    __slots__ = ("name", "names", "route", "sock", "tls", "trusted")

    def __init__(
        self,
        name: str,
        sock: socket.socket,
        *,
        tls: "ListenerTls | None" = None,
        route: Route | None = None,
        names: ServerNames | None = None,
        trusted: "Networks | None" = None,
    ) -> None:
        """`tls`: None for a plain one. `route`: of an instance's own port. `names`: of a port of many instances.
        `trusted`: the proxies that tell where connections are from; None if there is none."""
        self.name, self.sock, self.tls = name, sock, tls
        self.route, self.names, self.trusted = route, names, trusted

    @property
    def is_open(self) -> bool:
        """Whether the socket listens."""
        return self.sock.fileno() >= 0

    def __str__(self) -> str:
        return self.name
