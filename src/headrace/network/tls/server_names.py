"""A TLS listener that many instances share: the server name in the client's hello says which one it wants.

    hello with acme.kafka.example       ─▶ found: the handshake goes on, and the connection is one of acme
          with any other name, or none  ─▶ alert unrecognized_name, whatever the reason; nothing is signed

The name is read before the server sends a byte. Whether there is an instance of that name, whether it is served here
and whether it allows the client's address cannot be told from the answer.
"""

import logging
import socket
import ssl
from collections.abc import Callable
from typing import Protocol

from headrace.network.entrances import Route
from headrace.network.tls.listeners import TlsListener, wrapped

log = logging.getLogger(__name__)


class InstanceServerNames(Protocol):
    """The server names of this broker's instances. Called on a thread."""

    def find(self, server_name: str, host: str, /) -> str:
        """The instance that a client from `host` gets by a name; empty for none."""


class NamedSocket(ssl.SSLSocket):
    """The server's side of a connection by name."""

    host = ""
    instance = ""


class NamedTls:
    """TLS of a listener that instances share: see `ListenerTls` and `ServerNames`."""

    def __init__(self, listener: TlsListener, names: InstanceServerNames, route: Callable[[str], Route | None]) -> None:
        """`route`: the way into an instance."""
        self._listener, self._names, self._route = listener, names, route

    def wrap(self, sock: socket.socket, host: str, /) -> ssl.SSLSocket:
        """See `ListenerTls`."""
        context = self._listener.context
        if context.sslsocket_class is not NamedSocket:  # a new certificate has a new context
            context.sslsocket_class = NamedSocket
            context.sni_callback = self._choose
        found = wrapped(context, sock)
        assert isinstance(found, NamedSocket)
        found.host = host
        return found

    def principal(self, sock: ssl.SSLSocket) -> str:
        """See `ListenerTls`."""
        return self._listener.principal(sock)

    def route(self, sock: ssl.SSLSocket) -> Route | None:
        """See `ServerNames`."""
        return self._route(sock.instance) if isinstance(sock, NamedSocket) and sock.instance else None

    def _choose(self, sock: ssl.SSLSocket | ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> int | None:
        assert isinstance(sock, NamedSocket)
        try:
            sock.instance = self._names.find(name.lower().rstrip("."), sock.host) if name else ""
        except Exception:  # the handshake must fail then
            log.exception("a server name could not be looked up")
        return None if sock.instance else ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
